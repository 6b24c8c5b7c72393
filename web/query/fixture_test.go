package query

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"fmt"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/matryer/is"
	"github.com/pocketbase/dbx"
	"modernc.org/sqlite"

	"pocketcoder/events"
	"pocketcoder/handlers/record"
	"pocketcoder/ops/expect"
)

const tables = `
CREATE TABLE users(id TEXT PRIMARY KEY, email TEXT NOT NULL, name TEXT NOT NULL, role TEXT NOT NULL, secret TEXT NOT NULL, favourite TEXT NOT NULL,
  created TEXT NOT NULL, updated TEXT NOT NULL, first_seq INTEGER NOT NULL, last_seq INTEGER NOT NULL, removed INTEGER NOT NULL) STRICT, WITHOUT ROWID;
CREATE TABLE chats(id TEXT PRIMARY KEY, title TEXT NOT NULL, "user" TEXT NOT NULL, archived INTEGER NOT NULL, n REAL NOT NULL,
  created TEXT NOT NULL, updated TEXT NOT NULL, first_seq INTEGER NOT NULL, last_seq INTEGER NOT NULL, removed INTEGER NOT NULL) STRICT, WITHOUT ROWID;
CREATE TABLE messages(id TEXT PRIMARY KEY, chat TEXT NOT NULL, role TEXT NOT NULL, status TEXT NOT NULL, error TEXT NOT NULL,
  created TEXT NOT NULL, updated TEXT NOT NULL, first_seq INTEGER NOT NULL, last_seq INTEGER NOT NULL, removed INTEGER NOT NULL) STRICT, WITHOUT ROWID;
CREATE INDEX messages_chat ON messages(chat, first_seq);
CREATE TABLE parts(id TEXT PRIMARY KEY, message TEXT NOT NULL, data TEXT NOT NULL) STRICT;
CREATE INDEX parts_message ON parts(message, id);
CREATE TABLE permissions(id TEXT PRIMARY KEY, chat TEXT NOT NULL, patterns TEXT NOT NULL, metadata TEXT NOT NULL, status TEXT NOT NULL,
  created TEXT NOT NULL, updated TEXT NOT NULL, first_seq INTEGER NOT NULL, last_seq INTEGER NOT NULL, removed INTEGER NOT NULL) STRICT, WITHOUT ROWID;
CREATE TABLE config(collection TEXT NOT NULL, record TEXT NOT NULL, fields TEXT NOT NULL,
  created TEXT NOT NULL, updated TEXT NOT NULL, first_seq INTEGER NOT NULL, last_seq INTEGER NOT NULL, removed INTEGER NOT NULL,
  PRIMARY KEY(collection, record)) STRICT, WITHOUT ROWID;
`

// content holds the rows of the tests. A row is created as many seconds after noon, 2026-03-04, as its first sequence.
// Messages come in pairs with the same time.
const content = `
INSERT INTO users VALUES
 ('ann','ann@x.org','Ann','user','s1','c1',at(1),at(1),1,1,0), ('bob','bob@x.org','Bob','user','s2','c3',at(2),at(2),2,2,0),
 ('root','root@x.org','Root','admin','s3','',at(3),at(3),3,3,0), ('bot','bot@x.org','Bot','agent','s4','',at(4),at(4),4,4,0);
INSERT INTO chats VALUES
 ('c1','Alpha 100%','ann',0,1.5,at(10),at(10),10,30,0), ('c2','beta_two','ann',1,2,at(11),at(11),11,31,0), ('c3','Gamma','bob',0,3,at(12),at(12),12,32,0),
 ('c4','O''Brien "quoted" \ back','',0,4,at(13),at(13),13,33,0), ('c5','gone','ann',0,5,at(14),at(14),14,34,1);
INSERT INTO messages VALUES
 ('m1','c1','user','delivered','',at(20),at(20),20,40,0), ('m2','c1','assistant','completed','',at(20),at(20),21,41,0),
 ('m3','c1','assistant','failed','{"name":"Boom","code":7}',at(22),at(22),22,42,0), ('m4','c2','user','delivered','',at(22),at(22),23,43,0),
 ('m5','c3','user','pending','',at(24),at(24),24,44,0), ('m6','c3','user','delivered','not json',at(24),at(24),25,45,0),
 ('m7','c4','user','delivered','',at(26),at(26),26,46,0), ('m8','c1','user','gone','',at(26),at(26),27,47,1);
INSERT INTO parts VALUES ('p1','m1','{"type":"text","text":"hello"}'), ('p2','m1','{"type":"text","text":"<b>bold</b> world"}'), ('p3','m2','{"type":"tool", "n": 2}');
INSERT INTO permissions VALUES
 ('q1','c1','["rm *","ls"]','{"command":"rm -rf","deep":{"a":[1,{"b":"x"}]},"n":10}','draft',at(50),at(50),50,50,0),
 ('q2','c1','[]','{"command":"ls","n":9,"flag":true,"none":null}','authorized',at(51),at(51),51,51,0),
 ('q3','c3','["cat"]','{"command":"cat"}','draft',at(52),at(52),52,52,0), ('q4','c2','"plain"','broken{','denied',at(53),at(53),53,53,0);
INSERT INTO config VALUES
 ('agents','a1','{"name":"poco","prompt":"p1","temperature":0.5,"on":true,"notes":{"k":[1, 2]}}',at(60),at(60),60,60,0),
 ('agents','a2','{"name":"other"}',at(61),at(61),61,61,0), ('agents','a3','{"name":"dead"}',at(62),at(62),62,62,1),
 ('prompts','p1','{"name":"main","body":"Do."}',at(63),at(63),63,63,0),
 ('docs','d1','{"title":"one","tags":["red","blue"],"readers":["ann","bob"],"owner":"ann"}',at(64),at(64),64,64,0),
 ('docs','d2','{"title":"two","tags":["red"],"readers":["ann"],"owner":"bob"}',at(65),at(65),65,65,0),
 ('docs','d3','{"title":"three","tags":[],"readers":[],"owner":"bob"}',at(66),at(66),66,66,0),
 ('keys','k1','{"user":"ann","value":"sesame"}',at(67),at(67),67,67,0), ('keys','k2','{"user":"bob","value":"mellon"}',at(68),at(68),68,68,0);
`

// noon is the current time of the tests.
var noon = time.Date(2026, 3, 4, 12, 0, 0, 0, time.UTC)

var (
	public        = record.Rule("")
	authed        = record.Rule(`@request.auth.id != ""`)
	ownerOnly     = record.Rule(`user = @request.auth.id || @request.auth.role = "admin"`)
	chatOwnerOnly = record.Rule(`chat.user = @request.auth.id || @request.auth.role = "admin"`)
	readerOnly    = record.Rule(`readers:each ?= @request.auth.id || owner = @request.auth.id`)
)

func column(name string, kind record.Kind) Field {
	return Field{Field: record.Field{Name: name, Kind: kind}}
}

func configTable(name string, rules record.Access, fields ...Field) Collection {
	for i, f := range fields {
		fields[i].SQL = "json_extract(t.fields,'$." + f.Name + "')"
		if f.Kind == record.JSON {
			fields[i].SQL = "t.fields -> '$." + f.Name + "'"
		}
	}
	return Collection{ID: "pbc_" + name, Name: name, Type: "base", Table: "config", Key: "t.record",
		Where: "t.collection='" + name + "'", Live: "NOT t.removed", Access: rules, Fields: fields}
}

func table(name string, rules record.Access, fields ...Field) Collection {
	return Collection{ID: "pbc_" + name, Name: name, Type: "base", Table: name, Live: "NOT t.removed",
		Access: rules, Fields: fields}
}

// reads counts how often the parts of a message were read.
var reads atomic.Int64

func testCatalogue() Catalogue {
	all := func(r *string) record.Access { return record.Access{List: r, View: r, Create: r, Update: r, Delete: r} }
	subagents := configTable("subagents", all(authed), Field{Field: record.Field{Name: "chat", Kind: record.Relation,
		Relation: "chats"}})
	subagents.Alias = "sandbox_agents"
	return Catalogue{
		table("users", all(record.Rule(`id = @request.auth.id || @request.auth.role = "admin"`)),
			column("email", record.Email), column("name", record.Text),
			Field{Field: record.Field{Name: "role", Kind: record.Select, Values: []string{"user", "agent", "admin"}}},
			Field{Field: record.Field{Name: "favourite", Kind: record.Relation, Relation: "chats", Nullable: true}}),
		table("chats", all(ownerOnly), column("title", record.Text),
			Field{Field: record.Field{Name: "user", Kind: record.Relation, Relation: "users"}},
			column("archived", record.Bool), column("n", record.Number)),
		table("messages", all(chatOwnerOnly), Field{Field: record.Field{Name: "chat", Kind: record.Relation, Relation: "chats"}},
			column("role", record.Text), column("status", record.Text),
			Field{Field: record.Field{Name: "parts", Kind: record.JSON},
				SQL: "(SELECT '['||group_concat(counted(data), ',' ORDER BY id)||']' FROM parts WHERE message = t.id)"},
			column("error", record.JSON)),
		table("permissions", all(chatOwnerOnly), Field{Field: record.Field{Name: "chat", Kind: record.Relation, Relation: "chats"}},
			column("patterns", record.JSON), column("metadata", record.JSON),
			column("status", record.Select)),
		configTable("agents", all(authed), column("name", record.Text),
			Field{Field: record.Field{Name: "prompt", Kind: record.Relation, Relation: "prompts"}},
			column("temperature", record.Number),
			column("on", record.Bool), column("notes", record.JSON)),
		configTable("prompts", record.Access{List: authed, View: public}, column("name", record.Text),
			column("body", record.Text)),
		configTable("docs", all(readerOnly), column("title", record.Text),
			column("tags", record.JSON), column("readers", record.JSON),
			Field{Field: record.Field{Name: "owner", Kind: record.Relation, Relation: "users"}}),
		configTable("keys", record.Access{}, Field{Field: record.Field{Name: "user", Kind: record.Relation, Relation: "users"}},
			column("value", record.Text)),
		subagents,
	}
}

func init() {
	sqlite.MustRegisterScalarFunction("counted", 1, func(_ *sqlite.FunctionContext, args []driver.Value) (driver.Value,
		error) {
		reads.Add(1)
		return args[0], nil
	})
}

// open makes a database with the content.
func open(t testing.TB) *dbx.DB {
	t.Helper()
	is := is.New(t)
	raw, err := sql.Open("sqlite", filepath.Join(expect.MemoryDir(t), "read.db")+"?_pragma=cache_size(-32000)")
	is.NoErr(err)
	t.Cleanup(func() { raw.Close() })
	raw.SetMaxOpenConns(1)
	_, err = raw.Exec(tables + times(content))
	is.NoErr(err)
	return dbx.NewFromDB(raw, "sqlite")
}

// times writes at(seconds) out.
func times(text string) string {
	for i := 100; i > 0; i-- {
		text = strings.ReplaceAll(text, fmt.Sprintf("at(%d)", i), "'"+at(i)+"'")
	}
	return text
}

func at(seconds int) string {
	return noon.Add(time.Duration(seconds) * time.Second).Format(events.TimeFormat)
}

// requestOf returns a request of a user, of a guest, or of a superuser.
func requestOf(who string) Request {
	r := Request{Now: noon}
	switch who {
	case "":
	case "super":
		r.Superuser = true
	default:
		role := map[string]string{"ann": "user", "bob": "user", "root": "admin", "bot": "agent"}[who]
		r.Auth = &Auth{ID: who, Email: who + "@x.org", Name: strings.ToUpper(who[:1]) + who[1:], Role: role,
			Collection: "users"}
	}
	return r
}

func get(t testing.TB, name string) Collection {
	t.Helper()
	c, ok := testCatalogue().Get(name)
	if !ok {
		t.Fatalf("no collection %s", name)
	}
	return c
}

func ids(list []Record) string {
	var all []string
	for _, r := range list {
		all = append(all, r.ID())
	}
	return strings.Join(all, " ")
}

// list returns a page of a collection.
func list(ctx context.Context, t testing.TB, db dbx.Builder, name string, req Request, q Query) (Page, error) {
	t.Helper()
	return List(ctx, db, testCatalogue(), get(t, name), req, q)
}
