package cli_test

import (
	"bytes"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/matryer/is"

	"pocketcoder/cmd/cli"
	"pocketcoder/handlers/project"
	"pocketcoder/handlers/recordtype"
	"pocketcoder/ops/expect"
	"pocketcoder/web/webtest"
)

func TestProjectsAndTheirMembersOnTheCommandLine(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	s := webtest.NewSystem(t)
	_, root := s.User(t, "root", "admin")
	_, ann := s.User(t, "ann", "user")
	s.User(t, "bob", "user")
	_, err := project.Ensure(t.Context(), s.Records, project.Project{ID: "app1", Name: "app", Directory: "/app"})
	is.NoErr(err)
	last, err := s.Log.Last(t.Context())
	is.NoErr(err)
	is.NoErr(s.Model.Wait(t.Context(), last))
	server := httptest.NewServer(s.Web.Routes())
	t.Cleanup(server.Close)
	home := t.TempDir()
	run := func(token string, args ...string) (string, error) {
		var out bytes.Buffer
		env := cli.Environment{Stdin: strings.NewReader(""), Stdout: &out, Stderr: &out, Getenv: func(name string) string {
			return map[string]string{"HOME": home, "POCKETCODER_SERVER": server.URL, "POCKETCODER_TOKEN": token}[name]
		}}
		err := cli.RecordCommands(recordtype.All(recordtype.Machine{}), cli.Projects)["project"](t.Context(), env, args)
		return strings.Join(strings.Fields(out.String()), " "), err
	}
	must := func(token string, args ...string) string {
		t.Helper()
		out, err := run(token, args...)
		is.NoErr(err)
		return out
	}
	expect.Contains(t, must(root, "show", "workspace"), s.Workspace)
	must(root, "members", "app", "--add", "ann@example.org", "--role", "owner")
	is.Equal(must(root, "members", "app1"), "ACCOUNT ROLE ann@example.org owner")
	must(ann, "members", "app", "--add", "bob@example.org")
	must(ann, "members", "app", "--add", "bob@example.org", "--role", "viewer") // changes the role
	is.Equal(must(ann, "members", "app"), "ACCOUNT ROLE ann@example.org owner bob@example.org viewer")
	must(ann, "set", "app", "--everyone", "viewer")
	expect.Contains(t, must(ann, "show", "app"), "Accounts that are no members viewer")
	must(ann, "members", "app", "--remove", "bob@example.org")
	is.Equal(must(ann, "members", "app"), "ACCOUNT ROLE ann@example.org owner")
	_, err = run(ann, "members", "app", "--remove", "bob@example.org")
	is.True(err != nil)
	out, err := run(ann, "members", "app", "--add", "nobody@example.org")
	is.True(err != nil)
	expect.Contains(t, out, "no account with the email")
	_, err = run(ann, "remove", "app")
	is.True(err != nil) // only administrators
	_, err = run(root, "remove", "workspace")
	is.True(err != nil)
	expect.Contains(t, err.Error(), "cannot be removed")
	must(root, "remove", "app")
	expect.Lacks(t, must(root, "list"), "app1")
}
