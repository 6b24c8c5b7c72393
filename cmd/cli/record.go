package cli

import (
	"bufio"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"time"
	"unicode"

	"pocketcoder/cmd/client"
	"pocketcoder/cmd/console/render"
	"pocketcoder/events"
	"pocketcoder/handlers"
	"pocketcoder/handlers/policy/display"
	"pocketcoder/handlers/record"
)

// Command is a command of the program.
type Command = func(context.Context, Environment, []string) error

// Group is a command on the records of some types, such as budget. Its verbs, its flags and its help follow from the
// types. The other fields add what only this command has.
type Group struct {
	Name     string
	Types    []record.Type     // RecordCommands sets them; verbs without COLLECTION/ID concern the first
	Usage    string            // text of -h about the group's own verbs, with examples
	Former   map[string]string // verbs by their former names
	Flags    map[string]string // names of flags by field, if they are not those of the fields
	Default  string            // verb if the arguments name none; empty to require one
	NoCreate bool              // set changes records, and creates none
	Created  string            // format of the message about a new record, for its name; empty to print its id
	// Own returns the group's own verbs. They replace verbs of the types with the same name. Own may add flags.
	Own func(*Records, *flag.FlagSet) map[string]Verb
	// Separate are verbs with flags of their own.
	Separate map[string]Command
	// Complete completes the fields that a person sets; nil if nothing follows from them.
	Complete func(set map[string]any, isNew bool)
	// Stored returns a pointer to a list as --json prints it; nil for a list with all fields.
	Stored func() any
}

// RecordCommands returns the commands on the records of all types, by name: see GroupsOf.
func RecordCommands(types []record.Type, groups ...Group) map[string]Command {
	all := map[string]Command{}
	for _, g := range GroupsOf(types, groups...) {
		all[g.Name] = g.run
	}
	return all
}

// GroupsOf returns the groups with their types. It adds a group for each command of a type that has none.
func GroupsOf(types []record.Type, groups ...Group) []Group {
	all := slices.Clone(groups)
	for _, t := range types {
		i := slices.IndexFunc(all, func(g Group) bool { return g.Name == t.CommandName() })
		if i < 0 {
			i, all = len(all), append(all, Group{Name: t.CommandName()})
		}
		all[i].Types = append(slices.Clone(all[i].Types), t)
	}
	return all
}

// Line describes the group in the help of the program.
func (g Group) Line() string {
	t := g.Types[0]
	if t.Title == "" {
		return cmp.Or(t.About, strings.ReplaceAll(t.Name, "_", " "))
	}
	return t.Title + ": " + t.About
}

// Records is one call of a Group.
type Records struct {
	*client.System
	Group
	Env    Environment
	AsJSON bool
	Given  map[string]string // texts of fields, by name
	names  map[string]map[string]string
}

// run is the command.
func (g Group) run(ctx context.Context, env Environment, args []string) error {
	if len(args) > 0 && g.Separate[args[0]] != nil {
		return g.Separate[args[0]](ctx, env, args[1:])
	}
	r := &Records{Group: g, Env: env, Given: map[string]string{}}
	fs := NewFlags(env, g.Name, "")
	own := map[string]Verb{}
	if g.Own != nil {
		own = g.Own(r, fs)
	}
	if _, adds := own["add"]; adds || g.Types[0].Create == nil {
		r.NoCreate = true
	}
	verbs := r.verbs(own)
	for name := range g.Separate {
		verbs[name] = Verb{}
	}
	setUsage(fs, r.usage(own, verbs))
	if _, replaced := own["set"]; !replaced {
		r.addFlags(fs, verbs)
	}
	at := ServerFlags(fs, env)
	fs.BoolVar(&r.AsJSON, "json", false, "print JSON")
	for former, now := range g.Former {
		verbs[former] = Former(verbs[now])
	}
	return RunVerb(ctx, env, fs, r.withDefault(args, verbs), at, verbs, func(s *client.System) { r.System = s })
}

// withDefault adds the default verb to arguments without a verb.
func (r *Records) withDefault(args []string, verbs map[string]Verb) []string {
	words := slices.DeleteFunc(slices.Clone(args), func(a string) bool { return strings.HasPrefix(a, "-") })
	if r.Default == "" || len(words) > 0 && (verbs[words[0]].run != nil || verbs[r.Default].least == 0) {
		return args
	}
	return append([]string{r.Default}, args...)
}

// verbs returns the verbs that the first type allows, and those of the group's own.
func (r *Records) verbs(own map[string]Verb) map[string]Verb {
	all, t := map[string]Verb{"list": Takes(0, 0, r.list), "show": r.takesOne(r.show)}, r.Types[0]
	if t.Update != nil && slices.ContainsFunc(t.Fields, record.Field.Settable) {
		all["set"] = r.takesOne(r.set)
		if !t.Named() {
			all["set"] = Verb{most: 1, check: r.check, run: r.set}
		}
		if _, ok := t.Switch(); ok {
			all["enable"], all["disable"] = r.takesOne(r.enable(true)), r.takesOne(r.enable(false))
		}
	}
	if t.Delete != nil {
		all["delete"] = r.takesOne(r.delete)
	}
	maps.Copy(all, own)
	return all
}

func (r *Records) takesOne(run func(context.Context, []string) error) Verb {
	return Verb{least: 1, most: 1, check: r.check, run: run}
}

// check refuses COLLECTION/ID with a collection of another command.
func (r *Records) check(args []string) error {
	if len(args) == 0 || len(r.Types) == 1 {
		return nil
	}
	_, _, err := r.split(args[0])
	return err
}

// split returns the type and the name or id that COLLECTION/ID means; without a collection the first type.
func (r *Records) split(name string) (record.Type, string, error) {
	collection, id, both := strings.Cut(name, "/")
	var all []string
	for _, t := range r.Types {
		if all = append(all, t.Name); both && t.Name == collection {
			return t, id, nil
		}
	}
	if both && len(r.Types) > 1 {
		return record.Type{}, "", fmt.Errorf("a record is named COLLECTION/ID; its collection is %s", strings.Join(all, ", "))
	}
	return r.Types[0], name, nil
}

// usage returns the text of -h.
func (r *Records) usage(own, verbs map[string]Verb) string {
	var to strings.Builder
	t, name := r.Types[0], "NAME"
	if !t.Named() || len(r.Types) > 1 {
		name = "ID"
	}
	fmt.Fprintf(&to, "pocketcoder %s: %s.\n\n", r.Group.Name, r.Line())
	set := "create it, or change the fields that the flags name"
	if r.NoCreate {
		set = "change the fields that the flags name"
	}
	enable, _ := t.Switch()
	for _, line := range [][2]string{{"list", "list them"}, {"show " + name, "print its fields"}, {"set " + name, set},
		{"enable " + name, fmt.Sprintf("set %q to yes; disable sets it to no", enable.Title())},
		{"delete " + name, "delete it"}} {
		verb, _, _ := strings.Cut(line[0], " ")
		if _, replaced := own[verb]; !replaced && verbs[verb].run != nil {
			fmt.Fprintf(&to, "  pocketcoder %-30s %s\n", r.Group.Name+" "+line[0], line[1])
		}
	}
	named := strings.Contains(to.String(), " NAME ")
	fmt.Fprint(&to, strings.TrimPrefix(r.Usage, "\n"))
	if named {
		fmt.Fprint(&to, "\nNAME is the name of a record or its id.\n")
	}
	fmt.Fprint(&to, "\nExit status: 0; 1 when it failed, 2 for wrong usage.\n")
	return to.String()
}

// addFlags adds a flag for each field that a person may set, and for each part of such a field.
func (r *Records) addFlags(fs *flag.FlagSet, verbs map[string]Verb) {
	by := "set: "
	if _, adds := verbs["add"]; adds {
		by = "add, set: "
	}
	for _, t := range r.Types {
		for _, f := range t.Fields {
			if f.Settable() && len(f.Parts) == 0 {
				r.addFlag(fs, cmp.Or(r.Flags[f.Name], f.Name), f.Name, by, f)
			}
			for _, part := range f.Parts {
				r.addFlag(fs, part.Name, f.PartName(part), by, part)
			}
		}
	}
}

func (r *Records) addFlag(fs *flag.FlagSet, name, given, by string, f record.Field) {
	set := func(text string) error {
		if before := r.Given[given]; f.Texts && before != "" {
			text = before + "\n" + text
		}
		r.Given[given] = text
		return nil
	}
	name = strings.ReplaceAll(name, "_", "-")
	switch {
	case fs.Lookup(name) != nil: // of another type
	case f.Kind == record.Bool || f.Kind == record.Secret || f.Pairs:
		fs.BoolFunc(name, by+flagHelp(f), set)
	default:
		fs.Func(name, by+flagHelp(f), set)
	}
}

// flagHelp describes the flag of a field. The word in backquotes stands for its value.
func flagHelp(f record.Field) string {
	value := "`" + string(f.Kind) + "`"
	switch {
	case f.Kind == record.Bool:
		return f.Title()
	case f.Kind == record.Secret:
		return f.Title() + " (read from stdin)"
	case f.Pairs: // which may be secret: other users of the machine see arguments
		return f.Title() + " (lines NAME=VALUE, read from stdin)"
	case f.Relation == "users":
		value = "`email`"
	case f.Kind == record.Relation:
		value = "`name` or id"
	case f.Kind == record.Date:
		value = "`time`, or a duration from now"
	case f.Kind == record.Select:
		value = "`" + strings.Join(f.Values, "|") + "`"
	case f.Texts:
		value = "`text`; may be repeated"
	case f.Unit != "":
		value += ", in " + f.Unit
	}
	help := fmt.Sprintf("%s (%s)", f.Title(), value)
	if f.Example != "" {
		help += "; for example " + f.Example
	}
	return help
}

// Fields returns the fields of a new record of the first type that the flags set.
func (r *Records) Fields(ctx context.Context) (map[string]any, error) {
	return r.fieldsOf(ctx, r.Types[0], nil)
}

// fieldsOf returns the fields that the flags set. before are those of the record, nil for a new one.
func (r *Records) fieldsOf(ctx context.Context, t record.Type, before record.Values) (map[string]any, error) {
	set, err := record.ParseTexts(t.Fields, func(f record.Field) string { return string(before.Value(f.Name)) },
		func(name, _ string) (string, bool) {
			text, given := r.Given[name]
			return text, given
		}, func(f record.Field, text string) (any, error) { return r.value(ctx, f, text) })
	if err != nil {
		return nil, err
	}
	if r.Complete != nil {
		r.Complete(set, before == nil)
	}
	return set, nil
}

func (r *Records) value(ctx context.Context, f record.Field, text string) (any, error) {
	switch {
	case f.Kind == record.Secret:
		return readSecret(r.Env)
	case f.Pairs:
		lines, err := io.ReadAll(r.Env.Stdin)
		if err != nil {
			return nil, fmt.Errorf("read %s: %w", f.Title(), err)
		}
		if text = strings.TrimSpace(string(lines)); text == "" {
			return nil, fmt.Errorf("%s: nothing on stdin; write lines NAME=VALUE there", f.Name)
		}
	case f.Kind == record.Relation:
		return r.related(ctx, f.Relation, text)
	case f.Kind == record.Date:
		if d, err := time.ParseDuration(text); err == nil {
			return events.FormatTime(time.Now().Add(d)), nil
		}
	}
	return f.Parse(text, r.Given["time_zone"])
}

// readSecret reads the first line of stdin.
func readSecret(env Environment) (string, error) {
	line, err := bufio.NewReader(env.Stdin).ReadString('\n')
	if err != nil && err != io.EOF {
		return "", fmt.Errorf("read the secret: %w", err)
	}
	if line = strings.TrimSpace(line); line == "" {
		return "", errors.New("the secret is missing: it is the first line of stdin")
	}
	return line, nil
}

// related returns the id of the record that a person names: an account by its email, others by their name.
func (r *Records) related(ctx context.Context, collection, name string) (string, error) {
	if name == "" {
		return "", nil
	}
	if collection == "chats" {
		_, err := r.FindChat(ctx, name)
		return name, err
	}
	for id, known := range r.namesOf(ctx, collection) {
		if id == name || strings.EqualFold(known, name) {
			return id, nil
		}
	}
	what := "record"
	if collection == "users" {
		what = "account"
	}
	return "", handlers.Refuse(handlers.NotFound, "there is no %s %s", what, display.OneLine(name, 60))
}

// namesOf returns the names of the records of a collection by their ids, as far as the caller may see them.
func (r *Records) namesOf(ctx context.Context, collection string) map[string]string {
	if known, ok := r.names[collection]; ok || collection == "chats" {
		return known
	}
	field := map[bool]string{true: "email", false: "name"}[collection == "users"]
	all, _ := client.List[map[string]string](ctx, r.System, collection, client.Select{Fields: "id," + field})
	names := map[string]string{}
	for _, one := range all {
		names[one["id"]] = one[field]
	}
	if r.names == nil {
		r.names = map[string]map[string]string{}
	}
	r.names[collection] = names
	return names
}

// selected selects the fields that clients see.
func selected(t record.Type, q client.Select) client.Select {
	names := []string{"id", "created", "updated"}
	for _, f := range t.Fields {
		if !f.Hidden && !f.Argument && f.Kind != record.Secret {
			names = append(names, f.Name)
		}
	}
	q.Fields = strings.Join(names, ",")
	return q
}

// FindAs returns the record that a person names.
func FindAs[T any](ctx context.Context, r *Records, name string) (v T, err error) {
	_, found, err := r.find(ctx, name)
	if err == nil {
		v, err = record.Read[T](found)
	}
	return v, err
}

// find returns the type and the fields of the record that a person names.
func (r *Records) find(ctx context.Context, name string) (record.Type, record.Values, error) {
	t, id, err := r.split(name)
	if err != nil {
		return t, nil, err
	}
	filter := fmt.Sprintf("id = %q", id)
	if t.Named() {
		filter = fmt.Sprintf("(%s || %s = %q)", filter, t.NameField(), id)
	}
	for _, unique := range t.Unique { // such as the account of a key for a provider
		f, _ := t.Field(unique)
		if text, given := r.Given[unique]; given && f.Kind == record.Relation {
			other, err := r.related(ctx, f.Relation, text)
			if err != nil {
				return t, nil, err
			}
			filter += fmt.Sprintf(" && %s = %q", unique, other)
		}
	}
	all, err := client.List[record.Values](ctx, r.System, t.Name,
		selected(t, client.Select{Filter: filter, Sort: "created,id"}))
	switch {
	case err != nil:
		return t, nil, err
	case len(all) == 0:
		return t, nil, handlers.Refuse(handlers.NotFound, "there is no %s %q; list them with: pocketcoder %[1]s list", r.Group.Name,
			display.OneLine(name, 60))
	case len(all) > 1:
		return t, nil, fmt.Errorf("%d records have the name %s; name one by its id: pocketcoder %s list",
			len(all), display.OneLine(name, 60), r.Group.Name)
	}
	return t, all[0], nil
}

// list lists the records of the first type.
func (r *Records) list(ctx context.Context, _ []string) error {
	t := r.Types[0]
	all, err := client.List[record.Values](ctx, r.System, t.Name, selected(t, client.Select{Sort: "updated,id"}))
	if err != nil {
		return err
	}
	if r.AsJSON {
		return r.printStored(all)
	}
	header, columns := "ID", t.Columns()
	for _, f := range columns {
		header += "\t" + strings.ToUpper(strings.ReplaceAll(f.Name, "_", " "))
	}
	empty := "no " + cmp.Or(lowerFirst(t.Title), "records")
	if t.Create != nil {
		empty += "; see: pocketcoder " + r.Group.Name + " -h"
	}
	return render.Table(r.Env.Stdout, all, empty, header, func(v record.Values) []string {
		row := []string{v.Text("id")}
		for _, f := range columns {
			row = append(row, cmp.Or(display.OneLine(r.text(ctx, f, v), 40), "-"))
		}
		return row
	})
}

// lowerFirst returns a title within a sentence. SSH stays as it is.
func lowerFirst(title string) string {
	if len(title) > 1 && unicode.IsUpper(rune(title[1])) {
		return title
	}
	return strings.ToLower(title[:min(1, len(title))]) + title[min(1, len(title)):]
}

// printStored prints records in the form that --json has.
func (r *Records) printStored(all []record.Values) error {
	if r.Stored == nil {
		return PrintJSON(r.Env.Stdout, all)
	}
	list := r.Stored()
	body, err := json.Marshal(all)
	if err == nil {
		err = json.Unmarshal(body, list)
	}
	if err != nil {
		return err
	}
	return PrintJSON(r.Env.Stdout, list)
}

// text returns the value of a field for a person.
func (r *Records) text(ctx context.Context, f record.Field, v record.Values) string {
	value := v.Value(f.Name)
	var text string
	var list []string
	switch {
	case f.Kind == record.Bool:
		return map[bool]string{true: "yes", false: "no"}[string(value) == "true"]
	case f.Texts && json.Unmarshal(value, &list) == nil:
		return strings.Join(list, ", ")
	case json.Unmarshal(value, &text) != nil:
		return string(value)
	case f.Kind == record.Date:
		return display.LocalTime(text)
	case f.Kind == record.Relation:
		return cmp.Or(r.namesOf(ctx, f.Relation)[text], text)
	}
	return text
}

func (r *Records) show(ctx context.Context, args []string) error {
	t, found, err := r.find(ctx, args[0])
	if err != nil {
		return err
	}
	if r.AsJSON {
		return PrintJSON(r.Env.Stdout, found)
	}
	line := func(name, text string) {
		if err == nil && text != "" {
			_, err = fmt.Fprintf(r.Env.Stdout, "%-24s %s\n", name, display.VisibleLine(text))
		}
	}
	line("ID", found.Text("id"))
	for _, f := range t.Fields {
		line(f.Title(), r.text(ctx, f, found))
	}
	return err
}

// set changes the record that a person names, or creates it.
func (r *Records) set(ctx context.Context, args []string) error {
	t, found, err := record.Type{}, record.Values(nil), error(nil)
	if len(args) > 0 {
		if t, found, err = r.find(ctx, args[0]); handlers.CodeOf(err) != handlers.NotFound && err != nil {
			return err
		}
	} else {
		t = r.Types[0]
	}
	if found == nil && r.NoCreate && err == nil {
		return handlers.Refuse(handlers.Invalid, "name a record; list them with: pocketcoder %s list", r.Group.Name)
	}
	if found == nil && r.NoCreate {
		return err
	}
	if found == nil {
		return r.create(ctx, t, args)
	}
	if len(r.Given) == 0 {
		return handlers.Refuse(handlers.Invalid, "name a field to change; see pocketcoder %s -h", r.Group.Name)
	}
	fields, err := r.fieldsOf(ctx, t, found)
	if err != nil {
		return err
	}
	return r.Update(ctx, t.Name, found.Text("id"), fields)
}

// create creates a record that is enabled. Its secret is on stdin.
func (r *Records) create(ctx context.Context, t record.Type, args []string) error {
	if f, ok := t.Field(t.Secret.Field); ok && f.Kind == record.Secret {
		r.Given[f.Name] = ""
	}
	set, err := r.fieldsOf(ctx, t, nil)
	if err != nil {
		return err
	}
	fields := maps.Clone(t.Defaults)
	if fields == nil {
		fields = map[string]any{}
	}
	maps.Copy(fields, set)
	if len(args) > 0 {
		fields[t.NameField()] = args[0]
	}
	if f, ok := t.Switch(); ok && r.Given[f.Name] == "" {
		fields[f.Name] = true
	}
	var made struct{ ID, Token string }
	if err := r.Send(ctx, "POST", "/api/collections/"+t.Name+"/records", fields, &made); err != nil {
		return err
	}
	if r.Created != "" {
		_, err = fmt.Fprintf(r.Env.Stdout, r.Created, args[0])
		return err
	}
	if made.Token != "" {
		fmt.Fprintln(r.Env.Stderr, "the token is shown only once:")
		made.ID = made.Token
	}
	_, err = fmt.Fprintln(r.Env.Stdout, made.ID)
	return err
}

// enable returns the verb that switches a record on or off.
func (r *Records) enable(on bool) func(context.Context, []string) error {
	return func(ctx context.Context, args []string) error {
		t, found, err := r.find(ctx, args[0])
		if err != nil {
			return err
		}
		f, _ := t.Switch()
		return r.Update(ctx, t.Name, found.Text("id"), map[string]any{f.Name: on})
	}
}

func (r *Records) delete(ctx context.Context, args []string) error {
	t, found, err := r.find(ctx, args[0])
	if err != nil {
		return err
	}
	return r.Delete(ctx, t.Name, found.Text("id"))
}
