package conversation

import (
	"cmp"
	"encoding/json"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/a-h/templ"

	"pocketcoder/projections"
	"pocketcoder/projections/timeline"
	"pocketcoder/web/pages/visible"
)

// waitingTitle is the title of the queue. It counts only the held messages if there are any.
func waitingTitle(all []queueEntry) string {
	n, one, more := len(all), "1 message waits", "%d messages wait"
	held := 0
	for _, q := range all {
		if q.IsHeldByStop() {
			held++
		}
	}
	if held > 0 {
		n, one, more = held, "Stopped. 1 message waits.", "Stopped. %d messages wait."
	}
	if n == 1 {
		return one
	}
	return fmt.Sprintf(more, n)
}

// textIn returns the text of a message, and whether the message has nothing else.
func textIn(m *projections.ShownMessage) (text string, whole bool) {
	whole = true
	var words []string
	for _, p := range partsOf(m) {
		if p.Type == "text" {
			words = append(words, p.Text)
		} else {
			whole = false
		}
	}
	return strings.Join(words, "\n"), whole
}

// maxWords is the length of the beginning of a message that waits, in runes.
const maxWords = 120

// FirstWords is the beginning of a message on one line.
func FirstWords(m projections.ShownMessage) string {
	text, _ := textIn(&m)
	words := []rune(visible.Line(text))
	if len(words) > maxWords {
		return string(words[:maxWords-1]) + "…"
	}
	return cmp.Or(string(words), "file")
}

// unsentText is the text of a person's message that failed, "" for one that cannot be sent again as a text.
func unsentText(m *projections.ShownMessage) string {
	text, whole := textIn(m)
	if m.UserStatus != "failed" || !whole {
		return ""
	}
	return text
}

// unreadableKinds are the attributes with the kinds of files that the model of a chat cannot read, if that is known.
func unreadableKinds(v chatView) templ.Attributes {
	model := cmp.Or(v.models.Selected, v.aside.Answer.Provider+"/"+v.aside.Answer.Model)
	reads, known := v.models.Reads[model]
	if !known || len(reads) == 0 {
		return nil
	}
	var kinds []string
	for _, kind := range []string{"image", "pdf", "audio", "video"} {
		if !slices.Contains(reads, kind) {
			kinds = append(kinds, kind)
		}
	}
	return templ.Attributes{"data-unreadable": strings.Join(kinds, " "),
		"data-why": fmt.Sprintf("%s cannot read it.", visible.Line(model))}
}

func tokens(s timeline.Totals) string {
	return fmt.Sprintf("%s in, %s out", rounded(s.TokensIn), rounded(s.TokensOut))
}

// rounded is a number of tokens in at most four digits.
func rounded(n int64) string {
	switch {
	case n < 10_000:
		return strconv.FormatInt(n, 10)
	case n < 10_000_000:
		return strconv.FormatInt(n/1000, 10) + "k"
	}
	return strconv.FormatInt(n/1_000_000, 10) + "M"
}

// todo is a task of the assistant's todo list.
type todo struct {
	Content string `json:"content"`
	Status  string `json:"status"` // pending, in_progress, completed, cancelled
}

// mark is the sign of a task's status.
func (t todo) mark() string {
	return cmp.Or(map[string]string{"in_progress": "▸", "completed": "✓", "cancelled": "✗"}[t.Status], "·")
}

func todosOf(w timeline.Progress) (all []todo) {
	_ = json.Unmarshal([]byte(w.Todos), &all) // a list of another form is shown by its tool call alone
	return all
}

// todoTitle says how many tasks are completed, and which one the assistant is working on.
func todoTitle(all []todo) string {
	completed, current := 0, ""
	for _, t := range all {
		switch t.Status {
		case "completed":
			completed++
		case "in_progress":
			current = cmp.Or(current, ": "+visible.Line(t.Content))
		}
	}
	return fmt.Sprintf("%d of %d tasks done", completed, len(all)) + current
}
