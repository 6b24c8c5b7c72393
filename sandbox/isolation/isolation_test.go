package isolation

import (
	"errors"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"

	"github.com/matryer/is"

	"pocketcoder/expect"
)

func TestNoIsolationIsChosenOnlyWhenAskedFor(t *testing.T) {
	is := is.New(t)
	found, err := Choose("none")
	is.NoErr(err)
	is.Equal(found.Level, None)
	found, err = Choose("auto")
	is.True(found.Level != None)
	is.True((err == nil) == (found.Level != ""))
	for _, unknown := range []string{"", "None", "bwrap ", "docker"} {
		_, err := Choose(unknown)
		is.True(errors.Is(err, ErrUnknown))
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
	found, err := Choose("auto") // the next best says why it was chosen
	if err == nil {
		is.True(found.Level == Landlock || found.Level == Container)
		expect.Contains(t, found.Reason, "bubblewrap is not installed")
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
	for want, p := range map[string]Place{
		"/usr/share would be writable":      {Workspace: "/usr/share", Home: home},
		"/ would be writable":               {Workspace: "/", Home: home},
		"/etc would be writable":            {Workspace: dir, Home: "/etc"},
		"expose /: it holds":                {Workspace: dir, Home: home, Expose: []string{"/"}},
		"expose /proc: it holds":            {Workspace: dir, Home: home, Expose: []string{"/proc"}},
		"no such file":                      {Workspace: dir, Home: home, Expose: []string{dir + "/missing"}},
		"not an absolute path of a directo": {Workspace: dir, Home: home, Expose: []string{file}},
	} {
		_, err := p.check()
		is.True(err != nil)
		if err != nil && !strings.Contains(err.Error(), want) {
			t.Errorf("%+v: %v, want %q", p, err, want)
		}
	}
}

func TestDirectoriesThatCommandsCannotSeeLeaveTheirPath(t *testing.T) {
	is := is.New(t)
	exposed, hidden := t.TempDir(), t.TempDir()
	p, err := Place{Workspace: t.TempDir(), Home: t.TempDir(), Expose: []string{exposed}}.check()
	is.NoErr(err)
	path := strings.Join([]string{hidden, "/usr/bin", exposed, p.Home + "/bin", "/root/go/bin", "/usrlocal/bin"}, ":")
	walls := &Walls{found: Found{Level: Bwrap}, place: p}
	is.Equal(walls.Path(path), strings.Join([]string{"/usr/bin", exposed, p.Home + "/bin"}, ":"))
	walls.found.Level = None
	is.Equal(walls.Path(path), path)
}
