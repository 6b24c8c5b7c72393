package main

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"syscall"
)

// outcome is how a test, or a behaviour, ended.
type outcome struct {
	ended  string // pass, fail or skip; empty for a test that did not run
	reason string // the first line of a failure
}

// String says whether a behaviour holds.
func (o outcome) String() string {
	switch o.ended {
	case "pass":
		return "yes"
	case "fail":
		return "no"
	}
	return "–"
}

// outcome returns that of the behaviour. It holds if all its tests pass.
func (b behaviour) outcome(outcomes map[string]outcome) (all outcome) {
	for _, t := range b.tests {
		switch one := outcomes[t.String()]; {
		case one.ended == "fail":
			return one
		case one.ended != "pass":
			all = outcome{ended: "skip", reason: "not run: " + t.String()}
		case all.ended == "":
			all = one
		}
	}
	return all
}

// binaries are the test programs of the packages that have tests of behaviours.
type binaries struct{ dir string }

// build compiles them. Linking them anew for each version would take longer than some of the tests.
func build(ctx context.Context) (b binaries, err error) {
	if b.dir, err = os.MkdirTemp("", "pocketcoder-engine-"); err != nil {
		return b, err
	}
	for _, p := range packages() {
		cmd := exec.CommandContext(ctx, "go", "test", "-c", "-o", b.program(p), "./"+p)
		if out, err := cmd.CombinedOutput(); err != nil {
			b.remove()
			return b, fmt.Errorf("build the tests of %s: %w\n%s", p, err, out)
		}
	}
	return b, nil
}

func (b binaries) remove() { os.RemoveAll(b.dir) }

func (b binaries) program(pkg string) string { return filepath.Join(b.dir, filepath.Base(pkg)+".test") }

// packages are those that have tests of behaviours.
func packages() (all []string) {
	for _, b := range behaviours {
		for _, t := range b.tests {
			if !slices.Contains(all, t.pkg) {
				all = append(all, t.pkg)
			}
		}
	}
	return all
}

// run runs the tests of all behaviours with a version of OpenCode, and returns how they ended, by test. Tests of one
// OpenCode run after each other, and the first that fails can be the reason why the next ones fail. So those that fail
// are run again alone, and wait longer.
func (b binaries) run(ctx context.Context, version string) (map[string]outcome, error) {
	outcomes := map[string]outcome{}
	for _, p := range packages() {
		ended, err := b.tests(ctx, p, version, pattern(p), "30s")
		if err != nil {
			return nil, err
		}
		for _, behaviour := range behaviours {
			for _, t := range behaviour.tests {
				if t.pkg != p {
					continue
				}
				one, ran := ended[t.path()]
				if ran && one.ended == "fail" {
					again, err := b.tests(ctx, p, version, patternOf(t.name, t.pattern()), "90s")
					if err != nil {
						return nil, err
					}
					one = again[t.path()]
				} else if !ran {
					one = ended[t.name] // why it did not begin
				}
				outcomes[t.String()] = one
			}
		}
	}
	return outcomes, nil
}

func (t test) pattern() string { return regexp.QuoteMeta(written(t.part)) }

// pattern matches the tests of a package, and their parts.
func pattern(pkg string) string {
	var names, parts []string
	for _, behaviour := range behaviours {
		for _, t := range behaviour.tests {
			if t.pkg == pkg {
				names = append(names, t.name)
			}
			if t.pkg == pkg && t.part != "" {
				parts = append(parts, t.pattern())
			}
		}
	}
	return patternOf(strings.Join(names, "|"), strings.Join(parts, "|"))
}

func patternOf(names, parts string) string {
	if parts == "" {
		return "^(" + names + ")$"
	}
	return "^(" + names + ")$/^(" + parts + ")$"
}

// event is a line of test2json.
type event struct{ Action, Test, Output string }

// location is where a test logs or fails.
var location = regexp.MustCompile(`^\s+\w+\.go:\d+: `)

// tests runs tests of a package, and returns how they ended, by name.
func (b binaries) tests(ctx context.Context, pkg, version, pattern, patience string) (map[string]outcome, error) {
	cmd := exec.CommandContext(ctx, "go", "tool", "test2json", b.program(pkg), "-test.v=test2json", "-test.run="+pattern,
		"-test.timeout=30m", "-test.parallel=2", "-opencode.version="+version, "-patience="+patience)
	cmd.Dir = pkg
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true} // the test runs below test2json, and must end with it
	cmd.Cancel = func() error { return syscall.Kill(-cmd.Process.Pid, syscall.SIGTERM) }
	cmd.Env = append(os.Environ(), "CI=true", "NO_COLOR=1") // the long ones, too
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	out, err := cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	if err := cmd.Start(); err != nil {
		return nil, err
	}
	ended, readErr := read(out)
	if err := errors.Join(readErr, cmd.Wait()); ctx.Err() != nil || len(ended) == 0 {
		return nil, fmt.Errorf("run tests of %s: %w\n%s", pkg, errors.Join(ctx.Err(), err), &stderr)
	}
	return ended, nil
}

// read reads the lines of test2json.
func read(in io.Reader) (map[string]outcome, error) {
	ended, last := map[string]outcome{}, map[string]string{}
	lines := bufio.NewReader(in)
	for {
		line, err := lines.ReadBytes('\n')
		if err == io.EOF {
			return ended, nil
		}
		if err != nil {
			return ended, err
		}
		var e event
		if json.Unmarshal(line, &e) != nil || e.Test == "" {
			continue
		}
		switch e.Action {
		case "output": // a test may log before it fails, so the last location counts
			if location.MatchString(e.Output) {
				last[e.Test] = strings.TrimSpace(e.Output)
			}
		case "pass":
			ended[e.Test] = outcome{ended: e.Action}
		case "fail", "skip":
			ended[e.Test] = outcome{e.Action, last[e.Test]}
		}
	}
}

// written is the name of a subtest in the output of a test.
func written(name string) string { return strings.ReplaceAll(name, " ", "_") }
