package pages

import (
	"encoding/json"
	"fmt"
	"net/http"
	"strings"

	"github.com/a-h/templ"
	"github.com/pocketbase/dbx"

	"pocketcoder/projections"
	"pocketcoder/projections/timeline"
	"pocketcoder/web/api"
	"pocketcoder/web/pages/texts"
)

const (
	maxTurns    = 20  // the turns that the page of changes shows, the newest ones
	maxUnfolded = 400 // lines of all changes up to which files are unfolded at first
)

// turnChanges is what one turn changed in files.
type turnChanges struct {
	prompt projections.ShownMessage // that began it
	files  []fileChange
}

// fileChange is what a turn changed in one file.
type fileChange struct {
	File      string `json:"file"`
	Patch     string `json:"patch"`
	Additions int    `json:"additions"`
	Deletions int    `json:"deletions"`
	Status    string `json:"status"` // added, modified, deleted
}

func (f fileChange) counts() string { return fmt.Sprintf(texts.Counts, f.Additions, f.Deletions) }

// lines are those of the patch. The names of the file, above its first hunk, are neither added nor removed.
func (f fileChange) lines() []line {
	lines := diffLines(f.Patch)
	for i := range lines {
		if lines[i].class == "hunk" {
			break
		}
		lines[i].class = "hunk"
	}
	return lines
}

func (p *Pages) showChanges(r *http.Request, who api.Caller) (templ.Component, error) {
	var v chatView
	var prompts []projections.ShownMessage
	err := p.API.Ask(r.Context(), who.Key(), func(db dbx.Builder, _ uint64) (err error) {
		if v, err = p.chatIn(r.Context(), db, who, r.PathValue("id")); err != nil {
			return err
		}
		prompts, err = timeline.ChangedTurns(r.Context(), db, v.chat, maxTurns)
		return err
	})
	if err != nil {
		return nil, err
	}
	var turns []turnChanges
	lines := 0
	for _, m := range prompts {
		diff, err := p.Chats.Diff(r, who, v.chat.ID, m.EngineMessage)
		if err != nil {
			return nil, err
		}
		t := turnChanges{prompt: m}
		if err := json.Unmarshal(diff, &t.files); err != nil {
			return nil, fmt.Errorf("read diff of message %s: %w", m.EngineMessage, err)
		}
		for _, f := range t.files {
			lines += strings.Count(f.Patch, "\n")
		}
		if len(t.files) > 0 {
			turns = append(turns, t)
		}
	}
	return changesPage(who, v, turns, lines <= maxUnfolded), nil
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
		return texts.ChangedFile + " " + sum.counts()
	}
	return fmt.Sprintf(texts.ChangedFiles, len(files)) + " " + sum.counts()
}
