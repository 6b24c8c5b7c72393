package timeline

import (
	"context"
	"encoding/json"
	"slices"
	"strings"

	"github.com/pocketbase/dbx"
)

// Models are the models that can be used, and the one that was selected for a chat.
type Models struct {
	All      []string            // provider/model, sorted
	Selected string              // "" if the chat follows the configured model
	Record   string              // id of the selection
	Reads    map[string][]string // the kinds of content that a model can read, such as text and image, if it is known
}

const demoProvider = "demo/"

// OnlyDemo reports whether the demo model is the only one that can be used.
func (m Models) OnlyDemo() bool {
	return len(m.All) > 0 && !slices.ContainsFunc(m.All, func(name string) bool {
		return !strings.HasPrefix(name, demoProvider)
	})
}

const (
	selectModels = `SELECT p.fields->>'$.provider_id'||'/'||m.value AS model,
		coalesce((SELECT r.value FROM json_each(p.fields->'$.reads') r WHERE r.key=m.value), '') AS reads FROM config p, json_each(p.fields->'$.models') m
		WHERE p.collection='llm_providers' AND NOT p.removed AND p.fields->>'$.is_connected' ORDER BY 1`
	selectSelection = `SELECT record, fields->>'$.model' AS model FROM config
		WHERE collection='model_selection' AND NOT removed AND fields->>'$.chat'={:chat} ORDER BY last_seq DESC LIMIT 1`
)

// ModelsOf reads the models that a chat can use.
func ModelsOf(ctx context.Context, db dbx.Builder, chat string) (all Models, err error) {
	all.Reads = map[string][]string{}
	var rows []struct{ Model, Reads string }
	if err := list(ctx, db, &rows, "models", selectModels, nil); err != nil {
		return all, err
	}
	for _, r := range rows {
		all.All = append(all.All, r.Model)
		var kinds []string
		if json.Unmarshal([]byte(r.Reads), &kinds) == nil {
			all.Reads[r.Model] = kinds
		}
	}
	selected, err := first[struct{ Record, Model string }](ctx, db, "model of "+chat, selectSelection,
		dbx.Params{"chat": chat})
	all.Selected, all.Record = selected.Model, selected.Record
	return all, err
}
