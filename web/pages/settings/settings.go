// Package settings serves the configuration: lists of the records of each collection, and forms to change them. Some
// collections have more: the preview and the runs of schedules, the pairing of messengers, the test of the key of a
// provider, the state of MCP servers, what a proposal changes, and the versions of notes.
//
// Promises: a form has the fields of the API's collection, so a new collection needs only a title here. A save changes
// only the fields that a person changed, so that a secret that is shown hidden is not overwritten. A form is refused
// with the same words as the same request to the API. A token and the code of a pairing are shown once.
//
// It must not decide what a record may hold, and must not know how a code, a key or a schedule is used.
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
	"time"

	"github.com/a-h/templ"
	"github.com/pocketbase/dbx"

	"pocketcoder/handlers/channel"
	"pocketcoder/handlers/mcpserver"
	"pocketcoder/handlers/model"
	"pocketcoder/handlers/network"
	"pocketcoder/handlers/policy"
	"pocketcoder/handlers/project"
	"pocketcoder/handlers/proposal"
	"pocketcoder/handlers/record"
	"pocketcoder/handlers/rule"
	"pocketcoder/handlers/schedule"
	"pocketcoder/projections"
	"pocketcoder/projections/timeline"
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
	mux.Handle("GET /settings/{collection}/{id}", s.Page(s.showRecord))
	mux.Handle("POST /settings/{collection}", s.Command(s.create))
	mux.Handle("POST /settings/{collection}/{id}", s.Command(s.update))
	mux.Handle("POST /settings/{collection}/{id}/delete", s.Command(s.remove))
	mux.Handle("GET /schedules", s.Page(of(schedule.Collection, s.showRecords)))
	mux.Handle("GET /schedules/{id}", s.Page(of(schedule.Collection, s.showRecord)))
	mux.Handle("POST /schedules/preview", s.Page(of(schedule.Collection, s.previewSchedule)))
	mux.Handle("POST /schedules/{id}/run", s.Command(s.runSchedule))
	mux.Handle("GET /projects", s.Page(of(project.Collection, s.showRecords)))
	mux.Handle("POST /projects", s.Command(s.addProject))
	mux.Handle("GET /messengers", s.Page(of(channel.Pairings, s.showRecords)))
	mux.Handle("POST /messengers/code", s.Page(of(channel.Pairings, s.showPairingCode)))
}

// of serves the page of a collection at a path that does not name it.
func of(collection string, show func(*http.Request, api.Caller) (templ.Component, error)) func(*http.Request,
	api.Caller) (templ.Component, error) {
	return func(r *http.Request, caller api.Caller) (templ.Component, error) {
		r.SetPathValue("collection", collection)
		return show(r, caller)
	}
}

func (s Settings) showIndex(*http.Request, api.Caller) (templ.Component, error) {
	return indexPage(grouped(s.Records.Collections.Forms())), nil
}

// maxRecords is the number of records that a page shows.
const maxRecords = 200

var newest = query.Query{Sort: "-created", PerPage: maxRecords}

// view is the records of a collection that an account may list, at one moment.
type view struct {
	form      records.Form
	records   []query.Record
	related   map[string][]site.Option   // by collection: what relations can point to
	changes   map[string]proposal.Stored // proposals and sealed procedures, by record
	servers   map[string]routes.MCPState // how MCP servers work, by record
	models    []string                   // that a text can name
	more      bool                       // there are more records than are shown
	providers []model.KnownProvider      // whose keys a form stores
	account   string                     // that sees the page
	draft     func(field string) string  // what a person wrote in the form of a new record, nil for nothing
	schedule  *scheduleView              // what one schedule does, or the draft of one
	pairing   *pairingView               // how messengers are paired
	projects  *projectsView              // of projects
}

func (s Settings) showRecords(r *http.Request, caller api.Caller) (templ.Component, error) {
	v, err := s.read(r, caller)
	if v.projects != nil {
		return projectsPage(v), err
	}
	return recordsPage(caller, v), err
}

// showRecord shows one record, and what is known of it.
func (s Settings) showRecord(r *http.Request, caller api.Caller) (templ.Component, error) {
	v, err := s.read(r, caller)
	if err == nil && v.form.Name == schedule.Collection {
		v.schedule, err = s.scheduleOf(r.Context(), v.records[0].ID())
	}
	if err == nil && v.projects != nil {
		return projectPage(v), nil
	}
	return recordPage(v), err
}

// read reads the records of the collection that a path names, or the record that it names.
func (s Settings) read(r *http.Request, caller api.Caller) (v view, err error) {
	if v.form, err = s.formOf(r); err != nil {
		return v, err
	}
	v.related, v.account, v.providers = map[string][]site.Option{}, caller.Account, s.Records.ProviderKeys.Known
	if v.changes, err = s.proposed(r.Context(), v.form.Name); err != nil {
		return v, err
	}
	if v.form.Name == mcpserver.Collection {
		if v.servers, err = s.Agents.Servers().All(r.Context()); err != nil {
			return v, err
		}
	}
	if v.form.Name == project.Collection {
		if v.projects, err = s.projectsFor(r.Context(), caller); err != nil {
			return v, err
		}
	}
	if id := r.PathValue("id"); id != "" {
		found, err := s.API.Find(r.Context(), caller, v.form.Name, id)
		if err != nil {
			return v, err
		}
		v.records = []query.Record{found}
	}
	return v, s.API.SlowView(r.Context(), caller.Key(), func(db dbx.Builder, _ uint64) error {
		return s.addRows(r.Context(), db, caller, &v)
	})
}

// addRows adds the records, if there are none, and what their forms and pages need of others.
func (s Settings) addRows(ctx context.Context, db dbx.Builder, caller api.Caller, v *view) (err error) {
	if v.records == nil {
		if v.records, err = s.List(ctx, db, caller, v.form.Name, newest); err != nil {
			return err
		}
		v.more = len(v.records) == maxRecords
	}
	for _, f := range slices.Concat(v.form.Fields, v.form.Fixed) {
		if f.Kind != record.Relation || v.related[f.Relation] != nil {
			continue
		}
		all, err := s.List(ctx, db, caller, f.Relation, newest)
		if err != nil {
			return err
		}
		v.related[f.Relation] = []site.Option{}
		for _, r := range all {
			v.related[f.Relation] = append(v.related[f.Relation], site.Option{Value: r.ID(), Text: nameOf(r)})
		}
		if f.Relation == channel.Collection && v.form.Name == channel.Pairings {
			v.pairing = &pairingView{channels: all}
		}
	}
	models, err := timeline.ModelsOf(ctx, db, "")
	v.models = models.All
	return err
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

// titleOf names a record in the list. A rule is named with its action and with the chat, agent or
// project that it is for.
func (v view) titleOf(r query.Record) string {
	if v.form.Name != rule.ToolPermissions {
		return nameOf(r)
	}
	scope := "every chat"
	for _, f := range v.form.Fields {
		if id := r.Text(f.Name); id != "" && slices.Contains([]string{"chat", "agent", "project"}, f.Name) {
			scope = f.Name + " " + v.shownText(f, id)
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

// formOf returns the form of the collection of the settings that a path names.
func (s Settings) formOf(r *http.Request) (records.Form, error) {
	form, found := s.Records.Collections.FormOf(r.PathValue("collection"))
	if !found || form.Title == "" {
		return form, api.NotFound()
	}
	return form, nil
}

func (s Settings) create(_ http.ResponseWriter, r *http.Request, caller api.Caller) (string, error) {
	form, err := s.formOf(r)
	if err != nil {
		return "", err
	}
	fields, err := s.fieldsIn(r, form.Name, func(f record.Field) string { return "" })
	if err != nil {
		return "", err
	}
	_, err = s.Records.Create(r.Context(), caller, form.Name, fields)
	return pagePath(form.Name), err
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
	form, err := s.formOf(r)
	if err != nil {
		return "", err
	}
	now, err := s.API.Find(r.Context(), caller, form.Name, r.PathValue("id"))
	if err != nil {
		return "", err
	}
	fields, err := s.fieldsIn(r, form.Name, func(f record.Field) string { return formText(f, now) })
	if err != nil || len(fields) == 0 {
		return pagePath(form.Name), err
	}
	if r.PostForm.Has(record.ShownDefinition) {
		fields[record.ShownDefinition] = site.Field(r, record.ShownDefinition)
	}
	return pagePath(form.Name), s.Records.Update(r.Context(), caller, form.Name, r.PathValue("id"), fields)
}

func (s Settings) remove(_ http.ResponseWriter, r *http.Request, caller api.Caller) (string, error) {
	form, err := s.formOf(r)
	if err != nil {
		return "", err
	}
	return pagePath(form.Name), s.Records.Delete(r.Context(), caller, form.Name, r.PathValue("id"))
}

func path(collection string) string { return "/settings/" + url.PathEscape(collection) }

// pagePath is the address of the page of a collection.
func pagePath(collection string) string {
	switch collection {
	case schedule.Collection:
		return "/schedules"
	case channel.Pairings:
		return "/messengers"
	case project.Collection:
		return "/projects"
	}
	return path(collection)
}

func recordPath(collection, id string) string { return path(collection) + "/" + url.PathEscape(id) }

// fieldsOf returns the labels and texts of the fields of a read-only record.
func (v view) fieldsOf(r query.Record) (all [][2]string) {
	for _, name := range r.Names() {
		if text := fieldText(r, name); text != "" {
			f := record.Field{Name: name}
			if i := slices.IndexFunc(v.form.Fixed, func(f record.Field) bool { return f.Name == name }); i >= 0 {
				f = v.form.Fixed[i]
			}
			all = append(all, [2]string{fieldLabel(f), v.shownText(f, text)})
		}
	}
	return all
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

// shownText returns what a field shows: the name of a related record, or else the value.
func (v view) shownText(f record.Field, value string) string {
	for _, one := range v.related[f.Relation] {
		if f.Kind == record.Relation && one.Value == value {
			return one.Text
		}
	}
	return value
}

// stateOf returns the status of a record: whether an MCP server works, or when a schedule is due.
func (v view) stateOf(r query.Record) string {
	if server, ok := v.servers[r.ID()]; ok {
		return server.State
	}
	if v.form.Name == schedule.Collection {
		return scheduleState(r)
	}
	if v.form.Name == channel.Pairings {
		return pairingState(r, time.Now())
	}
	return fieldText(r, "status")
}

// callState says what became of a call.
func callState(c routes.MCPCall) string {
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
