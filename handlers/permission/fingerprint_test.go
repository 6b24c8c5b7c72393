package permission_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/matryer/is"

	"pocketcoder/events"
	"pocketcoder/handlers/handlerstest"
	"pocketcoder/handlers/permission"
	"pocketcoder/handlers/permission/permissiontest"
)

func TestApprovalOfAnEditHoldsForTheFilesAsTheyWere(t *testing.T) {
	t.Parallel()
	const old, new = "a\n", "a\na person's line\n"
	for name, c := range map[string]struct {
		change func(t testing.TB, dir string)
		want   string
	}{
		"nothing":              {func(testing.TB, string) {}, ""},
		"another file":         {func(t testing.TB, dir string) { handlerstest.Write(t, dir+"/other", new) }, ""},
		"saved without change": {func(t testing.TB, dir string) { handlerstest.Write(t, dir+"/a", old) }, ""},
		"a line":               {func(t testing.TB, dir string) { handlerstest.Write(t, dir+"/a", new) }, "a changed while the request waited. Read it again."},
		"same size":            {func(t testing.TB, dir string) { handlerstest.Write(t, dir+"/a", "b\n") }, "a changed while the request waited. Read it again."},
		"deleted":              {func(t testing.TB, dir string) { is.New(t).NoErr(os.Remove(dir + "/a")) }, "a changed while the request waited. Read it again."},
		"created":              {func(t testing.TB, dir string) { handlerstest.Write(t, dir+"/new", "") }, "new changed while the request waited. Read it again."},
		"a moved file":         {func(t testing.TB, dir string) { handlerstest.Write(t, dir+"/from", new) }, "from changed while the request waited. Read it again."},
		"where one is moved":   {func(t testing.TB, dir string) { handlerstest.Write(t, dir+"/to", "") }, "to changed while the request waited. Read it again."},
		"two": {func(t testing.TB, dir string) {
			handlerstest.Write(t, dir+"/a", new)
			handlerstest.Write(t, dir+"/to", "")
		}, "a, to changed while the request waited. Read them again."},
		"the target of a link":  {func(t testing.TB, dir string) { handlerstest.Write(t, dir+"/target", new) }, "link changed while the request waited. Read it again."},
		"where a link leads":    {func(t testing.TB, dir string) { relink(t, dir+"/link", "same") }, "link changed while the request waited. Read it again."},
		"a link for a file":     {func(t testing.TB, dir string) { relink(t, dir+"/a", "same") }, "a changed while the request waited. Read it again."},
		"a folder for a file":   {func(t testing.TB, dir string) { remakeFolder(t, dir+"/a") }, "a changed while the request waited. Read it again."},
		"a folder on the way":   {func(t testing.TB, dir string) { is.New(t).NoErr(os.Mkdir(dir+"/none", 0o700)) }, ""},
		"a file that may be in": {func(t testing.TB, dir string) { handlerstest.Write(t, dir+"/sub/deep", new) }, "sub/deep changed while the request waited. Read it again."},
		"a large file touched": {func(t testing.TB, dir string) {
			is.New(t).NoErr(os.Chtimes(dir+"/large", time.Time{}, time.Unix(7, 0)))
		}, "large changed while the request waited. Read it again."},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			is := is.New(t)
			g := permissiontest.OpenGate(t)
			dir := g.Directory
			is.NoErr(os.Mkdir(dir+"/sub", 0o700))
			for _, file := range []string{"a", "from", "target", "same", "sub/deep"} {
				handlerstest.Write(t, filepath.Join(dir, file), old)
			}
			handlerstest.Write(t, dir+"/large", "")
			is.NoErr(os.Truncate(dir+"/large", 16<<20+1))
			is.NoErr(os.Symlink("target", dir+"/link"))
			all := handlerstest.Patch("per_all", map[string]string{"filePath": dir + "/a", "type": "update"},
				map[string]string{"filePath": dir + "/new", "type": "add"},
				map[string]string{"filePath": dir + "/from", "movePath": dir + "/to", "type": "move"},
				map[string]string{"filePath": dir + "/link", "type": "update"},
				map[string]string{"filePath": dir + "/sub/deep", "type": "delete"},
				map[string]string{"filePath": dir + "/none/new", "type": "add"},
				map[string]string{"filePath": dir + "/large", "type": "update"})
			handlerstest.Happened(t, g.Log, "c1", all, handlerstest.Edit("per_edit", dir+"/a"),
				handlerstest.Edit("per_new", dir+"/new"))
			g.AwaitIdle()
			is.Equal(g.Referrals("per_edit")[0].Files, []events.FileFingerprint{{
				Path: dir + "/a", Size: 2, SHA256: "87428fc522803d31065e7bce3cf03fe475096631e5e07bbd7a0fde60c4cf25c7",
			}})
			is.Equal(g.Referrals("per_new")[0].Files, []events.FileFingerprint{{Path: dir + "/new", Absent: true}})
			for _, id := range []string{"per_all", "per_edit", "per_new"} {
				g.Decide(id, events.Authorized)
			}
			c.change(t, dir)
			is.Equal(g.Repeat("per_all"), c.want)
			is.Equal(g.Repeat("per_edit") != "", strings.HasPrefix(c.want, "a"))
			is.Equal(g.Repeat("per_new") != "", strings.HasPrefix(c.want, "new"))
		})
	}
}

func relink(t testing.TB, link, to string) {
	t.Helper()
	is := is.New(t)
	is.NoErr(os.Remove(link))
	is.NoErr(os.Symlink(to, link))
}

func remakeFolder(t testing.TB, path string) {
	t.Helper()
	is := is.New(t)
	is.NoErr(os.Remove(path))
	is.NoErr(os.Mkdir(path, 0o700))
}

func TestOnlyAnEditThatWaitsHasFingerprints(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	g := permissiontest.OpenGate(t)
	path := filepath.Join(g.Directory, "a")
	handlerstest.Write(t, path, "a\n")
	permissiontest.SaveRecord(t, g.Handlers, "tool_permissions", "r1",
		`{"tool":"edit","pattern":"`+path+`","action":"allow","active":true}`)
	handlerstest.Happened(t, g.Log, "c1", handlerstest.Edit("per_1", path), handlerstest.Bash("per_2", "make"))
	_, _, err := g.Permissions.Submit(t.Context(), permission.Submit{
		Chat: "c1", Permission: "i1", Type: "edit", Patterns: []string{path}, Metadata: []byte(`{"filepath":"` + path + `x"}`),
	})
	is.NoErr(err)
	handlerstest.Await(t, g.Log, func(d events.PermissionReferred) bool { return d.Permission == "i1" })
	g.AwaitIdle()
	found, _ := g.Decisions("per_1")
	is.Equal(found[0].Decision, events.Authorized)
	is.Equal(len(g.Referrals("per_2")[0].Files)+len(g.Referrals("i1")[0].Files), 0)
	handlerstest.Write(t, path, "b\n")
	is.Equal(g.Repeat("per_1")+g.Repeat("per_2")+g.Repeat("per_none"), "")
}

// A rule that allows what waits allows the diff that waits.
func TestRuleThatAllowsAWaitingEditAllowsTheFileAsItWas(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	g := permissiontest.OpenGate(t)
	path := filepath.Join(g.Directory, "a")
	handlerstest.Write(t, path, "a\n")
	handlerstest.Happened(t, g.Log, "c1", handlerstest.Edit("per_1", path))
	g.AwaitIdle()
	permissiontest.SaveRecord(t, g.Handlers, "tool_permissions", "r1",
		`{"tool":"edit","pattern":"`+path+`","action":"allow","active":true}`)
	handlerstest.Await(t, g.Log, func(d events.PermissionDecided) bool { return d.Permission == "per_1" })
	is.Equal(g.Repeat("per_1"), "")
	handlerstest.Write(t, path, "b\n")
	is.Equal(g.Repeat("per_1"), "a changed while the request waited. Read it again.")
}

func TestApprovalOfAForgottenEditIsUsedOnlyForTheFileAsItWas(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	g := permissiontest.OpenGate(t)
	path := filepath.Join(g.Directory, "a")
	handlerstest.Write(t, path, "a\n")
	forgotten := func(id string) handlerstest.Fact {
		return handlerstest.Fact{Data: events.PermissionInterrupted{Permission: id}}
	}
	handlerstest.Happened(t, g.Log, "c1", handlerstest.Edit("per_1", path))
	g.AwaitIdle()
	handlerstest.Happened(t, g.Log, "c1", forgotten("per_1"))
	g.Decide("per_1", events.Authorized)
	handlerstest.Write(t, path, "b\n")
	handlerstest.Happened(t, g.Log, "c1", handlerstest.Edit("per_2", path))
	g.AwaitIdle()
	found, _ := g.Decisions("per_2")
	is.Equal(len(found), 0) // it is shown again, with the new content
	is.Equal(len(g.Referrals("per_2")), 1)

	handlerstest.Write(t, path, "a\n")
	handlerstest.Happened(t, g.Log, "c1", handlerstest.Edit("per_3", path))
	g.AwaitIdle()
	found, _ = g.Decisions("per_3")
	is.Equal(found[0].ApprovalOf, "per_1")
	is.Equal(g.Repeat("per_3"), "")
	handlerstest.Write(t, path, "b\n")
	is.Equal(g.Repeat("per_3"), "a changed while the request waited. Read it again.")

	handlerstest.Happened(t, g.Log, "c1", forgotten("per_3"), handlerstest.Edit("per_4", path))
	g.AwaitIdle()
	found, _ = g.Decisions("per_4")
	is.Equal(len(found), 0) // neither is an approval that was used for another
	handlerstest.Write(t, path, "a\n")
	handlerstest.Happened(t, g.Log, "c1", handlerstest.Edit("per_5", path))
	g.AwaitIdle()
	found, _ = g.Decisions("per_5")
	is.Equal(found[0].ApprovalOf, "per_3")
	is.Equal(g.Repeat("per_5"), "")
}
