package conversation

import (
	"fmt"
	"net/http"
	"strings"

	"pocketcoder/handlers/budget"
	"pocketcoder/projections"
	"pocketcoder/web/api"
	"pocketcoder/web/pages/site"
)

// stopDelegate stops a delegate and those below it.
func (c Conversation) stopDelegate(_ http.ResponseWriter, r *http.Request, caller api.Caller) (string, error) {
	id := r.PathValue("id")
	return site.ChatPath(id), c.Delegates.Stop(r, caller, id)
}

// delegateLine is what the tree says about a delegate: agent, state, cost and requests that wait.
func delegateLine(w projections.Delegate) string {
	parts := []string{w.State}
	if w.Agent != "" {
		parts = append([]string{w.Agent}, parts...)
	}
	if w.Branch != "" {
		parts = append(parts, "branch "+w.Branch)
	}
	if w.Directory != "" {
		parts = append(parts, "in "+w.Directory)
	}
	if w.Silent != "" {
		parts = append(parts, "silent since "+w.Silent)
	}
	if w.Cost > 0 {
		parts = append(parts, "cost "+budget.Dollars(w.Cost))
	}
	if w.Pending > 0 {
		parts = append(parts, fmt.Sprintf("%d waiting for you", w.Pending))
	}
	return strings.Join(parts, " · ")
}
