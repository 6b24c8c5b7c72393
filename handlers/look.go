package handlers

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"

	"pocketcoder/events"
	"pocketcoder/handlers/policy"
)

// input is what the policy looks at, and the name of the agent that asks. What is on disk is looked up here, because the
// policy does no I/O; what cannot be found out is left empty, and the policy asks.
func (g Gate) input(ctx context.Context, chat string, a events.PermissionAsk, intended bool, wait time.Duration) (in policy.Ask, agent string) {
	directory := g.directory(chat, a.SessionID, intended)
	in = g.askOn(a, directory)
	in.Done = ctx.Done()
	switch {
	case intended && a.Permission == NetworkAsk: // its call is that of the command
		call, _ := g.Call(ctx, a.SessionID, a.Tool, 0)
		return in, call.Agent
	case intended:
		return in, "" // nobody vouches for the call, and nobody runs it
	}
	if !slices.Contains(askedByCall, a.Permission) {
		wait = 0
	}
	call, ok := g.Call(ctx, a.SessionID, a.Tool, wait)
	ok = ok && directory != ""
	several := call.Several || ok && !call.requests(a, directory)
	if !several && slices.Contains(singleRequestTypes, a.Permission) {
		several = g.Handlers.hasOtherRequest(ctx, chat, a)
	}
	if several {
		call, ok = Call{Agent: call.Agent}, false
	}
	switch a.Permission {
	case "edit":
		if call.Tool == "write" {
			in.Also = "write" // OpenCode asks for both tools as edit
		}
	case "read", "lsp": // the patterns of read are cleaned, but the file is opened as the call names it; lsp may name none
		switch {
		case several:
			in.Refused = severalCalls
		case !ok && a.Permission == "read":
			in.Unsure = "the file that the tool call names is not known"
		}
		in.Path = cmp.Or(call.Path, in.Path)
	case "external_directory":
		if slices.Contains(ownRequests, call.Tool) {
			in.Own = call.Tool
		}
	case "bash":
		in.Cwd = ""
		if ok && in.Root != "" {
			in.Cwd, _ = RealPath(call.Cwd)
		}
	}
	return in, call.Agent
}

// severalCalls says to the model why a request is denied whose tool call is not known. A person could not see either which file
// OpenCode would open.
const severalCalls = "Another tool call of this message has the same id, or the request differs from its call, so it is not known which file would be opened. Call one tool at a time."

// singleRequestTypes are the types of which a tool call makes at most one request.
var singleRequestTypes = []string{"bash", "edit", "read", "lsp"}

// hasOtherRequest reports whether the chat has another request of the same type for the same call of the same message. It reports
// true when the log cannot be read.
func (h *Handlers) hasOtherRequest(ctx context.Context, chat string, a events.PermissionAsk) bool {
	if a.Tool.CallID == "" {
		return false // Gate.Call knows no such call
	}
	f := h.chatPermissions(ctx, chat)
	f.mu.Lock()
	defer f.mu.Unlock()
	if err := f.advance(ctx, h.Log); err != nil {
		return true
	}
	for id, other := range f.state.(*permissions).asks {
		if id != a.ID && other.typ == a.Permission && other.session == a.SessionID && other.message == a.Tool.MessageID && other.call == a.Tool.CallID {
			return true
		}
	}
	return false
}

// requests reports whether a request can be one of this call, by what both say. A model chooses the ids of its calls, so that
// a request may be about another call than the one that is found by its id.
func (c Call) requests(a events.PermissionAsk, directory string) bool {
	about := subjectOf(a)
	switch a.Permission {
	case "bash":
		return c.Command == about.Command
	case "read":
		return len(a.Patterns) != 1 || c.Path != "" && means(directory, a.Patterns[0], c.Path) // the policy asks about several files
	case "lsp":
		return c.Path == "" || about.Lsp == "" || filepath.Clean(c.Path) == filepath.Clean(about.Lsp)
	case "edit":
		return len(about.Files) > 0 || filepath.Clean(c.Path) == filepath.Clean(about.Filepath)
	case "external_directory":
		var command struct{ Command *string } // of bash only
		_ = json.Unmarshal(a.Metadata, &command)
		if command.Command != nil || c.Tool == "bash" {
			return command.Command != nil && c.Tool == "bash" && *command.Command == c.Command
		}
		return c.Path == "" || about.Filepath == "" || filepath.Clean(c.Path) == filepath.Clean(about.Filepath)
	}
	return true
}

// means reports whether a pattern of OpenCode stands for a path. OpenCode writes it relative to its worktree, which is the
// directory or one above it, and without dots.
func means(directory, pattern, path string) bool {
	path = filepath.Clean(path)
	if filepath.IsAbs(pattern) {
		return filepath.Clean(pattern) == path
	}
	real, _ := RealPath(directory)
	for _, root := range []string{directory, real} {
		for root != "" {
			if filepath.Join(root, pattern) == path {
				return true
			}
			if root == filepath.Dir(root) {
				break
			}
			root = filepath.Dir(root)
		}
	}
	return false
}

// askedByCall are the types of the requests that are read together with the arguments of their tool call.
var askedByCall = []string{"bash", "edit", "read", "lsp", "external_directory"}

// ownRequests are OpenCode's tools that, besides external_directory, request a permission of their own for the same paths: grep and
// glob before, the others after. Without a decision on a command of bash, exec runs nothing.
var ownRequests = []string{"bash", "read", "edit", "write", "apply_patch", "grep", "glob", "lsp"}

// irregular returns what a path is when it is neither a regular file nor a directory.
func irregular(path string) string {
	info, err := os.Stat(path)
	if err != nil {
		return ""
	}
	switch mode := info.Mode(); {
	case mode&fs.ModeNamedPipe != 0:
		return "a FIFO"
	case mode&fs.ModeSocket != 0:
		return "a socket"
	case mode&fs.ModeDevice != 0:
		return "a device"
	case mode.IsRegular(), mode.IsDir():
		return ""
	}
	return "not a regular file"
}

// directory is where the session of an ask works, empty when that is not known. What is asked over the API may name none.
func (g Gate) directory(chat, session string, intended bool) string {
	if s, ok := g.Session(session); ok && s.Chat == chat {
		return s.Directory
	}
	if intended {
		return g.Workspace
	}
	return ""
}

// subject is what the metadata of an ask say it is about.
type subject struct {
	Command  string `json:"command"`  // bash
	Filepath string `json:"filepath"` // edit, external_directory
	Lsp      string `json:"filePath"` // lsp
	Folder   string `json:"path"`     // grep, glob: the folder or file, absolute or relative to the session's directory
	Include  string `json:"include"`  // grep: a glob of the files that are searched
	URL      string `json:"url"`      // webfetch

	// Of a patch, each file absolute, and where it is moved. Its filepath holds the names alone, from OpenCode's worktree.
	Files []struct {
		FilePath string `json:"filePath"`
		MovePath string `json:"movePath"`
		Type     string `json:"type"` // add, update, delete, move
	} `json:"files"`
}

// patched gives every file that a patch writes.
func (s subject) patched() (paths []string) {
	for _, f := range s.Files {
		paths = append(paths, f.FilePath)
		if f.MovePath != "" {
			paths = append(paths, f.MovePath)
		}
	}
	return paths
}

func subjectOf(a events.PermissionAsk) (s subject) {
	_ = json.Unmarshal(a.Metadata, &s) // of whatever shape it is: the policy asks about what is missing
	if a.Permission != "bash" {
		s.Command = ""
	}
	return s
}

// askOn is an ask of a session that works in a directory, as the policy looks at it; its command would run there.
func (g Gate) askOn(a events.PermissionAsk, directory string) policy.Ask {
	about := subjectOf(a)
	in := policy.Ask{
		Type: a.Permission, Patterns: a.Patterns, Command: about.Command, Path: about.Filepath, URL: about.URL, Resolve: RealPath,
		List: ListFolder, Tracked: TrackedFiles, Irregular: irregular, Visible: g.Visible,
	}
	switch a.Permission {
	case "grep", "glob":
		in.Path, in.Include = about.Folder, about.Include
	case "lsp":
		in.Path = about.Lsp
	}
	in.Root, _ = RealPath(directory)
	in.Cwd, in.Ignored = in.Root, IgnoredBelow(in.Root)
	if paths := about.patched(); a.Permission == "edit" && len(paths) > 0 {
		in.Patterns, in.Path = paths, paths[0]
	}
	if len(a.Patterns) != 1 {
		return in
	}
	switch pattern := a.Patterns[0]; a.Permission {
	case "read", "list":
		if in.Path == "" && in.Root != "" {
			in.Path, _ = locate(directory, pattern)
		}
	case "edit", "write":
		in.Path = cmp.Or(in.Path, pattern)
	case "webfetch":
		in.URL = cmp.Or(in.URL, pattern)
	case NetworkAsk:
		in.Address = pattern
	case "mcp": // OpenCode asks under the tool's own name
		in.Tool = pattern
	}
	return in
}

// locate finds the file a pattern means. OpenCode writes it relative to its worktree: the directory, the git repository
// around it, or / outside of one. That is taken which exists; when several do, none is.
func locate(directory, pattern string) (path string, ok bool) {
	if filepath.IsAbs(pattern) {
		return pattern, true
	}
	var is string
	for root := directory; ; root = filepath.Dir(root) {
		here := filepath.Join(root, pattern)
		if real, err := filepath.EvalSymlinks(here); err == nil {
			if ok && is != real {
				return "", false
			}
			if !ok {
				path, is, ok = here, real, true
			}
		}
		if root == filepath.Dir(root) {
			return path, ok
		}
	}
}

// RealPath gives a path with its symlinks resolved: of what exists, the rest is appended. A link to nowhere leads where
// its target would be: whoever writes to it makes a file there.
func RealPath(path string) (real string, ok bool) {
	if !filepath.IsAbs(path) || strings.ContainsRune(path, 0) {
		return "", false
	}
	const most = 40 // as many links as Linux follows
	at, rest := "/", strings.Split(filepath.Clean(path), "/")
	for links := 0; len(rest) > 0; {
		name := rest[0]
		rest = rest[1:]
		switch name {
		case "", ".":
			continue
		case "..":
			at = filepath.Dir(at)
			continue
		}
		next := filepath.Join(at, name)
		target, err := os.Readlink(next)
		switch {
		case err == nil && (links == most || next == "/proc" || strings.HasPrefix(next, "/proc/")):
			return "", false // links in /proc lead elsewhere in another process
		case err == nil:
			links++
			rest = append(strings.Split(target, "/"), rest...)
			if filepath.IsAbs(target) {
				at = "/"
			}
		case errors.Is(err, syscall.EINVAL): // it is no link
			at = next
		case errors.Is(err, fs.ErrNotExist) && !slices.Contains(rest, ".."):
			return filepath.Join(append([]string{next}, rest...)...), true
		default:
			return "", false
		}
	}
	return at, true
}
