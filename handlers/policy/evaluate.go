package policy

import (
	"slices"
	"strings"

	"pocketcoder/events"
	"pocketcoder/handlers/policy/display"
	"pocketcoder/handlers/policy/files"
	"pocketcoder/handlers/policy/program"
)

// Explain evaluates a request. It also returns for every rule whether it matched, and why.
func Explain(rules []Rule, a Input) (Verdict, []CheckedRule) {
	e := evaluation{ask: a.bounded(), rules: make([]*compiledRule, len(rules)), looked: make([]CheckedRule, len(rules))}
	for i, r := range rules {
		e.looked[i] = CheckedRule{Rule: r}
		if applies(r.Permission, a.Type) {
			e.rules[i] = compile(r)
		} else {
			e.rules[i] = &compiledRule{Rule: r}
		}
	}
	v := e.decide()
	byRule := v.Action == AskPerson && len(v.Rules) > 0
	if e.ask.budget.Spent() && v.Action != Deny && !byRule {
		v = askFor(files.TooLong)
	}
	if a.Hidden != "" && v.Action == Allow {
		v = askFor(a.Hidden)
	}
	for i := range e.looked {
		if e.looked[i].Why == "" {
			e.looked[i].Why = "was not needed"
		}
	}
	return v, e.looked
}

// applies reports whether rules with a permission are checked for a request of a type: those of its own type, and for
// commands, searches and writes also those about files.
func applies(permission, requested string) bool {
	return permission == requested || permission == "*" || permission == events.KindMCP ||
		(permission == events.KindRead || writes(permission)) && (requested == events.KindBash || writes(requested)) ||
		permission == events.KindRead && requested == events.KindGrep
}

// evaluation is the evaluation of one request with all rules.
type evaluation struct {
	ask    Input
	rules  []*compiledRule
	looked []CheckedRule
	walks  map[string]string // causes of the folders that were walked
}

// decide evaluates the request by its permission type.
func (e *evaluation) decide() Verdict {
	if e.ask.Refused != "" {
		return Verdict{Action: Deny, Reason: e.ask.Refused}
	}
	if cause := e.ask.unusableCause(); cause != "" {
		return Verdict{Action: Deny, Reason: cause}
	}
	switch t := e.ask.Type; {
	case about(t) == events.AboutCommand:
		return e.bash()
	case t == events.KindExternalDirectory:
		return e.external()
	case about(t) == events.AboutPath:
		return e.path()
	case about(t) == events.AboutSearch:
		return e.search()
	case about(t) == events.AboutURL:
		return e.webfetch()
	case about(t) == events.AboutHost:
		return e.network()
	case t == events.KindKeep:
		return askFor("Programs of this machine obey a file with this name. If you created it yourself while the command " +
			"ran, keep it.")
	default:
		return e.byName()
	}
}

// matching returns the rules with an action that match the request, and records the result for every rule.
func (e *evaluation) matching(action Action, types []string, matches func(*compiledRule) bool) (found []Rule) {
	for i, r := range e.rules {
		l := &e.looked[i]
		switch {
		case r.action() != action:
		case !slices.Contains(types, r.Permission) && r.Permission != "*":
			l.Why = "is for " + r.Permission
		case r.wrong != nil:
			l.Why = "is broken: " + r.wrong.Error()
		case matches(r):
			l.Matched, l.Why = true, "matches"
			found = append(found, r.Rule)
		default:
			l.Why = "does not match"
		}
	}
	return found
}

// forbid returns the verdict of the rules that deny or ask, if one matches.
func (e *evaluation) forbid(types []string, matches func(*compiledRule) bool) (v Verdict, done bool) {
	denied := e.matching(Deny, types, matches)
	asking := e.matching(AskPerson, types, matches)
	switch {
	case len(denied) > 0:
		return Verdict{Deny, denied[:1], "a rule denies it: " + denied[0].String()}, true
	case len(asking) > 0:
		return Verdict{AskPerson, asking[:1], "a rule wants a person to decide: " + asking[0].String()}, true
	}
	return v, false
}

// permit returns the verdict of the rules that allow, unless there is a cause to ask.
func (e *evaluation) permit(types []string, cause string, matches func(*compiledRule) bool) Verdict {
	allowed := e.matching(Allow, types, matches)
	switch {
	case len(allowed) == 0 && cause == "":
		return askFor("no rule allows it")
	case cause != "":
		return askFor(cause)
	}
	return Verdict{Allow, allowed[:1], "a rule allows it: " + allowed[0].String()}
}

func askFor(cause string) Verdict { return Verdict{Action: AskPerson, Reason: cause} }

// unusableCause returns why OpenCode's tool cannot use a path, whatever the verdict is: the path does not exist for it,
// or is not a regular file, on which it would block forever.
func (a Input) unusableCause() string {
	if !events.RequestKinds[a.Type].OpensFiles {
		return ""
	}
	for _, p := range a.paths() {
		at, cause := a.workspace().Locate(a.Cwd, p)
		if cause != "" || at.Lexical == "/dev/null" {
			continue
		}
		if a.Irregular != nil {
			if what := a.Irregular(at.Real); what != "" {
				return display.QuotePath(at.Lexical) + " is " + what + ". OpenCode opens only regular files and directories."
			}
		}
		if a.Visible != nil && a.Root != "" && !files.Within(a.Root, at.Real) && !a.Visible(at.Real) {
			return display.QuotePath(at.Real) + " does not exist for OpenCode. It sees the workspace, the system's programs and the directories of --expose."
		}
	}
	return ""
}

// paths returns the files and folders of a request of a file tool.
func (a Input) paths() []string {
	switch {
	case writes(a.Type) && len(a.Patterns) > 1:
		return a.Patterns
	case a.Path == "":
		return nil
	}
	return []string{a.Path}
}

// external evaluates a request to leave the workspace. If the tool makes its own request for the same paths, a person
// sees only that one. Rules that deny or ask still apply.
func (e *evaluation) external() Verdict {
	v := e.path()
	if own := e.ask.Own; v.Action == AskPerson && len(v.Rules) == 0 && own != "" {
		return Verdict{Action: Allow, Reason: "the request of " + own + " decides about the same paths"}
	}
	return v
}

// path evaluates a request for one file or folder. The reason names the target of a symlink, because the request names
// only the link.
func (e *evaluation) path() Verdict {
	return e.withTarget(e.file())
}

// withTarget adds the targets of symlinks to the reason of a question.
func (e *evaluation) withTarget(v Verdict) Verdict {
	if leads := e.ask.linkCause(); leads != "" && v.Action == AskPerson {
		v.Reason = leads + "; " + v.Reason
	}
	return v
}

// file evaluates the real location of the file. Rules that deny or ask about edit also apply to write, and the reverse.
func (e *evaluation) file() Verdict {
	a := e.ask
	at, cause := a.workspace().Locate(a.Cwd, a.Path)
	switch {
	case a.Unsure != "":
		cause = a.Unsure
	case cause == "" && len(a.Patterns) > 1:
		cause = "it is about several files at once"
	case a.Type == events.KindExternalDirectory && a.Path == "" && len(a.Patterns) > 0:
		cause = a.outsideCause()
	}
	found := cause == ""
	matches := func(r *compiledRule) bool { return found && r.path.matches(at.Real, a.Root) }
	either := func(r *compiledRule) bool {
		return r.coversAll() || found && r.covers(a.lower(at)) || a.coversOutside(r) || a.writesSeveral(r)
	}
	types := []string{a.Type}
	if writes(a.Type) {
		types = []string{events.KindEdit, events.KindWrite}
	}
	if v, done := e.forbid(types, either); done {
		return v
	}
	switch {
	case !found:
	case a.Type == events.KindRead, a.Type == events.KindList:
		cause = a.workspace().MayRead(at)
	default:
		cause = a.workspace().MayWrite(at)
	}
	return e.permit([]string{a.Type, a.Also}, cause, matches)
}

// writesSeveral reports whether a rule that denies or asks covers one of the files of a patch.
func (a Input) writesSeveral(r *compiledRule) bool {
	return writes(a.Type) && len(a.Patterns) > 1 && slices.ContainsFunc(a.Patterns, func(p string) bool {
		at, cause := a.workspace().Locate(a.Cwd, p)
		return cause == "" && r.covers(a.lower(at))
	})
}

// coversOutside reports whether a rule that denies or asks covers one of the folders outside the workspace that a
// command uses. OpenCode writes each as folder/*.
func (a Input) coversOutside(r *compiledRule) bool {
	return a.Type == events.KindExternalDirectory && slices.ContainsFunc(a.Patterns, func(p string) bool {
		at, cause := a.workspace().Locate(a.Cwd, strings.TrimSuffix(p, "*"))
		return cause == "" && (r.covers(a.lower(at)) ||
			r.covers(a.lower(files.Location{Lexical: at.Lexical + "/*", Real: at.Real + "/*"})))
	})
}

func writes(permission string) bool {
	return permission == events.KindEdit || permission == events.KindWrite
}

// search evaluates a search for files or text. OpenCode searches the folder of the path, symlinks resolved, or the
// parent folder if the path is a file.
func (e *evaluation) search() Verdict {
	return e.withTarget(e.tree())
}

func (e *evaluation) tree() Verdict {
	a := e.ask
	cause := ""
	for _, p := range a.Patterns {
		if why := display.Misleading(p, true); why != "" {
			cause = "the pattern cannot be trusted: " + why
		}
		if a.Type == events.KindGlob &&
			(strings.HasPrefix(p, "/") || strings.HasPrefix(p, "~") || strings.Contains(p, "..")) {
			cause = display.Quote(p) + " may lead out of the workspace"
		}
	}
	if len(a.Patterns) == 0 {
		cause = "what to look for is not known"
	}
	folder := a.Root
	if a.Path != "" {
		at, why := a.workspace().Locate(a.Cwd, a.Path)
		folder = at.Real
		switch clean, _ := a.workspace().Locate(a.Cwd, at.Lexical); {
		case why != "":
			cause = why
		case clean.Real != at.Real: // OpenCode's tools resolve such a path in different ways
			cause = display.QuotePath(a.Path) + " leads to two places: " + display.QuotePath(at.Real) + " and " +
				display.QuotePath(clean.Real)
		default:
			if why := a.workspace().MayRead(at); why != "" {
				cause = why
			}
		}
	}
	matches := func(r *compiledRule) bool {
		return r.coversAll() || r.Pattern == Inside && (folder == "" || files.Within(a.Root, folder))
	}
	if v, done := e.forbid([]string{a.Type}, matches); done {
		return v
	}
	if cause == "" {
		cause = e.searchCause(folder)
	}
	return e.permit([]string{a.Type}, cause, matches)
}

func (e *evaluation) webfetch() Verdict {
	u, cause := readURL(e.ask.URL)
	forbids := func(r *compiledRule) bool { return r.coversAll() || cause == "" && r.url.forbids(u) }
	if v, done := e.forbid([]string{events.KindWebfetch}, forbids); done {
		return v
	}
	return e.permit([]string{events.KindWebfetch}, cause, func(r *compiledRule) bool {
		return cause == "" && r.url.matches(u) && r.url.allows(u)
	})
}

// byName evaluates a request that has only a name: a tool, a subagent, a skill, notes.
func (e *evaluation) byName() Verdict {
	a := e.ask
	names, types := a.Patterns, []string{a.Type}
	if about(a.Type) == events.AboutTool && a.Type != "" || a.Type == events.KindMCP {
		types = []string{events.KindMCP, a.Type}
		if names = []string{a.Type}; a.Tool != "" {
			names = []string{a.Tool}
		}
	}
	if v, done := e.forbid(types, func(r *compiledRule) bool {
		return r.coversAll() || slices.ContainsFunc(names, func(name string) bool { return program.Glob(r.Pattern, name) })
	}); done {
		return v
	}
	if events.RequestKinds[a.Type].PersonOnly {
		return askFor(a.Type + " is always for a person to decide")
	}
	cause := ""
	if a.Type == events.KindLSP && a.Path != "" {
		cause = a.readCause(a.Path)
	}
	return e.permit(types, cause, func(r *compiledRule) bool {
		return len(names) > 0 && !slices.ContainsFunc(names, func(name string) bool {
			return name == "" || r.Pattern != name &&
				!(about(a.Type) == events.AboutNothing && program.Glob(r.Pattern, name))
		})
	})
}

// readCause returns why only a person may allow reading a path: it leads out of the workspace, or may hold secrets.
func (a Input) readCause(p string) string {
	at, cause := a.workspace().Locate(a.Cwd, p)
	switch {
	case cause != "":
		return cause
	case !files.Within(a.Root, at.Real):
		return display.Quote(p) + " is outside the workspace"
	}
	return a.workspace().MayRead(at)
}
