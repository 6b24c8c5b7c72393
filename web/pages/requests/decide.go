package requests

import (
	"net/http"
	"strings"

	"pocketcoder/events"
	"pocketcoder/handlers/mcpserver"
	"pocketcoder/projections"
	"pocketcoder/web/api"
	"pocketcoder/web/pages/site"
)

// The pages that show cards, as the forms of cards name them.
const (
	FromChat     = "chat"
	FromReplay   = "replay" // shows cards as they were, without forms
	fromRequests = "requests"
	fromRequest  = "request"
)

const nothingShown = "The form does not say which request it showed. Load the page again."

// decide decides a request that the form shows: the API refuses a decision about any other.
func (q Requests) decide(_ http.ResponseWriter, r *http.Request, caller api.Caller) (string, error) {
	shown := r.PostFormValue("shown_request")
	if shown == "" { // the API takes it for a caller who checks nothing
		return "", api.BadField("shown_request", "validation_required", nothingShown)
	}
	fields := map[string]any{"status": r.PostFormValue("decision"), "shown_request": shown}
	for _, name := range []string{"reason", "edited", "shown_files"} {
		if text := site.Field(r, name); text != "" {
			fields[name] = text
		}
	}
	return q.afterDecision(r), q.Records.Update(r.Context(), caller, "permissions", r.PathValue("request"), fields)
}

// decideGroup decides several requests that the form shows. All of them ask for the same.
func (q Requests) decideGroup(_ http.ResponseWriter, r *http.Request, caller api.Caller) (string, error) {
	shown, requests, files := r.PostFormValue("shown_request"), r.PostForm["request"], r.PostForm["shown_files"]
	if shown == "" || len(requests) > site.MaxPending || len(files) != len(requests) {
		return "", api.BadField("shown_request", "validation_required", nothingShown)
	}
	var failed error
	for i, id := range requests { // one that was decided meanwhile keeps none of the others from being decided
		fields := map[string]any{"status": r.PostFormValue("decision"), "shown_request": shown, "shown_files": files[i]}
		if err := q.Records.Update(r.Context(), caller, "permissions", id, fields); err != nil {
			failed = err
		}
	}
	return "/requests", failed
}

// decideServer decides about an MCP server as the form shows it: the API refuses to approve any other definition.
func (q Requests) decideServer(_ http.ResponseWriter, r *http.Request, caller api.Caller) (string, error) {
	fields := map[string]any{"status": mcpserver.Denied}
	if r.PostFormValue("decision") == events.Authorized {
		fields = map[string]any{"status": mcpserver.Approved, "shown_definition": r.PostFormValue("shown_definition")}
	}
	return "/requests", q.Records.Update(r.Context(), caller, mcpserver.Collection, r.PathValue("id"), fields)
}

func (q Requests) answerQuestion(_ http.ResponseWriter, r *http.Request, caller api.Caller) (string, error) {
	fields := map[string]any{"status": projections.QuestionRejected}
	if r.PostFormValue("decision") != projections.QuestionRejected {
		answers := r.PostForm["choice"]
		if own := strings.TrimSpace(site.Field(r, "own")); own != "" {
			answers = append(answers, own)
		}
		if len(answers) == 0 {
			return "", api.BadField("choice", "validation_required", "Choose or write an answer first.")
		}
		fields = map[string]any{"status": projections.QuestionReplied, "reply": string(api.MustJSON(answers))}
	}
	return q.afterDecision(r), q.Records.Update(r.Context(), caller, "questions", r.PathValue("question"), fields)
}

// afterDecision returns the page from which a form came.
func (q Requests) afterDecision(r *http.Request) string {
	switch r.PostFormValue("from") {
	case fromRequests:
		return "/requests"
	case fromRequest:
		return singleRequestPath(r.PathValue("request"))
	}
	return site.ChatPath(r.PathValue("id"))
}
