// Package routes serves the routes of the API that act on the subjects behind the records: chats and their permission
// requests, delegates, schedules, channels, shells, agents with their notes, MCP servers, and the search. Each subject
// has a type with its Routes, and the methods that the pages share with them. MCPStates reads the state of MCP servers,
// for the pages, too.
//
// Promises: an action needs the right to change its subject. Answers that depend on an event come after the read models
// hold it.
//
// It must not know how a decision is made: handlers decide.
package routes

import (
	"pocketcoder/web/api"
)

// once are the headers of a route whose repetition would act a second time.
var once = []api.Param{api.IdempotencyParam}
