package handlers

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/matryer/is"

	"pocketcoder/events"
)

// asksEdit is the request to change a file.
func asksEdit(id, path string) fact {
	return asks(id, "ses_1", "call_"+id, "edit", []string{filepath.Base(path)}, map[string]string{"filepath": path, "diff": "-a\n+b"})
}

// asksPatch is the request of apply_patch for files, each a map of filePath, type and movePath.
func asksPatch(id string, files ...map[string]string) fact {
	return asks(id, "ses_1", "call_"+id, "edit", []string{"a"}, map[string]any{"filepath": "a", "files": files})
}

func write(t testing.TB, path, content string) {
	t.Helper()
	is.New(t).NoErr(os.WriteFile(path, []byte(content), 0o600))
}

func (g *gate) changed(permission string) string {
	g.t.Helper()
	why, err := g.ChangedFiles(g.t.Context(), "c1", permission, g.directory)
	is.New(g.t).NoErr(err)
	return why
}

func TestApprovalOfAnEditHoldsForTheFilesAsTheyWere(t *testing.T) {
	t.Parallel()
	const old, new = "a\n", "a\na person's line\n"
	for name, c := range map[string]struct {
		change func(t testing.TB, dir string)
		says   string
	}{
		"nothing":               {func(testing.TB, string) {}, ""},
		"another file":          {func(t testing.TB, dir string) { write(t, dir+"/other", new) }, ""},
		"saved without change":  {func(t testing.TB, dir string) { write(t, dir+"/a", old) }, ""},
		"a line":                {func(t testing.TB, dir string) { write(t, dir+"/a", new) }, "a changed while the request waited. Read it again."},
		"same size":             {func(t testing.TB, dir string) { write(t, dir+"/a", "b\n") }, "a changed while the request waited. Read it again."},
		"deleted":               {func(t testing.TB, dir string) { is.New(t).NoErr(os.Remove(dir + "/a")) }, "a changed while the request waited. Read it again."},
		"created":               {func(t testing.TB, dir string) { write(t, dir+"/new", "") }, "new changed while the request waited. Read it again."},
		"a moved file":          {func(t testing.TB, dir string) { write(t, dir+"/from", new) }, "from changed while the request waited. Read it again."},
		"where one is moved":    {func(t testing.TB, dir string) { write(t, dir+"/to", "") }, "to changed while the request waited. Read it again."},
		"two":                   {func(t testing.TB, dir string) { write(t, dir+"/a", new); write(t, dir+"/to", "") }, "a, to changed while the request waited. Read them again."},
		"the target of a link":  {func(t testing.TB, dir string) { write(t, dir+"/target", new) }, "link changed while the request waited. Read it again."},
		"where a link leads":    {func(t testing.TB, dir string) { relink(t, dir+"/link", "same") }, "link changed while the request waited. Read it again."},
		"a link for a file":     {func(t testing.TB, dir string) { relink(t, dir+"/a", "same") }, "a changed while the request waited. Read it again."},
		"a folder for a file":   {func(t testing.TB, dir string) { remakeFolder(t, dir+"/a") }, "a changed while the request waited. Read it again."},
		"a folder on the way":   {func(t testing.TB, dir string) { is.New(t).NoErr(os.Mkdir(dir+"/none", 0o700)) }, ""},
		"a file that may be in": {func(t testing.TB, dir string) { write(t, dir+"/sub/deep", new) }, "sub/deep changed while the request waited. Read it again."},
		"a large file touched": {func(t testing.TB, dir string) {
			is.New(t).NoErr(os.Chtimes(dir+"/large", time.Time{}, time.Unix(7, 0)))
		}, "large changed while the request waited. Read it again."},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			is := is.New(t)
			g := openGate(t)
			dir := g.directory
			is.NoErr(os.Mkdir(dir+"/sub", 0o700))
			for _, file := range []string{"a", "from", "target", "same", "sub/deep"} {
				write(t, filepath.Join(dir, file), old)
			}
			write(t, dir+"/large", "")
			is.NoErr(os.Truncate(dir+"/large", maxHashed+1))
			is.NoErr(os.Symlink("target", dir+"/link"))
			all := asksPatch("per_all", map[string]string{"filePath": dir + "/a", "type": "update"}, map[string]string{"filePath": dir + "/new", "type": "add"},
				map[string]string{"filePath": dir + "/from", "movePath": dir + "/to", "type": "move"}, map[string]string{"filePath": dir + "/link", "type": "update"},
				map[string]string{"filePath": dir + "/sub/deep", "type": "delete"}, map[string]string{"filePath": dir + "/none/new", "type": "add"},
				map[string]string{"filePath": dir + "/large", "type": "update"})
			happened(t, g.Log, "c1", all, asksEdit("per_edit", dir+"/a"), asksEdit("per_new", dir+"/new"))
			g.looked()
			is.Equal(g.referrals("per_edit")[0].Files, []events.FileFingerprint{{
				Path: dir + "/a", Size: 2, SHA256: "87428fc522803d31065e7bce3cf03fe475096631e5e07bbd7a0fde60c4cf25c7",
			}})
			is.Equal(g.referrals("per_new")[0].Files, []events.FileFingerprint{{Path: dir + "/new", Absent: true}})
			for _, id := range []string{"per_all", "per_edit", "per_new"} {
				g.decide(id, events.Authorized)
			}
			c.change(t, dir)
			is.Equal(g.changed("per_all"), c.says)
			is.Equal(g.changed("per_edit") != "", strings.HasPrefix(c.says, "a"))
			is.Equal(g.changed("per_new") != "", strings.HasPrefix(c.says, "new"))
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
	g := openGate(t)
	path := filepath.Join(g.directory, "a")
	write(t, path, "a\n")
	keeps(t, g.Handlers, toolPermissions, "r1", `{"tool":"edit","pattern":"`+path+`","action":"allow","active":true}`)
	happened(t, g.Log, "c1", asksEdit("per_1", path), askBash("per_2", "make"))
	_, _, err := g.RequestPermission(t.Context(), RequestPermission{
		Chat: "c1", Permission: "i1", Type: "edit", Patterns: []string{path}, Metadata: []byte(`{"filepath":"` + path + `x"}`),
	})
	is.NoErr(err)
	await(t, g.Log, func(d events.PermissionReferred) bool { return d.Permission == "i1" })
	g.looked()
	found, _ := g.decisions("per_1")
	is.Equal(found[0].Decision, events.Authorized)
	is.Equal(len(g.referrals("per_2")[0].Files)+len(g.referrals("i1")[0].Files), 0)
	write(t, path, "b\n")
	is.Equal(g.changed("per_1")+g.changed("per_2")+g.changed("per_none"), "")
}

// A rule that allows what waits allows the diff that waits.
func TestRuleThatAllowsAWaitingEditAllowsTheFileAsItWas(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	g := openGate(t)
	path := filepath.Join(g.directory, "a")
	write(t, path, "a\n")
	happened(t, g.Log, "c1", asksEdit("per_1", path))
	g.looked()
	keeps(t, g.Handlers, toolPermissions, "r1", `{"tool":"edit","pattern":"`+path+`","action":"allow","active":true}`)
	await(t, g.Log, func(d events.PermissionDecided) bool { return d.Permission == "per_1" })
	is.Equal(g.changed("per_1"), "")
	write(t, path, "b\n")
	is.Equal(g.changed("per_1"), "a changed while the request waited. Read it again.")
}

func TestApprovalOfAForgottenEditIsUsedOnlyForTheFileAsItWas(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	g := openGate(t)
	path := filepath.Join(g.directory, "a")
	write(t, path, "a\n")
	forgotten := func(id string) fact { return fact{data: events.PermissionInterrupted{Permission: id}} }
	happened(t, g.Log, "c1", asksEdit("per_1", path))
	g.looked()
	happened(t, g.Log, "c1", forgotten("per_1"))
	g.decide("per_1", events.Authorized)
	write(t, path, "b\n")
	happened(t, g.Log, "c1", asksEdit("per_2", path))
	g.looked()
	found, _ := g.decisions("per_2")
	is.Equal(len(found), 0) // it is shown again, with the new content
	is.Equal(len(g.referrals("per_2")), 1)

	write(t, path, "a\n")
	happened(t, g.Log, "c1", asksEdit("per_3", path))
	g.looked()
	found, _ = g.decisions("per_3")
	is.Equal(found[0].Grant, "per_1")
	is.Equal(g.changed("per_3"), "")
	write(t, path, "b\n")
	is.Equal(g.changed("per_3"), "a changed while the request waited. Read it again.")

	happened(t, g.Log, "c1", forgotten("per_3"), asksEdit("per_4", path))
	g.looked()
	found, _ = g.decisions("per_4")
	is.Equal(len(found), 0) // neither is an approval that was used for another
	write(t, path, "a\n")
	happened(t, g.Log, "c1", asksEdit("per_5", path))
	g.looked()
	found, _ = g.decisions("per_5")
	is.Equal(found[0].Grant, "per_3")
	is.Equal(g.changed("per_5"), "")
}

func TestFingerprintReadsNothingButRegularFiles(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	dir, err := filepath.EvalSymlinks(t.TempDir())
	is.NoErr(err)
	write(t, dir+"/a", "0123456789")
	is.NoErr(os.Symlink("loop", dir+"/loop"))
	is.NoErr(os.Symlink("nowhere", dir+"/dead"))
	for path, want := range map[string]events.FileFingerprint{
		dir: {}, "/dev/zero": {}, "/proc/self/environ": {Target: ""}, dir + "/loop": {}, dir + "/a/b": {},
		dir + "/none/new": {Absent: true}, dir + "/dead": {Target: dir + "/nowhere", Absent: true},
	} {
		want.Path = path
		got := fingerprint(path, maxHashed)
		is.Equal(got, want)
	}
	is.Equal(fingerprints([]string{"a", ""}), nil)
	exact, short := fingerprint(dir+"/a", 10), fingerprint(dir+"/a", 9)
	is.Equal([]bool{exact.SHA256 != "", exact.ModifiedNS != 0}, []bool{true, false})
	is.Equal([]any{short.SHA256, short.ModifiedNS != 0, short.Size}, []any{"", true, int64(10)})
}
