package install

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/matryer/is"

	"pocketcoder/events/atomicfile"
	"pocketcoder/ops/expect"
)

// sh is a shell script that finds the system's programs whatever is on our PATH.
func sh(lines ...string) string {
	return "#!/bin/sh\nPATH=/usr/bin:/bin\n" + strings.Join(lines, "\n") + "\n"
}

// onPath makes a directory that is all of PATH, with these scripts in it.
func onPath(t *testing.T, scripts map[string]string) string {
	t.Helper()
	dir := t.TempDir()
	for name, script := range scripts {
		expect.WriteFile(t, filepath.Join(dir, name), script)
	}
	t.Setenv("PATH", dir)
	return dir
}

// fakeNPM stands for npm and its registry: it notes what it is told in the file calls, and makes programs that answer
// --version. before runs first; programs are those of OpenCode that it makes, as paths below node_modules.
func fakeNPM(calls, before string, programs ...string) string {
	made := func(programs []string, version string) (lines string) {
		for _, p := range programs {
			lines += fmt.Sprintf("f=\"$3/node_modules/%s\"; mkdir -p \"${f%%/*}\"; printf '#!/bin/sh\\necho %s\\n' >\"$f\"; chmod +x \"$f\"\n", p, version)
		}
		return lines
	}
	return sh(`echo "$@" >>`+calls, before, `case "$*" in`,
		"*opencode-ai@"+OpenCodeVersion+")", made(programs, OpenCodeVersion), ";;",
		"*@vscode/ripgrep@"+RipgrepVersion+")", made(ripgrepPackage().programs, "ripgrep 15"), ";;",
		"*) exit 9 ;;", "esac")
}

// installation is one whose progress lines can be looked at.
func installation(t *testing.T) (Options, func() string) {
	var mu sync.Mutex
	var lines []string
	return Options{Dir: filepath.Join(t.TempDir(), "npm"), Progress: func(line string) {
			mu.Lock()
			defer mu.Unlock()
			lines = append(lines, line)
		}}, func() string {
			mu.Lock()
			defer mu.Unlock()
			return strings.Join(lines, "\n")
		}
}

func plainOpenCode() string { return opencodePackage(OpenCodeVersion).programs[0] }

func TestTheNamedOpenCodeIsUsedAndNotRun(t *testing.T) {
	is := is.New(t)
	onPath(t, map[string]string{"rg": sh("echo ripgrep 15"), "opencode": sh("echo " + OpenCodeVersion)})
	in, lines := installation(t)
	dir := t.TempDir()
	in.OpenCode = filepath.Join(dir, "mine")
	expect.WriteFile(t, in.OpenCode, sh("touch "+filepath.Join(dir, "ran")))
	tools, err := in.run(t)
	is.NoErr(err)
	is.Equal(tools.OpenCode, in.OpenCode)
	is.Equal(tools.Version, "") // its first answer says it
	is.Equal(lines(), "")
	_, err = os.Stat(filepath.Join(dir, "ran"))
	is.True(errors.Is(err, os.ErrNotExist))
}

func (in Options) run(t *testing.T) (Tools, error) { return Find(t.Context(), in) }

func TestANamedOpenCodeThatCannotBeRunIsAnError(t *testing.T) {
	is := is.New(t)
	onPath(t, map[string]string{"rg": sh("echo ripgrep 15"), "opencode": sh("echo " + OpenCodeVersion)})
	in, _ := installation(t)
	in.OpenCode = filepath.Join(t.TempDir(), "missing")
	_, err := in.run(t)
	is.True(err != nil)
	is.True(strings.HasPrefix(err.Error(), "use opencode: "))
	expect.Contains(t, err.Error(), in.OpenCode)
	is.True(errors.Is(err, os.ErrNotExist))

	is.NoErr(os.WriteFile(in.OpenCode, []byte("text"), 0o644))
	_, err = in.run(t)
	is.True(errors.Is(err, os.ErrPermission))
}

func TestOpenCodeOnPathIsUsedIfItIsTheRightVersion(t *testing.T) {
	is := is.New(t)
	dir := onPath(t, map[string]string{"rg": sh("echo ripgrep 15"), "opencode": sh("echo " + OpenCodeVersion)})
	in, lines := installation(t)
	tools, err := in.run(t)
	is.NoErr(err)
	is.Equal(tools, Tools{OpenCode: filepath.Join(dir, "opencode"), Version: OpenCodeVersion,
		Ripgrep: filepath.Join(dir, "rg")})
	is.Equal(lines(), "")
}

func TestAnotherVersionIsUsedOnlyIfItIsWanted(t *testing.T) {
	is := is.New(t)
	calls := filepath.Join(t.TempDir(), "calls")
	dir := onPath(t, map[string]string{"rg": sh("echo ripgrep 15"), "opencode": sh("echo 1.2.3"),
		"npm": fakeNPM(calls, "", plainOpenCode())})
	in, _ := installation(t)
	in.Version = "1.2.3"
	tools, err := in.run(t)
	is.NoErr(err)
	is.Equal(tools, Tools{OpenCode: filepath.Join(dir, "opencode"), Version: "1.2.3", Ripgrep: filepath.Join(dir, "rg")})
	in.Version = "4.5.6"
	_, err = in.run(t)
	is.True(err != nil)
	expect.Contains(t, expect.ReadFile(t, calls), "opencode-ai@4.5.6")
}

func TestWhatIsOnPathAndOfNoUseIsNamedAndInstalled(t *testing.T) {
	is := is.New(t)
	calls := filepath.Join(t.TempDir(), "calls")
	dir := onPath(t, map[string]string{
		"rg": sh("echo rg is broken >&2; exit 1"), "opencode": sh("echo 1.2.3"), "npm": fakeNPM(calls, "", plainOpenCode()),
	})
	in, lines := installation(t)
	tools, err := in.run(t)
	is.NoErr(err)
	expect.Contains(t, lines(), "not using "+filepath.Join(dir, "opencode")+`: it is version "1.2.3"`)
	expect.Contains(t, lines(), "rg is broken")
	is.True(strings.HasPrefix(tools.OpenCode, in.Dir))
	is.True(strings.HasPrefix(tools.Ripgrep, in.Dir))
	is.Equal(tools.Version, OpenCodeVersion)
	is.Equal(strings.Count(expect.ReadFile(t, calls), "--ignore-scripts"), 2) // one for each, and no script of theirs runs
	expect.Contains(t, lines(), "installed @vscode/ripgrep@"+RipgrepVersion)
}

func TestWithoutNPMTheErrorNamesTheWaysOut(t *testing.T) {
	is := is.New(t)
	onPath(t, nil)
	in, _ := installation(t)
	_, err := in.run(t)
	is.True(err != nil)
	for _, part := range []string{"install opencode-ai " + OpenCodeVersion, "npm is not on PATH",
		"install Node.js 20 or newer", "--opencode PATH"} {
		expect.Contains(t, err.Error(), part)
	}
	onPath(t, map[string]string{"opencode": sh("echo " + OpenCodeVersion)})
	_, err = in.run(t)
	is.True(err != nil)
	is.True(strings.HasPrefix(err.Error(), "install @vscode/ripgrep "+RipgrepVersion+": npm is not on PATH"))
}

func TestNPMsLastWordsAreInTheError(t *testing.T) {
	is := is.New(t)
	onPath(t, map[string]string{"npm": sh(`i=0; while [ $i -lt 30 ]; do echo "line $i"; i=$((i+1)); done`,
		"echo npm error code ENOSPC >&2; exit 7")})
	in, _ := installation(t)
	_, err := in.run(t)
	is.True(err != nil)
	expect.Contains(t, err.Error(), "exit status 7; its last lines:\nline 21\n")
	is.True(strings.HasSuffix(err.Error(), "line 29\nnpm error code ENOSPC"))
	left, err := filepath.Glob(filepath.Join(in.Dir, "opencode-ai*"))
	is.NoErr(err)
	is.Equal(left, nil) // a failure leaves nothing behind
}

func TestWhatACrashLeftHalfInstalledIsMadeAnew(t *testing.T) {
	is := is.New(t)
	calls := filepath.Join(t.TempDir(), "calls")
	onPath(t, map[string]string{"npm": fakeNPM(calls, "", plainOpenCode())})
	in, _ := installation(t)
	dir := filepath.Join(in.Dir, "opencode-ai-"+OpenCodeVersion)
	expect.WriteFile(t, filepath.Join(dir+".new", "node_modules", plainOpenCode()), "half of a prog")
	expect.WriteFile(t, filepath.Join(dir, "junk"), "")
	is.NoErr(os.Symlink("node_modules/gone", filepath.Join(dir, "program")))
	tools, err := in.run(t)
	is.NoErr(err)
	is.Equal(tools.OpenCode, filepath.Join(dir, "node_modules", plainOpenCode()))
	is.Equal(strings.Count(expect.ReadFile(t, calls), "opencode-ai@"), 1)
	for _, path := range []string{dir + ".new", filepath.Join(dir, "junk")} {
		_, err := os.Stat(path)
		is.True(errors.Is(err, os.ErrNotExist))
	}
}

func TestInstalledToolsAreFoundWithoutNPM(t *testing.T) {
	is := is.New(t)
	onPath(t, map[string]string{"npm": fakeNPM(filepath.Join(t.TempDir(), "calls"), "", plainOpenCode())})
	in, _ := installation(t)
	installed, err := in.run(t)
	is.NoErr(err)
	onPath(t, nil)
	second, lines := installation(t)
	second.Dir = in.Dir
	unlock, err := atomicfile.Lock(filepath.Join(in.Dir, "lock")) // and while another process installs something else
	is.NoErr(err)
	defer unlock()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	found, err := Find(ctx, second)
	is.NoErr(err)
	is.Equal(found, installed)
	is.Equal(lines(), "")
}

func TestManyThatInstallAtOnceInstallOnce(t *testing.T) {
	is := is.New(t)
	calls := filepath.Join(t.TempDir(), "calls")
	waits := filepath.Join(t.TempDir(), "go on")
	onPath(t, map[string]string{"npm": fakeNPM(calls, "while [ ! -e '"+waits+"' ]; do sleep 0.01; done", plainOpenCode())})
	in, lines := installation(t)
	const many = 8
	var all sync.WaitGroup
	for range many {
		all.Go(func() {
			tools, err := in.run(t)
			if err != nil || tools.OpenCode == "" || tools.Ripgrep == "" {
				t.Errorf("got %v, %v", tools, err)
			}
		})
	}
	expect.Eventually(t, "the others wait", func() bool {
		return strings.Count(lines(), "waiting for another process") == many-1
	})
	expect.WriteFile(t, waits, "")
	all.Wait()
	is.Equal(strings.Count(expect.ReadFile(t, calls), "opencode-ai@"), 1)
	is.Equal(strings.Count(expect.ReadFile(t, calls), "@vscode/ripgrep@"), 1)
}

func TestTheVariantThatRunsHereIsChosen(t *testing.T) {
	is := is.New(t)
	programs := opencodePackage(OpenCodeVersion).programs
	broken := `f="$3/node_modules/` + programs[0] +
		`"; mkdir -p "${f%/*}"; printf '#!/bin/sh\necho illegal instruction >&2; exit 132\n' >"$f"; chmod +x "$f"`
	onPath(t, map[string]string{"rg": sh("echo ripgrep 15"), "npm": fakeNPM("/dev/null", broken, programs[1])})
	in, _ := installation(t)
	tools, err := in.run(t)
	is.NoErr(err)
	is.True(strings.HasSuffix(tools.OpenCode, programs[1]))

	onPath(t, map[string]string{"rg": sh("echo ripgrep 15"), "npm": fakeNPM("/dev/null", broken)})
	in, _ = installation(t)
	_, err = in.run(t)
	is.True(err != nil)
	expect.Contains(t, err.Error(), "no program of it runs on this machine")
	expect.Contains(t, err.Error(), "illegal instruction")
}

func TestACancelEndsAnInstallThatHangs(t *testing.T) {
	hang := func(file string) string { return sh("sleep 600 &", "echo $! >'"+file+"'", "wait") }
	for name, program := range map[string]string{"a program that does not say its version": "opencode", "npm": "npm"} {
		t.Run(name, func(t *testing.T) {
			is := is.New(t)
			file := filepath.Join(t.TempDir(), "pid")
			onPath(t, map[string]string{program: hang(file)})
			in, _ := installation(t)
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			ended := make(chan error, 1)
			go func() { _, err := Find(ctx, in); ended <- err }()
			var pid int
			expect.Eventually(t, "it hangs", func() bool {
				pid, _ = strconv.Atoi(strings.TrimSpace(expect.ReadFile(t, file)))
				return pid > 1
			})
			t.Cleanup(func() { syscall.Kill(pid, syscall.SIGKILL) })
			cancel()
			select {
			case err := <-ended:
				is.True(errors.Is(err, context.Canceled))
			case <-time.After(time.Minute):
				t.Fatal("it does not end")
			}
		})
	}
}
