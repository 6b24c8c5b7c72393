// Package query reads records as PocketBase does: pages of a list, single records, their expanded relations, and their
// JSON. It also evaluates the rules for changes, and finds the records that have changed.
//
// Promises: every value of a client is bound, never written into SQL; names are looked up in the catalogue, never
// copied. A client's filter, sort or expand never reveals a record that the client may not list: a relation to it
// reads as empty. (PocketBase excludes the whole row.) Any input returns an answer, or an Invalid that names the
// parameter at fault, within limited time and memory.
//
// It must not write, and must not know HTTP.
package query
