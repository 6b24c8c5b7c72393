// Package install finds OpenCode and ripgrep, and installs with npm what is missing. Several processes may install at
// once, and a crash leaves nothing that the next installation does not remove. The package does not know how the
// programs are run.
package install

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"time"
)

// The versions that PocketCoder was written against and is tested with.
const (
	OpenCodeVersion = "1.18.33"
	RipgrepVersion  = "1.18.0" // of the npm package that holds ripgrep; the program has a version of its own
)

// Tools are the programs the bridge runs. OpenCode's grep, glob and skill tools need ripgrep, and try to download it
// when it is not on their PATH.
type Tools struct {
	OpenCode string // absolute path
	Version  string // of OpenCode; empty until a program that the user named has answered the supervisor
	Ripgrep  string // absolute path
}

// Options says where to look for the tools, and where to put them when they are not found.
type Options struct {
	Dir string // absolute; packages are installed below it, each in a directory named after its version
	// path the user names; empty: the one on PATH if it is OpenCodeVersion, else the installed one
	OpenCode string
	// Version of OpenCode to find; empty: OpenCodeVersion. Only tests name another one.
	Version  string
	Progress func(line string) // told what is done and how far it is; lines without end
}

// Find finds OpenCode and ripgrep and installs with npm what it does not find. It may be called again, and by several
// processes at once: one installs, the others wait. A crash leaves nothing that the next call does not clean up.
func Find(ctx context.Context, in Options) (Tools, error) {
	opencode, version, err := in.findOpenCode(ctx)
	if err != nil {
		return Tools{}, err
	}
	if opencode == "" {
		version = in.version()
		if opencode, err = in.npm(ctx, opencodePackage(version)); err != nil {
			return Tools{}, err
		}
	}
	ripgrep, _, err := in.findOnPath(ctx, "rg")
	if err != nil {
		return Tools{}, err
	}
	if ripgrep == "" {
		if ripgrep, err = in.npm(ctx, ripgrepPackage()); err != nil {
			return Tools{}, err
		}
	}
	return Tools{OpenCode: opencode, Version: version, Ripgrep: ripgrep}, nil
}

func (in Options) version() string { return cmp.Or(in.Version, OpenCodeVersion) }

// findOpenCode returns the OpenCode to use if it is there already: the one the user named, whatever its version, or
// one of the right version on PATH. It does not ask the named one for its version, which takes OpenCode more than a
// processor second.
func (in Options) findOpenCode(ctx context.Context) (path, version string, err error) {
	if in.OpenCode == "" {
		if path, version, err = in.findOnPath(ctx, "opencode"); path == "" || err != nil {
			return "", "", err
		}
		if version != in.version() {
			in.Progress(fmt.Sprintf("not using %s: it is version %q, and only %s is known to work", path, version,
				in.version()))
			return "", "", nil
		}
		return path, version, nil
	}
	if path, err = filepath.Abs(in.OpenCode); err != nil {
		return "", "", err
	}
	if _, err = exec.LookPath(path); err != nil {
		return "", "", fmt.Errorf("use opencode: %w", err)
	}
	return path, "", nil
}

// findOnPath returns the absolute path and the version of a program on PATH that answers --version; the path is empty
// when there is none.
func (in Options) findOnPath(ctx context.Context, name string) (path, version string, err error) {
	if path, err = exec.LookPath(name); err != nil {
		return "", "", nil // not there, or only in the current directory
	}
	if path, err = filepath.Abs(path); err != nil {
		return "", "", err
	}
	version, err = VersionOf(ctx, path, "--version")
	if ctx.Err() != nil {
		return "", "", ctx.Err()
	}
	if err != nil {
		in.Progress(fmt.Sprintf("not using what does not run: %v", err))
		return "", "", nil
	}
	return path, version, nil
}

// VersionOf runs a program and returns the first line that it prints about its version.
func VersionOf(ctx context.Context, path, flag string) (string, error) {
	const most = time.Minute
	ctx, cancel := context.WithTimeoutCause(ctx, most, fmt.Errorf("no answer within %s", most))
	defer cancel()
	home, err := os.MkdirTemp("", "pocketcoder-version-") // OpenCode makes its directories whatever it is asked
	if err != nil {
		return "", err
	}
	defer os.RemoveAll(home)
	cmd := exec.CommandContext(ctx, path, flag)
	cmd.Env = []string{"HOME=" + home, "TMPDIR=" + home, "PATH=" + os.Getenv("PATH")}
	cmd.WaitDelay = time.Second // a script's child may keep the output open
	out, err := cmd.Output()
	if err != nil {
		var exit *exec.ExitError
		if ctx.Err() != nil {
			err = context.Cause(ctx) // says more than the signal that ended it
		} else if errors.As(err, &exit) {
			err = fmt.Errorf("%w: %s", err, strings.TrimSpace(string(exit.Stderr)))
		}
		return "", fmt.Errorf("%s %s: %w", path, flag, err)
	}
	line, _, _ := strings.Cut(strings.TrimSpace(string(out)), "\n")
	return line, nil
}

// npmPackage is a package whose program sits in one of several packages for this platform.
type npmPackage struct {
	name, version string
	programs      []string // paths below node_modules, the best first
}

// platform is this machine as npm spells it.
func platform() (system, processor string) {
	processor = runtime.GOARCH
	if processor == "amd64" {
		processor = "x64"
	}
	return runtime.GOOS, processor
}

// opencodePackage: the plain program needs AVX2, the musl ones a C library of that name. npm installs several of them,
// and which one runs here is found by trying; the package's own install script, which does the same, is not run.
func opencodePackage(version string) npmPackage {
	system, processor := platform()
	p := npmPackage{name: "opencode-ai", version: version}
	for _, variant := range []string{"", "-baseline", "-musl", "-baseline-musl"} {
		p.programs = append(p.programs, filepath.Join("opencode-"+system+"-"+processor+variant, "bin", "opencode"))
	}
	return p
}

func ripgrepPackage() npmPackage {
	system, processor := platform()
	return npmPackage{name: "@vscode/ripgrep", version: RipgrepVersion,
		programs: []string{filepath.Join("@vscode", "ripgrep-"+system+"-"+processor, "bin", "rg")}}
}
