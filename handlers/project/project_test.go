package project

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/matryer/is"

	"pocketcoder/events"
	"pocketcoder/events/eventstest"
	"pocketcoder/events/secret"
	"pocketcoder/handlers"
	"pocketcoder/handlers/account"
	"pocketcoder/handlers/record"
	"pocketcoder/ops/expect"
)

// system has the projects local, in which all accounts may work, and app. There ada is an owner, ben a member and vera
// a viewer. nora is no member of it, and root is an administrator.
type system struct {
	*testing.T
	Projects
	accounts map[string]string // ids by name
	below    string            // Places.Below
}

func newSystem(t *testing.T) *system {
	t.Helper()
	conn := eventstest.Conn(t, eventstest.Server(t, expect.MemoryDir(t)))
	l := eventstest.Open(t, conn)
	secrets, err := secret.Open(t.Context(), conn, 1)
	check(t, err)
	s := &system{T: t, accounts: map[string]string{}}
	s.Accounts, err = account.Open(t.Context(), l, secrets)
	check(t, err)
	s.Accounts.HashMemory = 64
	s.below, err = filepath.EvalSymlinks(t.TempDir())
	check(t, err)
	places := Places{Below: s.below, Check: func(directory string) error {
		if filepath.Base(directory) == "hidden" {
			return errors.New("it is for PocketCoder alone")
		}
		return nil
	}}
	s.Records = record.Open(l, places.Type(), MemberType)
	for name, role := range map[string]string{"ada": account.User, "ben": account.User, "vera": account.User,
		"nora": account.User, "bot": account.Agent, "root": account.Admin} {
		s.accounts[name], _, err = s.Accounts.CreateAccount(t.Context(), account.CreateAccount{
			Command: handlers.Command{Actor: events.ActorSystem}, Email: name + "@example.org", Role: role,
			Password: "correct horse battery"})
		check(t, err)
	}
	_, err = Ensure(t.Context(), s.Records, Project{ID: events.DefaultEngine, Name: "first", Directory: "/w",
		Everyone: Member})
	check(t, err)
	_, err = Ensure(t.Context(), s.Records, Project{ID: "app", Name: "app", Directory: "/app"})
	check(t, err)
	for name, role := range map[string]string{"ada": Owner, "ben": Member, "vera": Viewer} {
		check(t, s.addMember("root", name, role))
	}
	return s
}

func check(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// by returns the command of an account, and its role.
func (s *system) by(name string) (handlers.Command, string) {
	role := map[string]string{"root": account.Admin, "bot": account.Agent}[name]
	if role == "" {
		role = account.User
	}
	return handlers.Command{Actor: events.UserActor(s.accounts[name])}, role
}

func (s *system) save(by, collection, id string, set map[string]any, isNew bool) error {
	command, role := s.by(by)
	_, _, err := s.Records.Save(s.Context(), record.Save{Command: command, Role: role, Collection: collection, Record: id,
		Set: record.Fields(set), New: isNew})
	return err
}

func (s *system) addMember(by, name, role string) error {
	return s.save(by, Members, "m-"+name, map[string]any{"project": "app", "user": s.accounts[name], "role": role}, true)
}

func (s *system) remove(by, collection, id string) error {
	command, role := s.by(by)
	_, err := s.Records.Delete(s.Context(), record.Delete{Command: command, Role: role, Collection: collection,
		Record: id})
	return err
}

// refused fails the test unless the error is a refusal with a text.
func refused(t testing.TB, err error, text string) {
	t.Helper()
	if handlers.CodeOf(err) == "" || !strings.Contains(err.Error(), text) {
		t.Errorf("want the refusal %q, got %v", text, err)
	}
}

func TestOnlyOwnersAndAdministratorsChangeAProjectAndItsMembers(t *testing.T) {
	t.Parallel()
	const onlyOwners = "Only administrators and owners"
	for _, by := range []string{"ben", "vera", "nora", "bot"} {
		s := newSystem(t)
		refused(t, s.save(by, Collection, "app", map[string]any{"name": "mine"}, false), onlyOwners)
		refused(t, s.addMember(by, "nora", Owner), onlyOwners)
		refused(t, s.save(by, Members, "m-ben", map[string]any{"role": Owner}, false), onlyOwners)
		refused(t, s.remove(by, Members, "m-ada"), onlyOwners)
		refused(t, s.remove(by, Collection, "app"), "Only administrators")
	}
	for _, by := range []string{"ada", "root"} {
		s := newSystem(t)
		check(t, s.save(by, Collection, "app", map[string]any{"name": "mine", "everyone": Viewer}, false))
		check(t, s.addMember(by, "nora", Member))
		check(t, s.save(by, Members, "m-ben", map[string]any{"role": Owner}, false))
		check(t, s.remove(by, Members, "m-ben"))
		check(t, s.remove(by, Members, "m-ada")) // administrators remain
	}
}

func TestAnOwnerOfAProjectDoesNotChangeAnother(t *testing.T) {
	t.Parallel()
	s := newSystem(t)
	refused(t, s.save("ada", Collection, events.DefaultEngine, map[string]any{"name": "mine"}, false), "Only administrators and owners")
	refused(t, s.save("ada", Members, "other", map[string]any{"project": events.DefaultEngine, "user": s.accounts["nora"],
		"role": Viewer}, true), "Only administrators and owners")
	refused(t, s.save("ada", Members, "m-ben", map[string]any{"project": events.DefaultEngine}, false), "cannot change")
}

func TestAMemberIsOfAProjectAndAnAccountThatExist(t *testing.T) {
	t.Parallel()
	s := newSystem(t)
	member := func(project, user, role string) error {
		return s.save("root", Members, "new", map[string]any{"project": project, "user": user, "role": role}, true)
	}
	refused(t, member("app", "nobody", Member), "There is no account")
	refused(t, member("other", s.accounts["nora"], Member), "There is no project")
	refused(t, member("app", "", Member), "Cannot be blank")
	refused(t, s.save("ada", Members, "new", map[string]any{"project": "app", "email": "nobody@example.org"}, true),
		"no account with the email")
	check(t, s.save("ada", Members, "by-email", map[string]any{"project": "app", "email": "Bot@example.org"}, true))
	err := member("app", s.accounts["nora"], "king")
	if err == nil || !strings.Contains(err.Error(), "Must be one of") {
		t.Errorf("want an unknown role to be refused, got %v", err)
	}
	refused(t, member("app", s.accounts["ben"], Owner), "project")
	_, err = s.Accounts.DeleteAccount(t.Context(), account.DeleteAccount{Command: handlers.Command{Actor: events.ActorSystem},
		Account: s.accounts["nora"]})
	check(t, err)
	refused(t, member("app", s.accounts["nora"], Member), "There is no account")
}

func TestANewProjectHasTheRemoteOfItsRepository(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	s := newSystem(t)
	for name, given := range map[string]string{"read": "", "named": "https://example.org/given"} {
		expect.MakeRepository(t, s.below+"/"+name)
		expect.WriteFile(t, s.below+"/"+name+"/.git/config",
			"[remote \"origin\"]\n\turl = https://ann:secret@example.org/app.git\n")
		fields := map[string]any{"name": name, "directory": s.below + "/" + name}
		if given != "" {
			fields["repository"] = given
		}
		is.NoErr(s.save("root", Collection, name, fields, true))
		made, _, err := s.Get(t.Context(), name)
		is.NoErr(err)
		want := given
		if want == "" {
			want = "https://ann@example.org/app.git"
		}
		is.Equal(made.Repository, want)
	}
}

func TestOnlyTheOperatorChoosesADirectory(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	s := newSystem(t)
	n := 0
	make := func(actor, directory string) error {
		n++
		_, _, err := s.Records.Save(t.Context(), record.Save{Command: handlers.Command{Actor: actor}, Collection: Collection,
			Record: fmt.Sprint("p", n), Set: record.Fields(map[string]any{"name": fmt.Sprint(n), "directory": directory}),
			New: true, Role: account.Admin})
		return err
	}
	operator, root := events.UserActor(account.OperatorID), events.UserActor(s.accounts["root"])
	check(t, os.MkdirAll(s.below+"/two/deep", 0o700))
	check(t, os.Mkdir(s.below+"/three", 0o700))
	check(t, os.Symlink(s.below+"/two/deep", s.below+"/link"))
	elsewhere := t.TempDir()
	refused(t, make(root, elsewhere), "Must lie below "+s.below)
	refused(t, make(root, s.below), "Must lie below "+s.below)
	refused(t, make(root, s.below+"/../.."), "Must lie below "+s.below)
	refused(t, make(operator, "second"), "absolute path")
	refused(t, make(operator, elsewhere+"/missing"), "is not a directory")
	refused(t, make(operator, s.below+"/hidden"), "is not a directory")
	check(t, os.Mkdir(s.below+"/hidden", 0o700))
	refused(t, make(operator, s.below+"/hidden"), "it is for PocketCoder alone")
	is.NoErr(make(operator, elsewhere))
	is.NoErr(make(root, s.below+"/two"))
	refused(t, make(root, s.below+"/two"), "It is the directory of the project")
	refused(t, make(root, s.below+"/link"), "It lies in the project")
	refused(t, make(operator, s.below), "lies in it")
	is.NoErr(make(root, s.below+"/three"))
	err := s.save("root", Collection, "app", map[string]any{"directory": s.below}, false)
	refused(t, err, "cannot change")

	_, err = Ensure(t.Context(), s.Records, Project{ID: events.DefaultEngine, Name: "moved", Directory: "/moved"})
	is.NoErr(err)
	found, _, err := s.Get(t.Context(), events.DefaultEngine)
	is.NoErr(err)
	is.Equal(found, Project{ID: events.DefaultEngine, Name: "first", Directory: "/moved", Everyone: Member})
}

func TestTheProjectOfTheEngineIsNotRemoved(t *testing.T) {
	t.Parallel()
	s := newSystem(t)
	refused(t, s.remove("root", Collection, events.DefaultEngine), "cannot be removed")
	check(t, s.remove("root", Collection, "app"))
}

func TestRolesAndWhatTheyMay(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	s := newSystem(t)
	for name, want := range map[string]struct{ role, may string }{
		"ada":  {role: Owner, may: "app first"},
		"ben":  {role: Member, may: "app first"},
		"vera": {role: Viewer, may: "first"},
		"nora": {role: None, may: "first"},
		"bot":  {role: None, may: "first"},
		"root": {role: Owner, may: "app first"},
	} {
		role, err := s.RoleOf(t.Context(), s.accounts[name], "app")
		is.NoErr(err)
		is.Equal(role, want.role) // in app
		list, err := s.MayWork(t.Context(), s.accounts[name])
		is.NoErr(err)
		var names []string
		for _, p := range list {
			names = append(names, p.Name)
		}
		is.Equal(strings.Join(names, " "), want.may)
		may, err := s.MayAct(t.Context(), s.accounts[name], handlers.ChatState{Owner: s.accounts[name], Project: "app"})
		is.NoErr(err)
		is.Equal(may, works(want.role)) // in a chat of its own
		may, err = s.MayAct(t.Context(), s.accounts[name], handlers.ChatState{Owner: "other", Project: "app"})
		is.NoErr(err)
		is.Equal(may, name == "root") // in a chat of another account
	}
	check(t, s.remove("root", Members, "m-ben"))
	role, err := s.RoleOf(t.Context(), s.accounts["ben"], "app")
	is.NoErr(err)
	is.Equal(role, None)
	yes := true
	_, err = s.Accounts.UpdateAccount(t.Context(), account.UpdateAccount{Command: handlers.Command{Actor: events.ActorSystem},
		Account: s.accounts["ada"], Disabled: &yes})
	is.NoErr(err)
	role, err = s.RoleOf(t.Context(), s.accounts["ada"], "app")
	is.NoErr(err)
	is.Equal(role, None) // a disabled account
	check(t, s.remove("root", Collection, "app"))
	role, err = s.RoleOf(t.Context(), s.accounts["vera"], "app")
	is.NoErr(err)
	is.Equal(role, None) // in a removed project
}

func TestTheProjectOfANewChat(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	s := newSystem(t)
	last := ""
	choose := func(name, wanted string) (string, error) {
		p, err := s.Choose(t.Context(), s.accounts[name], wanted, func(context.Context) (string, error) { return last, nil })
		return p.ID, err
	}
	for name, wanted := range map[string]string{"vera": "app", "nora": "app", "ben": "unknown", "root": "unknown"} {
		_, err := choose(name, wanted)
		refused(t, err, "There is no project")
	}
	chosen, err := choose("ben", "app")
	is.NoErr(err)
	is.Equal(chosen, "app")
	chosen, err = choose("nora", "")
	is.NoErr(err)
	is.Equal(chosen, events.DefaultEngine) // the only one
	chosen, err = choose("ben", "")
	is.NoErr(err)
	is.Equal(chosen, events.DefaultEngine) // the first
	last = "app"
	chosen, err = choose("ben", "")
	is.NoErr(err)
	is.Equal(chosen, "app") // that of the newest chat
	check(t, s.save("root", Collection, events.DefaultEngine, map[string]any{"everyone": None}, false))
	_, err = choose("nora", "")
	refused(t, err, "may not work in any project")
	_, err = Ensure(t.Context(), s.Records, Project{ID: "web", Name: "web", Directory: "/web", Everyone: Member})
	is.NoErr(err)
	last = ""
	_, err = choose("ben", "")
	refused(t, err, "Name the project of the chat: app, web.")
}
