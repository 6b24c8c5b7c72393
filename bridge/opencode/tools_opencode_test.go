package opencode_test

import (
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/matryer/is"

	"pocketcoder/handlers"
	"pocketcoder/handlers/chat"
	"pocketcoder/handlers/handlerstest"
	"pocketcoder/handlers/record"
)

// offered returns the tools in the last request to the model.
func (w *bridgedOpenCode) offered() (names []string) {
	w.t.Helper()
	type request struct {
		Tools []struct{ Function struct{ Name string } }
	}
	var last request
	for all := json.NewDecoder(strings.NewReader(w.requests())); all.More(); {
		last = request{}
		w.must(all.Decode(&last))
	}
	for _, tool := range last.Tools {
		names = append(names, tool.Function.Name)
	}
	return names
}

func (w *bridgedOpenCode) save(collection, id, fields string) string {
	w.t.Helper()
	id, _, err := w.outbox.Records.Save(w.t.Context(), record.Save{Command: handlers.Command{Actor: handlerstest.Alice},
		Collection: collection, Record: id, New: id == "", Set: handlerstest.Fields(fields)})
	w.must(err)
	return id
}

func toolsThatRulesDenyWhollyAreNotOfferedToTheModel(t *testing.T, w *bridgedOpenCode) {
	is := is.New(t)
	chosen := w.save("ai_agents", "", `{"name":"Reviewer"}`)
	rule := w.save("tool_permissions", "", `{"agent":"`+chosen+`","tool":"bash","pattern":"*","action":"deny","active":true}`)
	w.save("tool_permissions", "", `{"agent":"`+chosen+`","tool":"write","pattern":"*","action":"deny","active":true}`)
	w.save("tool_permissions", "", `{"agent":"`+chosen+`","tool":"webfetch","pattern":"https://example.org/*","action":"deny","active":true}`)
	plain := w.chat()
	w.say(plain, "@@say one")
	all := w.offered()
	for _, name := range []string{"bash", "edit", "write", "read", "webfetch"} {
		is.True(slices.Contains(all, name))
	}

	of, seq, err := w.outbox.Chats.Create(t.Context(), chat.Create{Title: "reviews", User: "u1", Agent: chosen})
	is.NoErr(err)
	is.NoErr(w.model.Wait(t.Context(), seq))
	w.say(of, "@@call bash {\"command\":\"echo hello > made\",\"description\":\"d\"}\n@@next\n@@say two")
	is.Equal(w.offered(), slices.DeleteFunc(slices.Clone(all), func(name string) bool {
		return slices.Contains([]string{"bash", "edit", "write"}, name)
	}))
	_, err = os.Stat(filepath.Join(w.workspace, "made"))
	is.True(errors.Is(err, os.ErrNotExist)) // OpenCode knows no such tool

	w.save("tool_permissions", rule, `{"active":false}`)
	w.say(of, "@@say three")
	is.True(slices.Contains(w.offered(), "bash"))
	is.True(!slices.Contains(w.offered(), "write"))
	w.save("tool_permissions", "", `{"agent":"`+chosen+`","tool":"*","pattern":"*","action":"deny","active":true}`)
	w.say(of, "@@say four")
	is.Equal(len(w.offered()), 0)
	w.say(plain, "@@say five")
	is.Equal(w.offered(), all)
}
