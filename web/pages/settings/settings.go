// Package settings serves the configuration: lists of the records of each collection, and forms to change them.
//
// Promises: a form has the fields of the API's collection, so a new collection needs only a title here. A save changes
// only the fields that a person changed, so that a secret that is shown hidden is not overwritten. A form is refused
// with the same words as the same request to the API.
//
// It must not depend on the meaning of a record.
package settings

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"net"
	"net/http"
	"net/url"
	"slices"
	"strconv"

	"github.com/a-h/templ"
	"github.com/pocketbase/dbx"

	"pocketcoder/handlers/channel"
	"pocketcoder/handlers/mcpserver"
	"pocketcoder/handlers/mcpstate"
	"pocketcoder/handlers/model"
	"pocketcoder/handlers/network"
	"pocketcoder/handlers/policy"
	"pocketcoder/handlers/proposal"
	"pocketcoder/handlers/record"
	"pocketcoder/handlers/rule"
	"pocketcoder/projections"
	"pocketcoder/web/api"
	"pocketcoder/web/pages/site"
	"pocketcoder/web/query"
	"pocketcoder/web/records"
	"pocketcoder/web/routes"
)

// Settings serves the configuration.
type Settings struct{ *site.Site }

// Handle adds the pages to a mux.
func (s Settings) Handle(mux *http.ServeMux) {
	mux.Handle("GET /settings", s.Page(s.showIndex))
	mux.Handle("GET /settings/agent_notes/{id}/versions", s.Page(s.showVersions))
	mux.Handle("POST /settings/agent_notes/{id}/versions/{version}", s.Command(s.restoreVersion))
	mux.Handle("POST "+importPath+"/check", s.Page(s.checkImport))
	mux.Handle("POST "+importPath, s.Command(s.importAgent))
	mux.Handle("POST "+newKeyPath, s.Page(s.createKey))
	mux.Handle("POST /settings/"+model.Keys+"/{id}/test", s.Page(s.testKey))
	mux.Handle("GET /settings/{collection}", s.Page(s.showRecords))
	for _, collection := range []string{channel.Webhooks, channel.Targets} {
		mux.Handle("POST /settings/"+collection, s.Page(s.createWithToken(collection)))
		mux.Handle("POST /settings/"+collection+"/{id}/token", s.Page(s.renewToken(collection)))
	}
	mux.Handle("POST /settings/{collection}", s.Command(s.create))
	mux.Handle("POST /settings/{collection}/{id}", s.Command(s.update))
	mux.Handle("POST /settings/{collection}/{id}/delete", s.Command(s.remove))
}

func (s Settings) showIndex(*http.Request, api.Caller) (templ.Component, error) {
	return indexPage(), nil
}

// maxRecords is the number of records that a page shows.
const maxRecords = 200

var newest = query.Query{Sort: "-created", PerPage: maxRecords}

// view is the records of a collection that an account may list, at one moment.
type view struct {
	about     collection
	form      records.Form
	records   []query.Record
	related   map[string][]relatedRecord // by collection: what relations can point to
	changes   map[string]proposal.Stored // proposals and sealed procedures, by record
	servers   map[string]mcpstate.State  // how MCP servers work, by record
	more      bool                       // there are more records than are shown
	providers []model.KnownProvider      // whose keys a form stores
	account   string                     // that sees the page
}

// relatedRecord is a record that a relation can point to.
type relatedRecord struct{ id, name string }

func (s Settings) showRecords(r *http.Request, caller api.Caller) (templ.Component, error) {
	about, err := collectionOf(r)
	if err != nil {
		return nil, err
	}
	v := view{about: about, related: map[string][]relatedRecord{}, account: caller.Account,
		providers: s.Records.ProviderKeys.Known}
	v.form, _ = s.Records.Collections.FormOf(about.Name)
	v.form.Fields = slices.DeleteFunc(v.form.Fields, func(f record.Field) bool { return f.Name == shownDefinition })
	if v.changes, err = s.proposed(r.Context(), about.Name); err != nil {
		return nil, err
	}
	if about.Name == routes.MCPServerCollection {
		if v.servers, err = s.Agents.Servers().All(r.Context()); err != nil {
			return nil, err
		}
	}
	err = s.API.SlowView(r.Context(), caller.Key(), func(db dbx.Builder, _ uint64) (err error) {
		if v.records, err = s.List(r.Context(), db, caller, about.Name, newest); err != nil {
			return err
		}
		v.more = len(v.records) == maxRecords
		for _, f := range v.form.Fields {
			if f.Kind != record.Relation || v.related[f.Relation] != nil {
				continue
			}
			if v.related[f.Relation], err = s.relatedIn(r.Context(), db, caller, f.Relation); err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	if about.Name == routes.MCPServerCollection {
		v.form.Fixed = append(v.form.Fixed, slices.DeleteFunc(slices.Clone(v.form.Fields), isEditedServerField)...)
		v.form.Fields = slices.DeleteFunc(v.form.Fields, func(f record.Field) bool { return !isEditedServerField(f) })
	}
	return recordsPage(caller, v), nil
}

// proposed returns the proposals or the sealed procedures, if the collection has them, by record.
func (s Settings) proposed(ctx context.Context, collection string) (map[string]proposal.Stored, error) {
	var all []proposal.Stored
	var err error
	switch collection {
	case proposal.Collection:
		all, err = s.Agents.Proposals.List(ctx)
	case proposal.Procedures:
		all, err = s.Agents.Proposals.Procedures(ctx)
	}
	changes := map[string]proposal.Stored{}
	for _, p := range all {
		changes[p.ID] = p
	}
	return changes, err
}

// limitsOf returns what a rule does not cover, though its pattern looks as if it did.
func limitsOf(collection string, r query.Record) []string {
	if collection != rule.ToolPermissions {
		return nil
	}
	rule := policy.Rule{Permission: r.Text("tool"), Pattern: r.Text("pattern"), Action: policy.Action(r.Text("action"))}
	return rule.Limits()
}

// relatedIn returns the records of a collection that an account may list, with the field that names each.
func (s Settings) relatedIn(ctx context.Context, db dbx.Builder, caller api.Caller,
	name string) (all []relatedRecord, err error) {
	found, err := s.List(ctx, db, caller, name, newest)
	for _, r := range found {
		all = append(all, relatedRecord{r.ID(), nameOf(r)})
	}
	return all, err
}

// titleOf names a record in the list. A rule is named with its action and with the chat or agent that it is for.
func (v view) titleOf(r query.Record) string {
	if v.about.Name != rule.ToolPermissions {
		return nameOf(r)
	}
	scope := "every chat"
	for _, f := range v.form.Fields {
		if id := r.Text(f.Name); id != "" && (f.Name == "chat" || f.Name == "agent") {
			i := slices.IndexFunc(v.related[f.Relation], func(other relatedRecord) bool { return other.id == id })
			name := id
			if i >= 0 {
				name = v.related[f.Relation][i].name
			}
			scope = f.Name + " " + name
			break
		}
	}
	return fmt.Sprintf("%s %s (%s)", cmp.Or(r.Text("action"), string(policy.Allow)), nameOf(r), scope)
}

// nameOf names a record by the first of the fields that name records.
func nameOf(r query.Record) string {
	for _, field := range []string{"name", "title", "email", "tool", "provider_id", "device_name", "model", "permission"} {
		if text := r.Text(field); text != "" {
			if pattern := r.Text("pattern"); pattern != "" && field != "name" {
				text += ": " + pattern
			}
			return text
		}
	}
	return r.ID()
}

// collectionOf returns the collection of the settings that a path names.
func collectionOf(r *http.Request) (collection, error) {
	for _, g := range groups {
		for _, c := range g.collections {
			if c.Name == r.PathValue("collection") {
				return c, nil
			}
		}
	}
	return collection{}, api.NotFound()
}

func (s Settings) create(_ http.ResponseWriter, r *http.Request, caller api.Caller) (string, error) {
	about, err := collectionOf(r)
	if err != nil {
		return "", err
	}
	fields, err := s.fieldsIn(r, about.Name, func(f record.Field) string { return "" })
	if err != nil {
		return "", err
	}
	_, err = s.Records.Create(r.Context(), caller, about.Name, fields)
	return path(about.Name), err
}

// createWithToken creates a record of a collection, and shows the token that the system makes for it.
func (s Settings) createWithToken(collection string) func(*http.Request, api.Caller) (templ.Component, error) {
	return func(r *http.Request, caller api.Caller) (templ.Component, error) {
		fields, err := s.fieldsIn(r, collection, func(f record.Field) string { return "" })
		if err != nil {
			return nil, err
		}
		id, token, err := s.Records.CreateWithToken(r.Context(), caller, collection, fields)
		if err != nil {
			return nil, err
		}
		return s.showToken(r, caller, collection, id, token)
	}
}

// renewToken replaces the token of a record of a collection, and shows it.
func (s Settings) renewToken(collection string) func(*http.Request, api.Caller) (templ.Component, error) {
	return func(r *http.Request, caller api.Caller) (templ.Component, error) {
		id := r.PathValue("id")
		made, err := s.Records.RenewToken(r.Context(), caller, collection, id)
		if err != nil {
			return nil, err
		}
		return s.showToken(r, caller, collection, id, made.Token)
	}
}

func (s Settings) showToken(r *http.Request, caller api.Caller, collection, id, token string) (templ.Component,
	error) {
	found, err := s.API.Find(r.Context(), caller, collection, id)
	return tokenPage(collection, nameOf(found), token), err
}

// update changes the fields that differ from the texts that the form showed. If the form names no such text, it
// compares with the current record.
func (s Settings) update(_ http.ResponseWriter, r *http.Request, caller api.Caller) (string, error) {
	about, err := collectionOf(r)
	if err != nil {
		return "", err
	}
	now, err := s.API.Find(r.Context(), caller, about.Name, r.PathValue("id"))
	if err != nil {
		return "", err
	}
	fields, err := s.fieldsIn(r, about.Name, func(f record.Field) string { return fieldText(now, f.Name) })
	if err != nil || len(fields) == 0 {
		return path(about.Name), err
	}
	if r.PostForm.Has(shownDefinition) {
		fields[shownDefinition] = site.Field(r, shownDefinition)
	}
	return path(about.Name), s.Records.Update(r.Context(), caller, about.Name, r.PathValue("id"), fields)
}

func (s Settings) remove(_ http.ResponseWriter, r *http.Request, caller api.Caller) (string, error) {
	about, err := collectionOf(r)
	if err != nil {
		return "", err
	}
	return path(about.Name), s.Records.Delete(r.Context(), caller, about.Name, r.PathValue("id"))
}

// shownDefinition is the field with which a save names the definition of an MCP server that the form showed.
const shownDefinition = "shown_definition"

// shownPrefix is before the name of a field in the name of the hidden field with the text that the form showed. It
// differs from that of the record if another person has changed the record since, or if the record has hidden
// characters.
const shownPrefix = "shown_"

// newRecord stands for the id of a record that does not exist yet.
const newRecord = "new"

// initialValue returns what the form of a new record shows in a field. New records are enabled, as over the API.
func initialValue(f record.Field) string {
	if f.Name == "enabled" {
		return "true"
	}
	return ""
}

// fieldsIn returns the fields of a form whose text differs from the text that the form showed, by default from that of
// the record.
func (s Settings) fieldsIn(r *http.Request, collection string, now func(record.Field) string) (map[string]any, error) {
	form, _ := s.Records.Collections.FormOf(collection)
	fields := map[string]any{}
	for _, f := range form.Fields {
		if f.Name == shownDefinition { // with other fields only
			continue
		}
		text := site.Field(r, f.Name)
		before := now(f)
		if r.PostForm.Has(shownPrefix + f.Name) {
			before = site.Field(r, shownPrefix+f.Name)
		}
		if !r.PostForm.Has(f.Name) || text == before {
			continue
		}
		value, err := valueOf(f, text)
		if err != nil {
			return nil, err
		}
		fields[f.Name] = value
	}
	return fields, nil
}

// valueOf returns the value of a field that a person wrote as text.
func valueOf(f record.Field, text string) (any, error) {
	switch f.Kind {
	case record.Number:
		if text == "" {
			return nil, nil
		}
		n, err := strconv.ParseFloat(text, 64)
		if err != nil {
			return nil, api.BadField(f.Name, "validation_invalid_type", "%s: must be a number, not %q",
				f.Name, api.Truncate(text, 40))
		}
		return n, nil
	case record.Bool:
		return text == "true", nil
	case record.JSON:
		if text != "" && !json.Valid([]byte(text)) {
			return nil, api.BadField(f.Name, "validation_invalid_type", "%s: must be JSON", f.Name)
		}
		if text == "" {
			return nil, nil
		}
		return json.RawMessage(text), nil
	}
	return text, nil
}

// fieldText returns a field of a record as the text that a person edits, "" for a number that is not set.
func fieldText(r query.Record, name string) string {
	if !r.IsSet(name) {
		return ""
	}
	switch v := r.Get(name).(type) {
	case string:
		return v
	case bool:
		return strconv.FormatBool(v)
	case int64:
		return strconv.FormatInt(v, 10)
	case float64:
		return strconv.FormatFloat(v, 'f', -1, 64)
	case json.RawMessage:
		if string(v) != "null" {
			return string(v)
		}
	}
	return ""
}

// isLong reports whether a field holds a text of several lines.
func isLong(f record.Field) bool {
	switch f.Name {
	case "body", "content", "description", "prompt", "public_key", "note", "reason":
		return true
	}
	return f.Kind == record.JSON
}

func path(collection string) string { return "/settings/" + url.PathEscape(collection) }

func recordPath(collection, id string) string { return path(collection) + "/" + url.PathEscape(id) }

// fieldsOf returns the labels and texts of the fields of a read-only record.
func fieldsOf(form records.Form, r query.Record) (all [][2]string) {
	for _, name := range r.Names() {
		if text := fieldText(r, name); text != "" {
			all = append(all, [2]string{fieldLabel(form, name), text})
		}
	}
	return all
}

// isEditedServerField reports whether a person sets a field of an MCP server. The gateway sets who approved a server
// and when, and the other fields are for gateways elsewhere.
func isEditedServerField(f record.Field) bool {
	return !slices.Contains([]string{"requested_by", "approved_by", "approved_at", "config", "catalog", "image",
		"config_schema"}, f.Name)
}

// shownElsewhere are the read-only fields that a record shows in another form.
var shownElsewhere = []string{"in_force", "problem", "difference", "tools", "found_tools", "not_offered"}

// serverOf reads an MCP server from its record.
func serverOf(r query.Record) (s mcpserver.Server) {
	s.Version, s.Difference = fieldText(r, "version"), fieldText(r, "difference")
	s.NotOffered = fieldText(r, "not_offered")
	_ = json.Unmarshal([]byte(fieldText(r, "tools")), &s.Tools) // null before the server has listed them
	return s
}

// shownText returns what a read-only field shows: the name of a related record, or else the value.
func (v view) shownText(f record.Field, value string) string {
	for _, one := range v.related[f.Relation] {
		if f.Kind == record.Relation && one.id == value {
			return one.name
		}
	}
	return value
}

// stateOf returns the status of a record, and whether an MCP server works.
func (v view) stateOf(r query.Record) string {
	if server, ok := v.servers[r.ID()]; ok {
		return server.State
	}
	return fieldText(r, "status")
}

// callState says what became of a call.
func callState(c mcpstate.Call) string {
	switch c.State {
	case projections.MCPCallCompleted:
		return fmt.Sprintf("completed in %d ms,", c.DurationMS)
	case projections.MCPCallFailed:
		return fmt.Sprintf("failed after %d ms,", c.DurationMS)
	}
	return "is running,"
}

// address names a host of a connection, and whether it was reached.
func address(c network.Connection) string {
	at := net.JoinHostPort(c.Host, strconv.Itoa(c.Port))
	if c.Allowed {
		return fmt.Sprintf("allowed %s", at)
	}
	return fmt.Sprintf("refused %s", at)
}

func contains(all []relatedRecord, id string) bool {
	return slices.ContainsFunc(all, func(r relatedRecord) bool { return r.id == id })
}
