package pages

import (
	"cmp"
	"maps"
	"net/http"
	"slices"
	"strings"

	"github.com/a-h/templ"

	"pocketcoder/web/api"
	"pocketcoder/web/pages/site"
)

// serveDocs shows the description of the API, also while the read models are loaded.
func serveDocs(d api.Document) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		site.SetHeaders(w.Header())
		if err := site.Render(w, r, http.StatusOK, docs(d)); err != nil {
			http.Error(w, err.Error(), http.StatusInternalServerError)
		}
	})
}

// examples has a command to begin with for each group of operations.
var examples = map[string]string{
	"System": "curl http://127.0.0.1:8090/api/health",
	"Accounts": `TOKEN=$(curl -s http://127.0.0.1:8090/api/collections/users/auth-with-password \
  -H 'Content-Type: application/json' -d '{"identity":"me@example.org","password":"…"}' | jq -r .token)
curl -H "Authorization: $TOKEN" http://127.0.0.1:8090/api/pocketcoder/sessions`,
	"Records": `# begin a chat and say something
curl -H "Authorization: $TOKEN" -H 'Content-Type: application/json' \
  http://127.0.0.1:8090/api/collections/chats/records -d '{"title":"Tidy up"}'
curl -H "Authorization: $TOKEN" -H 'Content-Type: application/json' \
  http://127.0.0.1:8090/api/collections/messages/records -d '{"chat":"CHAT","role":"user","parts":[{"type":"text","text":"hello"}]}'
# what waits for you, and its approval
curl -H "Authorization: $TOKEN" -G http://127.0.0.1:8090/api/collections/permissions/records --data-urlencode 'filter=status = "draft"'
curl -H "Authorization: $TOKEN" -H 'Content-Type: application/json' -X PATCH \
  http://127.0.0.1:8090/api/collections/permissions/records/ID -d '{"status":"authorized"}'`,
	"Streams":     `curl -N -H "Authorization: $TOKEN" http://127.0.0.1:8090/api/chats/CHAT/events`,
	"Executions":  `curl -H "Authorization: $TOKEN" http://127.0.0.1:8090/api/executions/EXECUTION/output`,
	"Permissions": `curl -H "Authorization: $TOKEN" http://127.0.0.1:8090/api/pocketcoder/permissions/ID/why`,
	"Notifications": `# for the phone itself: pocketcoder device add "My phone"
curl -H "Authorization: $TOKEN" -H 'Content-Type: application/json' \
  http://127.0.0.1:8090/api/pocketcoder/push/test -d '{"device":"ID"}'`,
	"Workspace": `curl -H "Authorization: $TOKEN" http://127.0.0.1:8090/api/pocketcoder/files/`,
	"Chats":     `curl -X POST -H "Authorization: $TOKEN" http://127.0.0.1:8090/api/pocketcoder/chats/CHAT/abort`,
}

// operationEntry is an operation with where it is found.
type operationEntry struct {
	api.Operation
	method, path string
}

// operationsOf are the operations of a group, by path.
func operationsOf(d api.Document, tag string) (list []operationEntry) {
	for _, path := range sorted(d.Paths) {
		for _, method := range sorted(d.Paths[path]) {
			if o := d.Paths[path][method]; slices.Contains(o.Tags, tag) {
				list = append(list, operationEntry{o, strings.ToUpper(method), path})
			}
		}
	}
	return list
}

// words say a form that has no parts.
func words(f api.Form) string {
	text := cmp.Or(f.Type, "any value")
	if f.Format != "" {
		text += " (" + f.Format + ")"
	}
	if len(f.Enum) > 0 {
		text = `"` + strings.Join(f.Enum, `", "`) + `"`
	}
	if f.Description != "" {
		text += ", " + f.Description
	}
	return text
}

// presence says whether a property may be absent or written.
func presence(f api.Form, name string) string {
	switch {
	case f.Properties[name].ReadOnly:
		return "read only"
	case !slices.Contains(f.Required, name):
		return "optional"
	}
	return ""
}

func formName(f api.Form) string { return f.Ref[strings.LastIndex(f.Ref, "/")+1:] }

func formID(name string) string { return "form-" + name }

func formLink(name string) templ.SafeURL { return templ.SafeURL("#" + formID(name)) }

func sorted[V any](m map[string]V) []string { return slices.Sorted(maps.Keys(m)) }
