package api

import (
	"maps"
	"reflect"
	"regexp"
	"strings"

	"pocketcoder/handlers/account"
	"pocketcoder/web/query"
)

// Document describes every route. It has only the properties that we use.
type Document struct {
	OpenAPI    string                          `json:"openapi"`
	Info       Info                            `json:"info"`
	Tags       []Tag                           `json:"tags"`
	Paths      map[string]map[string]Operation `json:"paths"` // by path, then by method in lower case
	Components Components                      `json:"components"`
}

type Info struct {
	Title       string `json:"title"`
	Version     string `json:"version"`
	Description string `json:"description"`
}

// Tag is the name of a group of operations.
type Tag struct {
	Name string `json:"name"`
}

type Operation struct {
	ID         string                `json:"operationId"`
	Tags       []string              `json:"tags"`
	Summary    string                `json:"summary"`
	Access     string                `json:"x-access"` // one of the constants below
	Security   []map[string][]string `json:"security"`
	Parameters []Parameter           `json:"parameters,omitempty"`
	Body       *Body                 `json:"requestBody,omitempty"`
	Responses  map[string]Response   `json:"responses"` // by status
}

// Parameter is a part of the path, of the query, or a header.
type Parameter struct {
	Name        string `json:"name"`
	In          string `json:"in"`
	Required    bool   `json:"required,omitempty"`
	Description string `json:"description,omitempty"`
	Schema      Form   `json:"schema"`
}

type Body struct {
	Required bool             `json:"required"`
	Content  map[string]Media `json:"content"`
}

// Response describes an answer, or refers to a description.
type Response struct {
	Ref         string           `json:"$ref,omitempty"`
	Description string           `json:"description,omitempty"`
	Content     map[string]Media `json:"content,omitempty"`
}

// Media is the form of a body of one media type.
type Media struct {
	Schema Form `json:"schema"`
}

// Components are the parts that operations refer to by name.
type Components struct {
	Schemas   map[string]Form           `json:"schemas"`
	Responses map[string]Response       `json:"responses"`
	Security  map[string]SecurityScheme `json:"securitySchemes"`
}

type SecurityScheme struct {
	Type         string `json:"type"`
	Description  string `json:"description"`
	Name         string `json:"name,omitempty"`
	In           string `json:"in,omitempty"`
	Scheme       string `json:"scheme,omitempty"`
	BearerFormat string `json:"bearerFormat,omitempty"`
}

// Values of Access: which callers may use a route.
const (
	accessPublic  = "public"
	accessAccount = "account"
	accessStaff   = "staff" // agents and administrators
	accessAdmin   = "admin"
)

// Param is a parameter of the query, or a header.
type Param struct {
	Name, About string
	Integer     bool
	Header      bool
}

// AnyRecord stands for a record of any collection in the type of a body.
type AnyRecord struct {
	ID             string         `json:"id"`
	CollectionID   string         `json:"collectionId"`
	CollectionName string         `json:"collectionName"`
	Created        string         `json:"created"` // 2006-01-02 15:04:05.000Z
	Updated        string         `json:"updated"` // moves forward with every change
	Expand         map[string]any `json:"expand,omitempty"`
}

// describe returns the description of routes.
func describe(catalogue query.Catalogue, routes []Route) Document {
	f := &forms{named: map[string]Form{}, types: map[string]reflect.Type{}}
	f.addCollections(catalogue)
	d := Document{
		OpenAPI: "3.1.1",
		Info: Info{Title: "PocketCoder", Version: "1",
			Description: "The records API and realtime as PocketBase's clients speak them, event streams that resume, and the system's own routes."},
		Paths: map[string]map[string]Operation{},
	}
	for _, r := range routes {
		maps.Copy(f.named, r.Forms)
		o := f.operation(r, catalogue)
		path := openPath(r.Path)
		if d.Paths[path] == nil {
			d.Paths[path] = map[string]Operation{}
		}
		d.Paths[path][strings.ToLower(r.method())] = o
	}
	for _, name := range headings {
		d.Tags = append(d.Tags, Tag{name})
	}
	d.Components = Components{
		Schemas:   f.named,
		Responses: map[string]Response{"Problem": {Description: "The request failed. The error names the fields at fault.", Content: f.json(Problem{})}},
		Security: map[string]SecurityScheme{
			"token":  {Type: "apiKey", In: "header", Name: "Authorization", Description: "The token of a login, as it is."},
			"bearer": {Type: "http", Scheme: "bearer", BearerFormat: "JWT", Description: "The same after Bearer."},
		},
	}
	return d
}

func (f *forms) operation(r Route, catalogue query.Catalogue) Operation {
	o := Operation{ID: operationID(r), Tags: []string{heading(r.Path)}, Summary: r.About, Access: r.access(),
		Security: []map[string][]string{}}
	if o.Access != accessPublic {
		o.Security = append(o.Security, map[string][]string{"token": {}}, map[string][]string{"bearer": {}})
	}
	for _, wildcard := range wildcards.FindAllStringSubmatch(r.Path, -1) {
		o.Parameters = append(o.Parameters, pathParameter(r.Path, wildcard[1], wildcard[2] != "", catalogue))
	}
	o.Responses = map[string]Response{"default": {Ref: "#/components/responses/Problem"}}
	for _, p := range r.Query {
		o.Parameters = append(o.Parameters, p.described())
		if p.Name == "Range" {
			o.Responses["206"] = Response{Description: "The part that was asked for.", Content: f.answer(r)}
		}
	}
	if r.Body != nil {
		content := f.body(r)
		form := Components{Schemas: f.named}.Resolve(content[jsonMedia].Schema)
		o.Body = &Body{Required: len(form.Required)+len(form.AnyOf) > 0, Content: content}
	}
	status, text := "200", "It worked."
	if r.Answer == nil && r.Media == "" {
		status, text = "204", "It worked, and there is nothing to say."
	}
	o.Responses[status] = Response{Description: text, Content: f.answer(r)}
	return o
}

const jsonMedia = "application/json"

func (f *forms) json(value any) map[string]Media {
	return map[string]Media{jsonMedia: {f.of(reflect.TypeOf(value))}}
}

// body is the form of a route's request.
func (f *forms) body(r Route) map[string]Media {
	if form, ok := r.Body.(Form); ok {
		return map[string]Media{jsonMedia: {form}}
	}
	return f.json(r.Body)
}

func (f *forms) answer(r Route) map[string]Media {
	switch {
	case r.Media != "":
		return map[string]Media{r.Media: {Form{Type: "string"}}}
	case r.Answer == nil:
		return nil
	}
	return f.json(r.Answer)
}

// wildcards are the parts of a pattern that stand for something, as net/http writes them.
var wildcards = regexp.MustCompile(`\{(\w+)(\.\.\.)?\}`)

// openPath is a pattern's path as OpenAPI writes it, which knows no wildcard for several segments.
func openPath(pattern string) string { return wildcards.ReplaceAllString(pattern, "{$1}") }

func pathParameter(path, name string, several bool, catalogue query.Catalogue) Parameter {
	p := Parameter{Name: name, In: "path", Required: true, Schema: Form{Type: "string"}}
	switch {
	case several:
		p.Description = "with its slashes as they are"
	case name == "collection" && strings.Contains(path, "/auth-"):
		p.Schema.Enum = []string{account.Users, account.Superusers}
	case name == "collection":
		p.Schema.Enum = collectionNames(catalogue...)
	}
	return p
}

func (p Param) described() Parameter {
	d := Parameter{Name: p.Name, In: "query", Description: p.About, Schema: Form{Type: "string"}}
	if p.Integer {
		d.Schema.Type = "integer"
	}
	if p.Header {
		d.In = "header"
	}
	return d
}

// operationID is the method and the words of the path, such as getChatsIdEvents.
func operationID(r Route) string {
	id := strings.ToLower(r.method())
	for _, word := range strings.FieldsFunc(strings.TrimPrefix(r.Path, "/api/"), func(c rune) bool {
		return strings.ContainsRune("/{}._-", c)
	}) {
		id += strings.ToUpper(word[:1]) + word[1:]
	}
	return id
}

// headings are the groups of routes, in the order in which they are shown.
var headings = []string{
	"System", "Accounts", "Records", "Streams", "Executions", "Permissions", "Workspace", "Notifications", "Chats",
}

// heading returns the group of a route: the first row of the table with a word of the path.
func heading(path string) string {
	for _, h := range []struct{ word, name string }{
		{"/auth-", "Accounts"}, {"/setup", "Accounts"}, {"/sessions", "Accounts"}, {"/ssh_keys", "Accounts"},
		{"/policy", "Permissions"}, {"/push", "Notifications"}, {"/act/", "Notifications"},
		{"/collections", "Records"}, {"/agents", "Records"}, {"/batch", "Records"},
		{"/realtime", "Streams"}, {"/events", "Streams"}, {"/replay", "Streams"}, {"/executions", "Executions"}, {"/ports", "Executions"},
		{"/permission", "Permissions"},
		{"/pocketcoder/chats", "Chats"}, {"/artifact", "Workspace"}, {"/files", "Workspace"},
	} {
		if strings.Contains(path, h.word) {
			return h.name
		}
	}
	return "System"
}
