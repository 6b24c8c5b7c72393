package admin

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"

	"pocketcoder/bridge/opencode/install"
	"pocketcoder/cmd/app"
	"pocketcoder/cmd/client"
	"pocketcoder/cmd/datadir"
	"pocketcoder/events/recovery"
	"pocketcoder/handlers/policy/display"
	"pocketcoder/sandbox/isolation"
	"pocketcoder/sandbox/limit"
	"pocketcoder/web/routes"
)

// optionalIfMissing turns the state missing into optional.
func (c check) optionalIfMissing() check {
	if c.State == checkMissing {
		c.State = checkOptional
	}
	return c
}

// checkProgram looks for a program on PATH. absent is the state if there is none.
func checkProgram(ctx context.Context, absent checkState, name, versionFlag, purpose, get string) check {
	c := check{Name: name, State: absent, For: purpose, Get: get}
	path, err := exec.LookPath(name)
	if err != nil {
		return c
	}
	v, err := install.VersionOf(ctx, path, versionFlag)
	if err != nil {
		c.State, c.Found = checkWrong, err.Error()
		return c
	}
	c.State, c.Found, c.Get = checkOK, v+", "+path, ""
	return c
}

// checkIsolation chooses the isolation level, as the worker does.
func checkIsolation(level string) check {
	c := check{Name: "isolation", State: checkMissing,
		For: "isolating commands and OpenCode from the rest of the machine: without it neither runs"}
	choice, err := isolation.Choose(level)
	if err != nil {
		c.Found, c.Get = err.Error(), "apt install bubblewrap"
		return c
	}
	c.State, c.Found = checkOK, choice.String()
	switch choice.Level {
	case isolation.Landlock, isolation.Container:
		c.State, c.Get = checkOptional, "apt install bubblewrap, which isolates commands more"
	case isolation.None:
		c.State, c.Found, c.Get = checkWrong, c.Found+"; "+app.Unconfined, "choose another level with --isolation"
	}
	return c
}

// checkLimits checks what enforces the limits of commands.
func checkLimits() check {
	c := check{Name: "limits", State: checkOK, Found: "a cgroup bounds memory and processes of each command",
		For: "the limits of commands (--memory, --processes, --cpu-time)"}
	if err := limit.Probe(); err != nil {
		c.State = checkOptional
		c.Found = "the worker looks at processes 4 to 20 times a second, and does not see memory in files: " + err.Error()
		c.Get = "start it as a systemd service with Delegate=yes (ops/pocketcoder.service), or: systemd-run --user --scope -p Delegate=yes pocketcoder up"
	}
	return c
}

const nodeGet = "apt install nodejs npm, version 20 or newer (https://nodejs.org)"

func checkNode(ctx context.Context) (node, npm check) {
	return checkProgram(ctx, checkMissing, "node", "--version", "installing OpenCode and ripgrep", nodeGet),
		checkProgram(ctx, checkMissing, "npm", "--version", "installing OpenCode and ripgrep", nodeGet)
}

// installed returns the path at which install.Find has installed the program of a package, "" if it has not.
func installed(d datadir.Dir, npmPackage, version string) string {
	path, err := filepath.EvalSymlinks(d.Path("npm", npmPackage+"-"+version, "program"))
	if err != nil {
		return ""
	}
	return path
}

// checkOpenCode looks for OpenCode in the same places as up: the given path, PATH, the data directory.
func checkOpenCode(ctx context.Context, o doctorOptions, npm bool) check {
	c := check{Name: "opencode", For: "the reasoning: it runs the turns",
		Get: "npm install -g opencode-ai@" + install.OpenCodeVersion}
	if o.opencode != "" {
		v, err := install.VersionOf(ctx, o.opencode, "--version")
		c.State, c.Found = checkOK, v+", "+o.opencode
		if err != nil {
			c.State, c.Found = checkWrong, err.Error()
		} else if v != install.OpenCodeVersion {
			c.Found += ", while only " + install.OpenCodeVersion + " is known to work"
		}
		return c
	}
	path, _ := exec.LookPath("opencode")
	for _, path := range []string{path, installed(o.data, "opencode-ai", install.OpenCodeVersion)} {
		if path == "" {
			continue
		}
		if v, err := install.VersionOf(ctx, path, "--version"); err == nil && v == install.OpenCodeVersion {
			c.State, c.Found = checkOK, v+", "+path
			return c
		}
	}
	return c.toInstall(npm)
}

func checkRipgrep(ctx context.Context, o doctorOptions, npm bool) check {
	c := checkProgram(ctx, checkMissing, "rg", "--version", "OpenCode's grep, glob and skill tools (ripgrep)",
		"apt install ripgrep")
	if c.State == checkOK {
		return c
	}
	if path := installed(o.data, "ripgrep", install.RipgrepVersion); path != "" {
		if v, err := install.VersionOf(ctx, path, "--version"); err == nil {
			c.State, c.Found = checkOK, v+", "+path
			return c
		}
	}
	return c.toInstall(npm)
}

// toInstall sets the state of a missing program: optional if up can install it, else missing.
func (c check) toInstall(npm bool) check {
	if c.State = checkMissing; npm {
		c.State, c.Get = checkOptional, "nothing to do: pocketcoder up installs it into the data directory; or "+c.Get
	}
	return c
}

// checkData checks whether the data directory can be used. It does not create it.
func checkData(d datadir.Dir) check {
	c := check{Name: "data", State: checkOK, Found: string(d), For: "the log, the read models and the keys",
		Get: "choose another with --data"}
	fail := func(format string, args ...any) check {
		c.State, c.Found = checkWrong, string(d)+": "+fmt.Sprintf(format, args...)
		return c
	}
	dir := existing(string(d))
	probe, err := os.CreateTemp(dir, ".doctor-*")
	if err != nil {
		return fail("cannot be written: %v", err)
	}
	defer os.Remove(probe.Name())
	probe.Close()
	if dir != string(d) {
		c.Found += ", which does not exist yet"
		return c
	}
	if err := d.Usable(); err != nil {
		return fail("%v", err)
	}
	v, err := os.ReadFile(d.Path("version"))
	if err == nil {
		err = datadir.CheckVersion(string(v))
	}
	if errors.Is(err, fs.ErrNotExist) {
		c.Found += ", empty"
	} else if err != nil {
		return fail("%v", err)
	}
	if r, err := d.Running(); err == nil {
		c.Found += fmt.Sprintf(", in use by pid %d since %s", r.PID, r.Started.Local().Format("2006-01-02 15:04"))
	}
	return c
}

// existing returns the path, or its nearest parent that exists.
func existing(path string) string {
	for {
		if _, err := os.Stat(path); err == nil || path == filepath.Dir(path) {
			return path
		}
		path = filepath.Dir(path)
	}
}

// enoughDisk is the recommended free space in bytes. OpenCode needs a third of it, and the log grows forever.
const enoughDisk = 1 << 30

func checkDisk(d datadir.Dir) check {
	c := check{Name: "disk", State: checkOK, For: "the log, which refuses what does not fit",
		Get: "free some space, or choose another disk with --data"}
	var fs syscall.Statfs_t
	if err := syscall.Statfs(existing(string(d)), &fs); err != nil {
		c.State, c.Found = checkWrong, err.Error()
		return c
	}
	free := int64(fs.Bavail) * int64(fs.Bsize)
	if c.Found = display.Size(free) + " free"; free < enoughDisk {
		c.State, c.Found = checkWrong, c.Found+", less than "+display.Size(enoughDisk)
	}
	return c
}

// checkQuarantine counts the names in the quarantines of the workers that up starts.
func checkQuarantine(d datadir.Dir) check {
	n := 0
	for _, p := range d.Projects() {
		items, _ := fs.Glob(os.DirFS(p.Quarantine), "*/item") // the pattern is valid
		n += len(items)
	}
	return check{Name: "quarantine", State: checkOK, Found: fmt.Sprintf("%d below %s", n, d),
		For: "files that commands created, until a person decides about them"}
}

// checkHTTP checks the health of the running system, or whether the port is free.
func checkHTTP(ctx context.Context, o doctorOptions) check {
	c := check{Name: "http", State: checkOK, For: "browsers and phones", Get: "choose another with --http"}
	if r, err := o.data.Running(); err == nil {
		return c.health(ctx, r.HTTP)
	}
	l, err := net.Listen("tcp", o.http)
	if err != nil {
		c.State, c.Found = checkWrong, err.Error()
		return c
	}
	l.Close()
	c.Found = o.http + " is free; no system runs on this data directory"
	return c
}

// health asks a running system for the state of each part.
func (c check) health(ctx context.Context, url string) check {
	c.Get = "see what \"pocketcoder up\" says, or start it again"
	ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, url+"/api/health", nil)
	if err != nil {
		c.State, c.Found = checkWrong, err.Error()
		return c
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		c.State, c.Found = checkWrong, err.Error()
		return c
	}
	defer resp.Body.Close()
	var body struct {
		Data map[string]struct{ State string }
	}
	if err := json.NewDecoder(resp.Body).Decode(&body); err != nil {
		c.State, c.Found = checkWrong, fmt.Sprintf("%s: %v", url, err)
		return c
	}
	var parts []string
	for name, part := range body.Data {
		parts = append(parts, name+" "+part.State)
	}
	slices.Sort(parts)
	c.Found = url + ": " + strings.Join(parts, ", ")
	if resp.StatusCode != http.StatusOK {
		c.State = checkWrong
	}
	return c
}

// checkLosses lists the events that the log has lost.
func checkLosses(d datadir.Dir) check {
	c := check{Name: "log", State: checkOK, Found: "no loss is known", For: "keeping every event"}
	losses, err := recovery.Losses(string(d))
	if err != nil {
		c.State, c.Found, c.Get = checkWrong, err.Error(), "start the system once: it begins a new note"
		return c
	}
	var named []string
	for _, l := range losses {
		if named = append(named, l.Found.Format(time.DateTime)+" "+l.String()); !l.Acknowledged() {
			c.State = checkWrong
		}
	}
	if len(named) > 0 {
		c.Found = strings.Join(named, "\n")
		c.Get = "a backup may have the events; remove or move the directory of a report when you have read it, and it counts as acknowledged"
	}
	return c
}

// checkConsumers asks a running system for the consumers of the log that do no work.
func checkConsumers(ctx context.Context, d datadir.Dir) check {
	c := check{Name: "consumers", State: checkOK, Found: "all of them work",
		For: "what follows from events, such as decisions by rules and notifications"}
	var l routes.LogState
	if c.ask(ctx, d, &l) && len(l.Stalled) > 0 {
		c.State, c.Found = checkWrong, strings.Join(l.Stalled, "\n")
		c.Get = `see what "pocketcoder up" says, or start it again`
	}
	return c
}

// checkEvents asks a running system for the events that cannot be read.
func checkEvents(ctx context.Context, d datadir.Dir) check {
	c := check{Name: "events", State: checkOK, Found: "all of them can be read",
		For: "replaying chats, and what is computed from the log"}
	var l routes.LogState
	if !c.ask(ctx, d, &l) || l.DeadLetters.Count == 0 {
		return c
	}
	letters := l.DeadLetters
	named := []string{fmt.Sprintf("%d cannot be read or applied", letters.Count)} // one line each
	for _, l := range letters.Oldest {
		named = append(named, l.Error)
	}
	if more := letters.Count - len(letters.Oldest); more > 0 {
		named = append(named, fmt.Sprintf("and %d more", more))
	}
	c.State, c.Found = checkWrong, strings.Join(named, "\n")
	c.Get = "everything else works without them; an event of a newer form needs a newer pocketcoder, and an older copy of the " +
		"data directory may still have a lost body"
	return c
}

// ask asks a running system what is wrong with its log. It reports whether the system has answered. Otherwise c says
// why not.
func (c *check) ask(ctx context.Context, d datadir.Dir, answer *routes.LogState) bool {
	s, err := client.Connect(ctx, client.Address{Data: d})
	if errors.Is(err, datadir.ErrNotRunning) {
		c.Found = "not checked: no system runs on this data directory"
		return false
	}
	if err == nil {
		defer s.Close()
		err = s.Get(ctx, "/api/pocketcoder/log", answer)
	}
	if err != nil {
		c.State, c.Found, c.Get = checkWrong, err.Error(), `see what "pocketcoder up" says`
	}
	return err == nil
}
