// Package records serves the collections: PocketBase's records API (https://pocketbase.io/docs/api-records) over the
// read models. It also serves the routes that belong to one collection.
//
// Promises: a list and a view come from one snapshot of the read models. A write becomes a command of handlers; its
// answer is the record once the read models hold the event. A batch is one transaction: all of its writes happen, or
// none. Clients may send back whole records: read-only fields are ignored, unknown fields are refused.
//
// The table in collections.go has one value for each collection that is a read model: its fields, its access rules and
// its writer. The other collections follow from the types of configuration records.
//
// It must not know how events are stored or how OpenCode is reached.
package records

import (
	"slices"

	"pocketcoder/events/log"
	"pocketcoder/handlers/channel"
	"pocketcoder/handlers/chat"
	"pocketcoder/handlers/model"
	"pocketcoder/handlers/permission"
	"pocketcoder/handlers/record"
	"pocketcoder/web/api"
)

type Records struct {
	Collections  Collections
	API          *api.Server
	Log          *log.Log
	Chats        *chat.Chats
	Records      *record.Records
	Gate         permission.Gate
	ProviderKeys *model.ProviderKeys
	Channels     *channel.Channels
}

var listQuery = slices.Concat([]api.Param{
	{Name: "page", Integer: true, About: "from 1"}, {Name: "perPage", Integer: true, About: "records of a page, at most 1000; default 30"},
	{Name: "sort", About: "fields, a - before one sorts it in descending order; @random"}, {Name: "filter", About: "PocketBase's filter language"},
}, api.ViewQuery, []api.Param{{Name: "skipTotal", About: "1: do not count the records"}})

func (s *Records) Routes() []api.Route {
	const (
		collection = "/api/collections/{collection}"
		list       = collection + "/records"
		one        = list + "/{id}"
	)
	return []api.Route{
		{Method: "GET", Path: "/api/collections", About: "The collections, as a schema.", Access: api.Admins, Answer: collectionList{}, Serve: s.listCollections},
		{Method: "GET", Path: collection, About: "A collection's schema.", Access: api.Admins, Answer: collectionSchema{}, Serve: s.viewCollection},
		{Method: "GET", Path: list, About: "List records.", Access: api.Accounts, Query: listQuery, Answer: page{}, Serve: s.listRecords},
		{Method: "POST", Path: list, About: "Create a record. The answer is the new record. That of a webhook or a webhook target also has its token, only this time.", Access: api.Accounts, Query: api.ViewQuery, Body: s.Collections.recordInput(true), Forms: s.Collections.inputForms(), Answer: api.AnyRecord{}, Serve: s.createRecord},
		{Method: "GET", Path: one, About: "View a record.", Access: api.Accounts, Query: api.ViewQuery, Answer: api.AnyRecord{}, Serve: s.viewRecord},
		{Method: "PATCH", Path: one, About: "Update a record. The answer is the changed record.", Access: api.Accounts, Query: append(slices.Clip(api.ViewQuery), api.DeadlineParam), Body: s.Collections.recordInput(false), Forms: s.Collections.inputForms(), Answer: api.AnyRecord{}, Serve: s.updateRecord},
		{Method: "DELETE", Path: one, About: "Delete a record.", Access: api.Accounts, Serve: s.deleteRecord},
		{Method: "POST", Path: "/api/batch", About: "Creates, updates and deletes that happen together or not at all.", Access: api.Accounts, Query: []api.Param{api.DeadlineParam}, Body: batch{}, Answer: []batchAnswer{}, Serve: s.runBatch},
		{Method: "POST", Path: "/api/pocketcoder/webhooks/{id}/token", About: "Make a new token of a webhook. It replaces the old token. Only this answer shows it.", Access: api.Accounts, Answer: record.NewToken{}, Serve: s.tokenOf(channel.Webhooks)},
		{Method: "POST", Path: "/api/pocketcoder/webhook_targets/{id}/token", About: "Make a new token of a webhook target. It replaces the old token. Only this answer shows it.", Access: api.Accounts, Answer: record.NewToken{}, Serve: s.tokenOf(channel.Targets)},
		{Method: "GET", Path: "/api/pocketcoder/ssh_keys", About: "The active public keys of the account, one on each line.", Access: api.Accounts, Media: "text/plain", Serve: s.listSSHKeys},
	}
}
