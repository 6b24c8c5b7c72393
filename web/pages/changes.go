package pages

import (
	"encoding/json"
	"fmt"
	"net/http"
	"regexp"
	"strconv"
	"strings"

	"github.com/a-h/templ"
	"github.com/pocketbase/dbx"

	"pocketcoder/handlers"
	"pocketcoder/projections"
	"pocketcoder/projections/timeline"
	"pocketcoder/web/api"
	"pocketcoder/web/pages/visible"
)

const (
	maxTurns    = 20  // the turns that the page of changes shows, the newest ones
	maxUnfolded = 400 // lines of all changes up to which files are unfolded at first

	maxLines = 20_000  // of all changes that are shown; a line takes ten times the memory of its text and more
	maxBytes = 2 << 20 // likewise
)

const (
	patchMissing  = "These lines are missing. %s" // with the reason
	malformedDiff = "OpenCode's answer is malformed."
)

// chatChanges is what the turns of a chat changed in files.
type chatChanges struct {
	chat     timeline.Chat
	turns    []turnChanges
	unfolded bool // the files are shown unfolded
}

// turnChanges is what one turn changed in files.
type turnChanges struct {
	prompt  projections.ShownMessage // that began it
	files   []fileChange
	missing string // why the files cannot be read, "" if they can
}

// fileChange is what a turn changed in one file.
type fileChange struct {
	File      string `json:"file"`
	Patch     string `json:"patch"`
	Additions int    `json:"additions"`
	Deletions int    `json:"deletions"`
	Status    string `json:"status"` // added, modified, deleted

	leftOut bool   // the page has no room for the patch
	missing string // why the patch cannot be read, "" if it can
}

func (f fileChange) counts() string { return fmt.Sprintf("+%d −%d", f.Additions, f.Deletions) }

type patchLine struct {
	visible.DiffLine
	// in the file, of a line that the turn left there; in the old file, of a removed one; 0 for none
	number int
	code   []visible.Token // of a line with a number: its sign, and the code behind it
}

// hunkStart is the head of a hunk, with the first line in the old file and in the new one.
var hunkStart = regexp.MustCompile(`^@@ -(\d+)(?:,\d+)? \+(\d+)(?:,\d+)? @@`)

// lines are those of the patch. The names of the file, above its first hunk, are neither added nor removed.
func (f fileChange) lines() (all []patchLine) {
	before, after, inHunk := 0, 0, false
	language := visible.LanguageOf(f.File)
	for _, l := range visible.DiffLines(f.Patch) {
		line := patchLine{DiffLine: l}
		switch start := hunkStart.FindStringSubmatch(l.Text); {
		case start != nil:
			before, _ = strconv.Atoi(start[1]) // digits
			after, _ = strconv.Atoi(start[2])
			inHunk = true
		case !inHunk:
			line.Class = "hunk"
		case l.Class == "removed":
			line.number = before
			before++
		case l.Class == "added":
			line.number = after
			after++
		case strings.HasPrefix(l.Text, " "):
			line.number = after
			before++
			after++
		}
		if line.number > 0 {
			line.code = append([]visible.Token{{Text: l.Text[:1]}}, visible.Code(language, l.Text[1:])...)
		}
		all = append(all, line)
	}
	return all
}

func (p Pages) showChanges(r *http.Request, caller api.Caller) (templ.Component, error) {
	v := chatChanges{}
	var prompts []projections.ShownMessage
	var names map[string][]string
	err := p.API.SlowView(r.Context(), caller.Key(), func(db dbx.Builder, _ uint64) (err error) {
		if v.chat, err = p.Chat(r.Context(), db, caller, r.PathValue("id")); err != nil {
			return err
		}
		if names, err = timeline.ChangedFiles(r.Context(), db, v.chat); err != nil {
			return err
		}
		prompts, err = timeline.ChangedTurns(r.Context(), db, v.chat, maxTurns)
		return err
	})
	if err != nil {
		return nil, err
	}
	lines, err := p.addTurns(r, caller, &v, prompts, names)
	v.unfolded = lines <= maxUnfolded
	return changesPage(v), err
}

// addTurns adds the changes of turns, and returns the number of their lines. Once OpenCode does not answer it is not
// asked again.
func (p Pages) addTurns(r *http.Request, caller api.Caller, v *chatChanges, prompts []projections.ShownMessage,
	names map[string][]string) (lines int, err error) {
	bytes := 0
	var diff json.RawMessage
	for _, m := range prompts {
		if handlers.CodeOf(err) != handlers.Unavailable {
			diff, err = p.Chats.Diff(r, caller, v.chat.ID, m.EngineMessage)
		}
		if err != nil && (r.Context().Err() != nil || api.ProblemOf(err).Status == http.StatusNotFound) {
			return 0, err // the client left, or the chat was deleted
		}
		t := turnOf(m, diff, err, names[m.EngineMessage])
		if t.missing != "" {
			p.API.Logger.Warn("read changes", "chat", v.chat.ID, "message", m.EngineMessage, "err", err)
		}
		for i, f := range t.files {
			n := strings.Count(f.Patch, "\n")
			if lines+n > maxLines || bytes+len(f.Patch) > maxBytes {
				t.files[i].Patch, t.files[i].leftOut = "", true
				continue
			}
			lines, bytes = lines+n, bytes+len(f.Patch)
		}
		if len(t.files) > 0 || t.missing != "" {
			v.turns = append(v.turns, t)
		}
	}
	return lines, nil
}

// turnOf returns a turn with its diff, or with the reason why there is none and the names of its files.
func turnOf(prompt projections.ShownMessage, diff json.RawMessage, failed error, names []string) turnChanges {
	t := turnChanges{prompt: prompt}
	var list []json.RawMessage
	switch {
	case failed != nil:
		t.missing = fmt.Sprintf(patchMissing, api.ProblemOf(failed).Message)
	case json.Unmarshal(diff, &list) != nil:
		t.missing = fmt.Sprintf(patchMissing, malformedDiff)
	}
	if t.missing != "" {
		for _, name := range names {
			t.files = append(t.files, fileChange{File: name, missing: t.missing})
		}
	}
	for _, one := range list {
		var f fileChange
		if json.Unmarshal(one, &f) != nil { // fields of the right type are set all the same
			f = fileChange{File: f.File, missing: fmt.Sprintf(patchMissing, malformedDiff)}
		}
		t.files = append(t.files, f)
	}
	return t
}

// changedTitle sums up the changes of turns. A file that several turns changed counts once.
func changedTitle(turns []turnChanges) string {
	files, sum := map[string]bool{}, fileChange{}
	for _, t := range turns {
		for _, f := range t.files {
			files[f.File] = true
			sum.Additions += f.Additions
			sum.Deletions += f.Deletions
		}
	}
	if len(files) == 1 {
		return "1 file " + sum.counts()
	}
	return fmt.Sprintf("%d files", len(files)) + " " + sum.counts()
}
