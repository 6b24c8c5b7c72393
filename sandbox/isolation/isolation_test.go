package isolation

import (
	"errors"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"

	"github.com/matryer/is"

	"pocketcoder/ops/expect"
)

func TestNoIsolationIsChosenOnlyWhenAskedFor(t *testing.T) {
	is := is.New(t)
	choice, err := Choose("none")
	is.NoErr(err)
	is.Equal(choice.Level, None)
	choice, err = Choose("auto")
	is.True(choice.Level != None)
	is.True((err == nil) == (choice.Level != ""))
	for _, unknown := range []string{"", "None", "bwrap ", "docker"} {
		_, err := Choose(unknown)
		is.True(errors.Is(err, ErrUnknownLevel))
	}
}

func TestMissingMechanismsAreNamedWithTheirCure(t *testing.T) {
	is := is.New(t)
	t.Setenv("PATH", t.TempDir())
	_, err := Choose("bwrap")
	if runtime.GOOS != "linux" {
		expect.Contains(t, err.Error(), "run the worker on Linux")
		return
	}
	expect.Contains(t, err.Error(), "apt install bubblewrap")
	choice, err := Choose("auto") // the next best says why it was chosen
	if err == nil {
		is.True(choice.Level == Landlock || choice.Level == Container)
		expect.Contains(t, choice.Reason, "bubblewrap is not installed")
	} else {
		expect.Contains(t, err.Error(), "bwrap does not work here: bubblewrap is not installed")
	}
	_, err = Choose("container")
	expect.Contains(t, err.Error(), "sandbox image")
	t.Setenv(ContainerMark, "1") // which anybody can set
	_, err = Choose("container")
	_, docker := os.Stat("/.dockerenv")
	_, podman := os.Stat("/run/.containerenv")
	is.Equal(err == nil, docker == nil || podman == nil)
}

func TestPlacesThatAreTheSystemsAreRefused(t *testing.T) {
	is := is.New(t)
	home, dir := t.TempDir(), t.TempDir()
	file := filepath.Join(dir, "file")
	is.NoErr(os.WriteFile(file, nil, 0o644))
	for want, access := range map[string]FileAccess{
		"/usr/share would be writable":      {Workspace: "/usr/share", Home: home},
		"/ would be writable":               {Workspace: "/", Home: home},
		"/etc would be writable":            {Workspace: dir, Home: "/etc"},
		"expose /: it holds":                {Workspace: dir, Home: home, Expose: []string{"/"}},
		"expose /proc: it holds":            {Workspace: dir, Home: home, Expose: []string{"/proc"}},
		"no such file":                      {Workspace: dir, Home: home, Expose: []string{dir + "/missing"}},
		"not an absolute path of a directo": {Workspace: dir, Home: home, Expose: []string{file}},
	} {
		_, err := access.resolve()
		is.True(err != nil)
		if err != nil && !strings.Contains(err.Error(), want) {
			t.Errorf("%+v: %v, want %q", access, err, want)
		}
	}
}

func TestDirectoriesThatCommandsCannotSeeLeaveTheirPath(t *testing.T) {
	is := is.New(t)
	exposed, hidden := t.TempDir(), t.TempDir()
	access, err := FileAccess{Workspace: t.TempDir(), Home: t.TempDir(), Expose: []string{exposed}}.resolve()
	is.NoErr(err)
	path := strings.Join([]string{hidden, "/usr/bin", exposed, access.Home + "/bin", "/root/go/bin", "/usrlocal/bin"}, ":")
	confinement := &Confinement{choice: Choice{Level: Bwrap}, access: access}
	is.Equal(confinement.FilterPath(path), strings.Join([]string{"/usr/bin", exposed, access.Home + "/bin"}, ":"))
	confinement.choice.Level = None
	is.Equal(confinement.FilterPath(path), path)
}
