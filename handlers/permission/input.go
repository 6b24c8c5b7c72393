package permission

import (
	"cmp"
	"context"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"pocketcoder/events"
	"pocketcoder/handlers/permission/workspace"
	"pocketcoder/handlers/policy"
	"pocketcoder/handlers/rule"
)

// caller is the agent that makes a request, as Call has it.
type caller struct{ Agent, Chosen string }

func (by caller) scope(chat string) rule.Scope {
	return rule.Scope{Chat: chat, Agent: by.Agent, Chosen: by.Chosen, At: time.Now()}
}

// input returns the input of the policy, and the agent that makes the request. It reads the disk, because
// the policy does no I/O. It leaves unknown fields empty, and the policy then asks a person.
func (g Gate) input(ctx context.Context, chat string, a events.PermissionRequest, direct bool,
	wait time.Duration) (in policy.Input, by caller) {
	directory := g.directory(chat, a.SessionID, direct)
	in = g.inputOf(g.Permissions.originals.of(a), directory)
	in.Done = ctx.Done()
	switch {
	case direct && a.Permission == events.KindNetwork: // its call is that of the command
		call, _ := g.Call(ctx, a.SessionID, a.Tool, 0)
		return in, caller{call.Agent, call.Chosen}
	case direct:
		return in, by // the author could name any call, and nothing runs
	}
	if !events.RequestKinds[a.Permission].NeedsCall {
		wait = 0
	}
	call, ok := g.Call(ctx, a.SessionID, a.Tool, wait)
	ok = ok && directory != ""
	several := call.Several || ok && !call.requests(a, directory)
	if !several && events.RequestKinds[a.Permission].OncePerCall {
		several = g.Permissions.hasOtherRequest(ctx, chat, a)
	}
	if several {
		call, ok = Call{Agent: call.Agent, Chosen: call.Chosen}, false
	}
	if strings.Contains(call.Path+call.Cwd, events.Redacted) {
		in.Hidden = concealed // the read model holds the call as it is stored
	}
	switch a.Permission {
	case events.KindEdit:
		if call.Tool == events.KindWrite {
			in.Also = events.KindWrite // OpenCode asks for both tools as edit
		}
	case events.KindRead, events.KindLSP:
		// the patterns of read are cleaned, but the file is opened as the call names it; lsp may name none
		switch {
		case several:
			in.Refused = severalCalls
		case !ok && a.Permission == events.KindRead:
			in.Unsure = "the file that the tool call names is not known"
		}
		if in.Hidden == "" {
			in.Path = cmp.Or(call.Path, in.Path)
		}
	case events.KindExternalDirectory:
		if slices.Contains(ownRequests, call.Tool) {
			in.Own = call.Tool
		}
	case events.KindBash:
		in.Cwd = ""
		if ok && in.Root != "" && in.Hidden == "" {
			in.Cwd, _ = workspace.RealPath(call.Cwd)
		}
	}
	return in, caller{call.Agent, call.Chosen}
}

// severalCalls tells the model why its request was denied. The tool call of the request is ambiguous, so a person
// could not see which file OpenCode would open.
const severalCalls = "Another tool call of this message has the same id, or the request differs from its call, so it is not known which file would be opened. Call one tool at a time."

// hasOtherRequest reports whether the chat has another request of the same type for the same call of the same message.
// It reports true when the log cannot be read.
func (h *Permissions) hasOtherRequest(ctx context.Context, chat string, a events.PermissionRequest) bool {
	if a.Tool.CallID == "" {
		return false // Gate.Call knows no such call
	}
	found := false
	err := h.Chat(ctx, chat).Read(ctx, h.Log, func(s *State) error {
		for _, other := range s.calls[call{a.SessionID, a.Tool.CallID}] {
			found = found || other.ID != a.ID && other.Type == a.Permission && other.Session == a.SessionID &&
				other.Message == a.Tool.MessageID && other.Call == a.Tool.CallID
		}
		return nil
	})
	return found || err != nil
}

// requests reports whether the content of a request matches this call. A model chooses the ids of its calls, so a call
// with the id that the request names may be another one.
func (c Call) requests(a events.PermissionRequest, directory string) bool {
	about := a.About()
	switch a.Permission {
	case events.KindBash:
		return c.Command == about.Command
	case events.KindRead:
		// the policy asks about several files
		return len(a.Patterns) != 1 || c.Path != "" && workspace.Means(directory, a.Patterns[0], c.Path)
	case events.KindLSP:
		return c.Path == "" || about.Lsp == "" || filepath.Clean(c.Path) == filepath.Clean(about.Lsp)
	case events.KindEdit:
		return len(about.Files) > 0 || filepath.Clean(c.Path) == filepath.Clean(about.Filepath)
	case events.KindExternalDirectory:
		if about.Command != "" || c.Tool == events.KindBash {
			return about.Command != "" && c.Tool == events.KindBash && about.Command == c.Command
		}
		return c.Path == "" || about.Filepath == "" || filepath.Clean(c.Path) == filepath.Clean(about.Filepath)
	}
	return true
}

// ownRequests are OpenCode's tools that, besides external_directory, request a permission of their own for the same
// paths: grep and glob before, the others after. Without a decision on a command of bash, exec runs nothing.
var ownRequests = []string{events.KindBash, events.KindRead, events.KindEdit, events.KindWrite, "apply_patch",
	events.KindGrep, events.KindGlob, events.KindLSP}

// directory returns the directory of a request's session, "" if it is unknown. A request over the API may name no
// session.
func (g Gate) directory(chat, session string, direct bool) string {
	if s, ok := g.Session(session); ok && s.Chat == chat {
		return s.Directory
	}
	if direct {
		return g.Workspace
	}
	return ""
}

// inputOfStored is inputOf for a request as the log holds it.
func (g Gate) inputOfStored(a events.PermissionRequest, directory string) policy.Input {
	return g.inputOf(originalRequest{a, a.Redacted()}, directory)
}

// inputOf returns the input of the policy for a request of a session that works in a directory.
func (g Gate) inputOf(a originalRequest, directory string) policy.Input {
	in := workspace.Input(a.PermissionRequest, directory)
	in.Visible = g.Visible
	if a.partial {
		in.Hidden = concealed
	}
	return in
}
