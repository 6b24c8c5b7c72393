// Package query answers questions about records the way PocketBase does: its filter, sort, expand and fields languages over
// tables of SQLite, and its access rules, which are filters too. It only reads, and knows nothing of HTTP.
//
// A Catalogue says which collections there are: where the rows of each one live, what its fields are called, who may see them.
// List and View answer with records, Allowed and AllowedNew say whether a rule lets a change pass, Changed gives what has
// changed after a sequence, tombstones included.
//
// Promises:
//   - every value a client sent is bound, never written into SQL; names are looked up in the catalogue, never copied;
//   - what a client may not list does not exist for its filters, sorts and expands either, on whatever path it is reached: a
//     relation to such a record reads as empty. PocketBase excludes the whole row instead;
//   - whatever a client sends gives an answer or an Invalid that names the part at fault, within bounded time and memory.
//
// Rules are trusted: they see everything. So is the SQL in the catalogue. Two things differ from PocketBase on purpose, besides the
// second promise: no field equals @request.auth.… while nobody is signed in, so what has no owner is not public; and :each and :length
// work on JSON fields too.
package query
