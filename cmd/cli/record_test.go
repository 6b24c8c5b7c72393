package cli_test

import (
	"bytes"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/matryer/is"

	"pocketcoder/cmd/cli"
	"pocketcoder/events/secret"
	"pocketcoder/handlers/record"
	"pocketcoder/ops/expect"
	"pocketcoder/web/webtest"
)

// A type of records is declared once: its command follows from it.
func TestATypeOfRecordsHasACommand(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	everybody := record.Rules(record.Accounts, record.Accounts, record.Accounts, record.Accounts, record.Accounts)
	things := record.Type{Name: "things", Command: "thing", Title: "Things", About: "of a test", Access: everybody,
		Secret: record.SecretStorage{Field: "token", Prefix: "thing", Source: secret.Channels},
		Fields: []record.Field{{Name: "name", Kind: record.Text, Label: "Name of the thing", Required: true},
			{Name: "size", Kind: record.Number, Label: "Size of the thing", Unit: "metres"},
			{Name: "on", Kind: record.Bool, Label: "Enabled", Switch: true}, {Name: "until", Kind: record.Date, Label: "Ends"},
			{Name: "owner", Kind: record.Relation, Relation: "users", Label: "Owner"},
			{Name: "words", Kind: record.JSON, Texts: true, Label: "Words"},
			{Name: "edges", Kind: record.JSON, Label: "Edges", Parts: []record.Field{{Name: "left", Kind: record.Text},
				{Name: "right_side", Kind: record.Number}}},
			{Name: "keys", Kind: record.JSON, Pairs: true, Label: "Keys"},
			{Name: "token", Kind: record.Secret, Label: "Token"}, {Name: "seen", Kind: record.Text, ReadOnly: true},
			{Name: "inner", Kind: record.Text, ReadOnly: true, Hidden: true}}}
	s := webtest.NewSystemWith(t, []record.Type{things})
	_, token := s.User(t, "root", "admin")
	server := httptest.NewServer(s.Web.Routes())
	t.Cleanup(server.Close)
	home := t.TempDir()
	run := func(stdin string, args ...string) (string, error) {
		var out bytes.Buffer
		env := cli.Environment{Stdin: strings.NewReader(stdin), Stdout: &out, Stderr: &out, Getenv: func(name string) string {
			return map[string]string{"HOME": home, "POCKETCODER_SERVER": server.URL, "POCKETCODER_TOKEN": token}[name]
		}}
		err := cli.RecordCommands([]record.Type{things})["thing"](t.Context(), env, args)
		return out.String(), err
	}
	must := func(stdin string, args ...string) string {
		t.Helper()
		out, err := run(stdin, args...)
		is.NoErr(err)
		return strings.Join(strings.Fields(out), " ")
	}
	help, _ := run("", "-h")
	for _, want := range []string{"Things: of a test", "thing enable NAME", "-size number",
		"set: Size of the thing (number, in metres)", "-owner email", "-right-side", "Token (read from stdin)"} {
		expect.Contains(t, help, want)
	}
	expect.Lacks(t, help, "-seen")

	id := must("kR7wq2xZ9vJh4-8231\n", "set", "door", "--size", "2", "--owner", "root@example.org", "--until", "1h",
		"--words", "a b", "--words", "c", "--left", "x", "--right-side", "3")
	stored, err := s.Records.Secret(t.Context(), "things", id)
	is.NoErr(err)
	is.Equal(stored, "kR7wq2xZ9vJh4-8231")
	must("", "set", "door", "--left", "", "--size", "2.5")
	must("A=1\n\nB = 2=3\n", "set", "door", "--keys") // other users of the machine see arguments
	must("", "disable", "door")
	shown := must("", "show", "door")
	for _, want := range []string{"Name of the thing door", "Size of the thing 2.5", "Enabled no",
		"Owner root@example.org", "Words a b, c", `Edges {"right_side":3}`, `Keys {"A":"1","B":"2=3"}`, "Ends 20"} {
		expect.Contains(t, shown, want)
	}
	expect.Contains(t, must("", "show", id, "--json"), `"size": 2.5`)
	must("", "enable", id)
	list := must("", "list")
	expect.Contains(t, list, "ID NAME SIZE ON UNTIL OWNER WORDS")
	expect.Contains(t, list, id+" door 2.5 yes")
	must("", "delete", "door")
	expect.Contains(t, must("", "list"), "no things; see: pocketcoder thing -h")
	for want, args := range map[string][]string{
		`there is no "paint"; want delete, disable, enable, list, set, show`: {"paint"},
		"wrong number of arguments":        {"delete"},
		`size: must be a number, not "x"`:  {"set", "gate", "--size", "x"},
		`unexpected argument "A=9"`:        {"set", "door", "--keys", "A=9"},
		"there is no account eve@example.": {"set", "gate", "--owner", "eve@example.org"},
	} {
		out, err := run("kR7wq2xZ9vJh4-8231\n", args...)
		is.True(err != nil)
		expect.Contains(t, out+err.Error(), want)
	}
	_, err = run("", "show", "door")
	is.True(err != nil)
	expect.Contains(t, err.Error(), `there is no thing "door"`)
}
