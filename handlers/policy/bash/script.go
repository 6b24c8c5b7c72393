// Package bash reads a command's text as bash does, with the parser of mvdan.cc/sh: into simple commands, their words,
// the files that the shell itself opens for them, and the folders that cd leads to.
//
// Promises: what it cannot read in full has a cause in Script.Cause. Script.All and Script.Redirects hold every simple
// command and every redirect anywhere in the text, also in substitutions, functions and the arguments of programs that
// run others.
//
// It must not know rules, or which commands are harmless.
package bash

import (
	"cmp"
	"fmt"
	"path"
	"regexp"
	"strings"

	"mvdan.cc/sh/v3/syntax"

	"pocketcoder/handlers/policy/display"
	"pocketcoder/handlers/policy/program"
)

// Command is a simple command.
type Command struct {
	Words     []string // without quotes
	Text      string   // as written, with its quotes
	Line      int      // index of its statement, from 0
	Piped     bool     // reads the output of the command before it
	Sure      bool     // the next command of the statement runs only if this one succeeds, in the same shell
	Redirects []Redirect
}

// Redirect is a file that the shell opens for a command.
type Redirect struct {
	Writes bool
	Target string
}

// maxCommand limits the length of a command, in bytes. A person decides about longer ones.
const maxCommand = 4 << 10

// maxCommands limits the simple commands of a text.
const maxCommands = 64

// Script is the parsed text of a command.
type Script struct {
	Plain     []Command  // in order; complete only if Cause is empty
	Cause     string     // why the text is not only plain commands
	All       [][]string // every simple command of the text, as far as its words are known
	Redirects []Redirect // every redirect of the text
	Detached  bool       // runs in the background: the text begins with DetachWord
}

// DetachWord begins a command that runs in the background, so that the caller does not wait for it.
const DetachWord = "detach"

// Detached returns the command after "detach " at the very beginning of a text. ok is false for another text.
// Elsewhere, or in quotes, the word is the name of a program, which does not exist.
func Detached(command string) (rest string, ok bool) {
	rest, ok = strings.CutPrefix(command, DetachWord+" ")
	return rest, ok && strings.TrimSpace(rest) != ""
}

// Read parses a command that may begin with DetachWord. Plain then has the commands without the word, and All has each
// command with and without it.
func Read(text string) Script {
	rest, detached := Detached(text)
	if !detached {
		return Parse(text)
	}
	s := Parse(rest)
	s.Detached = true
	for _, words := range s.All[:len(s.All):len(s.All)] {
		s.All = append(s.All, append([]string{DetachWord}, words...))
	}
	return s
}

// Parse parses a command as bash does. It takes DetachWord as the name of a program.
func Parse(text string) (s Script) {
	switch {
	case strings.TrimSpace(text) == "":
		return Script{Cause: "the command is empty"}
	case len(text) > maxCommand:
		s.Cause = "the command is too long to be read at a glance"
		if words := strings.Fields(text[:maxCommand]); len(words) > 0 {
			s.All = [][]string{words}
		}
		return s
	case strings.Contains(text, "\\\n"):
		s.Cause = "a backslash at the end of a line joins what does not look joined"
	default:
		if cause := display.Misleading(text, true); cause != "" {
			s.Cause = "the command cannot be trusted: " + cause
		}
	}
	file, err := syntax.NewParser(syntax.Variant(syntax.LangBash)).Parse(strings.NewReader(text), "")
	if err != nil {
		if words := strings.Fields(text); len(words) > 0 {
			s.All = [][]string{words}
		}
		if s.Cause == "" {
			s.Cause = "bash would not read it"
			if wrong, ok := err.(syntax.ParseError); ok {
				s.Cause += ": " + wrong.Text
			}
		}
		return s
	}
	s.collect(file, text, 0)
	for line, st := range file.Stmts {
		s.statement(st, text, Command{Line: line, Sure: true})
	}
	switch {
	case len(s.Plain) == 0:
		s.because("there is no command in it")
	case len(s.Plain) > maxCommands:
		s.because(fmt.Sprintf("it holds more than %d commands, too many to be read at a glance", maxCommands))
	}
	return s
}

// statement reads what is made of simple commands joined by &&, ||, ;, | and line ends; all else is a cause.
func (s *Script) statement(st *syntax.Stmt, text string, as Command) {
	switch {
	case st.Background, st.Coprocess, st.Disown:
		s.because("& lets it run on unseen")
	case st.Negated:
		s.because("! turns its result around")
	}
	switch c := st.Cmd.(type) {
	case *syntax.BinaryCmd:
		if c.Op != syntax.AndStmt && c.Op != syntax.OrStmt && c.Op != syntax.Pipe {
			s.because(c.Op.String() + " is not one of &&, ||, ; and |")
		}
		as.Sure = as.Sure && c.Op == syntax.AndStmt
		s.statement(c.X, text, as)
		as.Piped = c.Op == syntax.Pipe
		s.statement(c.Y, text, as)
	case *syntax.CallExpr:
		s.simple(st, c, text, as)
	case nil:
		s.because("a redirect without a command")
	default:
		from, to := int(c.Pos().Offset()), int(c.End().Offset())
		s.because(display.Quote(text[from:to]) + " is more than simple commands joined by &&, ||, ; and |")
	}
}

// because keeps the first cause.
func (s *Script) because(cause string) {
	s.Cause = cmp.Or(s.Cause, cause)
}

func (s *Script) simple(st *syntax.Stmt, call *syntax.CallExpr, text string, c Command) {
	if len(call.Assigns) > 0 {
		a := call.Assigns[0]
		s.because(display.Quote(text[a.Pos().Offset():a.End().Offset()]) + " sets a variable, which changes what programs do")
		return
	}
	c.Text = text[call.Pos().Offset():call.End().Offset()]
	for _, w := range call.Args {
		word, cause := plainWord(w, text)
		s.because(cause)
		c.Words = append(c.Words, word)
	}
	for _, r := range st.Redirs {
		redir, isFile, cause := plainRedirect(r, text)
		s.because(cause)
		if isFile {
			c.Redirects = append(c.Redirects, redir)
		}
	}
	s.Plain = append(s.Plain, c)
}

// collect finds every simple command and every redirect, also where the grammar is not plain: in substitutions, control
// flow, functions, behind programs that run what they are given, and in texts for a shell.
func (s *Script) collect(node syntax.Node, text string, depth int) {
	syntax.Walk(node, func(n syntax.Node) bool {
		switch n := n.(type) {
		case *syntax.CallExpr:
			var words []string
			for _, w := range n.Args {
				words = append(words, anyWord(w, text))
			}
			s.found(words, depth < 4, depth)
		case *syntax.DeclClause:
			words := []string{n.Variant.Value}
			for _, a := range n.Args {
				words = append(words, text[a.Pos().Offset():a.End().Offset()])
			}
			s.found(words, false, depth)
		case *syntax.Redirect:
			if r, isFile, _ := plainRedirect(n, text); isFile {
				s.Redirects = append(s.Redirects, r)
			}
		}
		return true
	})
}

// found keeps a command, and those it may run: of a program that runs its arguments every end of them, because which
// word the command begins with depends on the program's options.
func (s *Script) found(words []string, deeper bool, depth int) {
	if len(words) == 0 {
		return
	}
	s.All = append(s.All, words)
	name := path.Base(words[0])
	inside := false
	for i, w := range words[1:] {
		if inside = inside || program.RunsArguments(name, words[i], i == 0); inside {
			s.All = append(s.All, words[i+1:])
		}
		if deeper && strings.ContainsAny(w, " ;|&\n$`") {
			if inner, err := syntax.NewParser(syntax.Variant(syntax.LangBash)).Parse(strings.NewReader(w), ""); err == nil &&
				program.NeedsPerson(name) {
				s.collect(inner, w, depth+1)
			}
		}
	}
}

// literal are the uses of braces that expand to nothing: HEAD@{1}, and find's {}.
var literal = regexp.MustCompile(`@\{[A-Za-z0-9-]+\}|^\{\}$`)

// plainWord returns the text of a word that bash does not expand, or the cause why bash expands it.
func plainWord(w *syntax.Word, text string) (word, cause string) {
	source := text[w.Pos().Offset():w.End().Offset()]
	var out strings.Builder
	for i, part := range w.Parts {
		switch p := part.(type) {
		case *syntax.Lit:
			bare := literal.ReplaceAllString(p.Value, "")
			switch {
			case strings.Contains(p.Value, `\`):
				return source, display.Quote(source) + " holds a backslash outside quotes"
			case strings.ContainsAny(bare, "*?[{$`"):
				return source, display.Quote(source) + " is expanded by the shell"
			case i == 0 && strings.HasPrefix(bare, "~"), strings.Contains(bare, "=~"), strings.Contains(bare, ":~"):
				return source, display.Quote(source) + " leads to a home folder"
			}
			out.WriteString(p.Value)
		case *syntax.SglQuoted:
			if p.Dollar {
				return source, display.Quote(source) + " is rewritten by the shell"
			}
			out.WriteString(p.Value)
		case *syntax.DblQuoted:
			inner, ok := plainQuoted(p)
			if !ok {
				return source, display.Quote(source) + " is expanded by the shell"
			}
			out.WriteString(inner)
		default:
			return source, display.Quote(source) + " is expanded by the shell"
		}
	}
	return out.String(), ""
}

// special is what a backslash or a dollar sign in double quotes must not stand before: there they mean something.
var special = regexp.MustCompile("\\\\[\\\\\"$`!\n]|\\\\$|`|\\$[^ |)/]")

// plainQuoted returns the text in double quotes if bash expands nothing in it.
func plainQuoted(q *syntax.DblQuoted) (string, bool) {
	var inner strings.Builder
	for _, part := range q.Parts {
		lit, ok := part.(*syntax.Lit)
		if !ok {
			return "", false
		}
		inner.WriteString(lit.Value)
	}
	return inner.String(), !q.Dollar && !special.MatchString(inner.String())
}

// anyWord returns the text of a word, as far as it is known.
func anyWord(w *syntax.Word, text string) string {
	var out strings.Builder
	for _, part := range w.Parts {
		switch p := part.(type) {
		case *syntax.Lit:
			out.WriteString(strings.ReplaceAll(p.Value, `\`, ""))
		case *syntax.SglQuoted:
			out.WriteString(p.Value)
		case *syntax.DblQuoted:
			for _, inner := range p.Parts {
				if lit, ok := inner.(*syntax.Lit); ok {
					out.WriteString(lit.Value)
				} else {
					out.WriteString(text[inner.Pos().Offset():inner.End().Offset()])
				}
			}
		default:
			out.WriteString(text[p.Pos().Offset():p.End().Offset()])
		}
	}
	return out.String()
}

// plainRedirect reads a redirect. One that only joins or closes file descriptors is no file, and /dev/null is free.
func plainRedirect(r *syntax.Redirect, text string) (redir Redirect, isFile bool, cause string) {
	source := text[r.Pos().Offset():r.End().Offset()]
	if r.N != nil && !program.IsNumber(r.N.Value) {
		cause = display.Quote(source) + " sets a variable"
	}
	if end := r.End().Offset(); program.IsNumber(text[r.Word.Pos().Offset():end]) && int(end) < len(text) &&
		strings.IndexByte("<>", text[end]) >= 0 {
		cause = display.Quote(source) + " is read as a descriptor by some shells"
	}
	target, wordCause := plainWord(r.Word, text)
	if wordCause != "" {
		cause = wordCause
		target = anyWord(r.Word, text)
	}
	switch r.Op {
	case syntax.DplOut, syntax.DplIn:
		if target == "-" || program.IsNumber(target) {
			return redir, false, cause
		}
		return Redirect{r.Op == syntax.DplOut, target}, true, cause
	case syntax.RdrOut, syntax.AppOut, syntax.RdrClob, syntax.RdrAll, syntax.AppAll:
		return Redirect{true, target}, target != "/dev/null", cause
	case syntax.RdrIn:
		return Redirect{false, target}, target != "/dev/null", cause
	case syntax.RdrInOut:
		return Redirect{true, target}, true, display.Quote(source) + " opens a file to read and write"
	default:
		return redir, false, display.Quote(source) + " is text the shell hands over"
	}
}
