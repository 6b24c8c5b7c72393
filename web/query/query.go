// Package query reads records as PocketBase does: pages of a list, single records, what they expand to, and their
// JSON. It also says whether a rule allows a change, and which records have changed.
//
// Promises: every value of a client is bound, never written into SQL; names are looked up in the catalogue, never
// copied. A client's filter, sort or expand never reveals a record that the client may not list: a relation to it
// reads as empty, where PocketBase excludes the whole row. Any input gives an answer, or an Invalid that names the
// parameter at fault, within bounded time and memory.
//
// It must not write, and must not know HTTP.
package query
