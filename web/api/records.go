package api

import (
	"slices"
	"sync"

	"pocketcoder/events/log"
	"pocketcoder/events/secret"
	"pocketcoder/handlers"
)

// Records serves the collections.
type Records struct {
	API       *Server
	Log       *log.Log
	Handlers  *handlers.Handlers
	Gate      handlers.Gate
	Secrets   *secret.Store
	Push      Push
	Workspace string // the directory of the files that agents work on, absolute
	Data      string // the data directory, absolute; empty when there is none

	// Changes of models' keys take turns: the record and the values are two writes, and two changes of one record must not
	// leave the names of one with the values of the other.
	llmKeys sync.Mutex
}

var listQuery = slices.Concat([]Param{
	{Name: "page", Integer: true, About: "from 1"}, {Name: "perPage", Integer: true, About: "records of a page, at most 1000; 30 when absent"},
	{Name: "sort", About: "fields, - before one turns it round; @random"}, {Name: "filter", About: "PocketBase's filter language"},
}, viewQuery, []Param{{Name: "skipTotal", About: "1: do not count"}})

// Routes are the routes of the collections.
func (s *Records) Routes() []Route {
	const (
		collection = "/api/collections/{collection}"
		list       = collection + "/records"
		record     = list + "/{id}"
		push       = "/api/pocketcoder/push"
	)
	return []Route{
		{Method: "GET", Path: "/api/collections", About: "The collections, as a schema.", Admits: admins, Answer: collectionList{}, Serve: s.listCollections},
		{Method: "GET", Path: collection, About: "A collection's schema.", Admits: admins, Answer: collectionSchema{}, Serve: s.viewCollection},
		{Method: "GET", Path: list, About: "List records.", Admits: accounts, Query: listQuery, Answer: page{}, Serve: s.listRecords},
		{Method: "POST", Path: list, About: "Create a record: a command, answered with what became of it.", Admits: accounts, Query: viewQuery, Body: recordInput(true), Forms: inputForms(), Answer: anyRecord{}, Serve: s.createRecord},
		{Method: "GET", Path: record, About: "View a record.", Admits: accounts, Query: viewQuery, Answer: anyRecord{}, Serve: s.viewRecord},
		{Method: "PATCH", Path: record, About: "Update a record: a command, answered with what became of it.", Admits: accounts, Query: viewQuery, Body: recordInput(false), Forms: inputForms(), Answer: anyRecord{}, Serve: s.updateRecord},
		{Method: "DELETE", Path: record, About: "Delete a record.", Admits: accounts, Serve: s.deleteRecord},
		{Method: "POST", Path: "/api/batch", About: "Creates, updates and deletes that happen together or not at all.", Admits: accounts, Body: batch{}, Answer: []batchAnswer{}, Serve: s.runBatch},
		{Method: "GET", Path: "/api/pocketcoder/ssh_keys", About: "The active public keys of the account's, a line each.", Admits: accounts, Media: "text/plain", Serve: s.listSSHKeys},
		{Method: "GET", Path: push + "/key", About: "The public key with which a browser subscribes to Web Push.", Admits: accounts, Answer: pushKey{}, Serve: s.pushKey},
		{Method: "POST", Path: push, About: "Notify an account on its devices, unless it has turned that off or looks at the chat.", Admits: accounts, Body: pushRequest{}, Answer: pushAnswer{}, Serve: s.pushTo},
		{Method: "POST", Path: push + "/test", About: "Notify one device of the account's, to see whether that works.", Admits: accounts, Body: pushTestRequest{}, Answer: pushAnswer{}, Serve: s.testPush},
		{Method: "POST", Path: "/api/pocketcoder/act/{token}", About: "Do what a notification's button says, once.", Admits: anyone, Answer: actAnswer{}, Serve: s.act},
	}
}
