package pages

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"strings"
	"time"
	"unicode/utf8"

	"pocketcoder/events"
	"pocketcoder/projections"
	"pocketcoder/web/pages/conversation"
	"pocketcoder/web/pages/site"
	"pocketcoder/web/pages/visible"
)

// execution is an execution with the part of its output that is shown.
type execution struct {
	projections.ShownExecution
	outputs []output
}

// output is what a command printed on one stream.
type output struct {
	stream string // stdout, stderr
	tokens []visible.Token
	more   string // says how much of it is not shown
}

func executionsOf(runs []projections.ShownExecution) (all []execution) {
	for _, run := range runs {
		all = append(all, execution{ShownExecution: run})
	}
	return all
}

// maxPiece is how much is shown of the beginning and of the end of an output that is too large for its event, in bytes.
const maxPiece = 8 << 10

// readOutputs reads what is shown of the outputs of executions that have ended.
func (p Pages) readOutputs(ctx context.Context, all []execution) {
	for i, x := range all {
		var outputs projections.ExecutionOutputs
		_ = json.Unmarshal([]byte(x.Outputs), &outputs) // the column is such an object
		for _, one := range []struct {
			stream string
			events.Output
		}{{"stdout", outputs.Stdout}, {"stderr", outputs.Stderr}} {
			if one.Bytes == 0 {
				continue
			}
			o := output{stream: one.stream}
			text, leftOut, err := p.textOf(ctx, one.Output)
			if err != nil {
				p.API.Logger.Error("show output", "exec", x.ID, "err", err)
				o.more = "The output could not be read."
			} else if leftOut > 0 {
				o.more = fmt.Sprintf("… %d bytes more: pocketcoder sandbox logs %s", leftOut, x.ID)
			}
			o.tokens = visible.Colored(text)
			all[i].outputs = append(all[i].outputs, o)
		}
	}
}

// textOf returns an output. Of a long one it returns the beginning and the end, and of one in BLOBS also how many bytes
// are left out.
func (p Pages) textOf(ctx context.Context, o events.Output) (text string, leftOut int64, err error) {
	if o.Blob == nil {
		return conversation.Shortened(validText(cmp.Or(o.Text, string(o.Base64)))), 0, nil
	}
	r, err := p.Log.Blobs.Open(ctx, o.Blob.Name)
	if err != nil {
		return "", 0, err
	}
	defer r.Close()
	head, err := io.ReadAll(io.LimitReader(r, maxPiece))
	if err != nil {
		return "", 0, err
	}
	tail, err := p.Log.Blobs.ReadEnd(ctx, o.Blob.Name, int(min(maxPiece, max(0, o.Bytes-int64(len(head))))))
	if err != nil {
		return "", 0, err
	}
	for n := 0; n < utf8.UTFMax && len(head) > 0; n++ { // a character that was cut
		if last, size := utf8.DecodeLastRune(head); last != utf8.RuneError || size > 1 {
			break
		}
		head = head[:len(head)-1]
	}
	for len(tail) > 0 && !utf8.RuneStart(tail[0]) {
		tail = tail[1:]
	}
	if leftOut = o.Bytes - int64(len(head)+len(tail)); leftOut == 0 {
		return validText(string(head) + string(tail)), 0, nil
	}
	mark := "\n" + fmt.Sprintf(site.LeftOut, leftOut) + "\n"
	return validText(string(head)) + mark + validText(string(tail)), leftOut, nil
}

func validText(text string) string { return strings.ToValidUTF8(text, string(utf8.RuneError)) }

func (x execution) elementID() string { return "x-" + x.ID }

// order is the place of the execution among all of its chat, as a text that sorts.
func (x execution) order() string { return fmt.Sprintf("%016d", x.Position) }

func (x execution) running() bool { return x.Status == events.ExecutionRunning }

// command is what ran, in one piece.
func (x execution) command() string {
	if x.Terminal {
		return "shell of a person"
	}
	return x.Text
}

// why is the reason of a refusal or a failure, "" for none.
func (x execution) why() string {
	if x.Error != "" || x.Status != events.ExecutionRefused {
		return x.Error
	}
	return x.Reason
}

// duration is how long the execution ran, "" if it did not.
func (x execution) duration() string {
	d := time.Duration(x.DurationMS) * time.Millisecond
	switch {
	case x.running() || x.Status == events.ExecutionRefused:
		return ""
	case d < time.Second:
		return fmt.Sprintf("%d ms", x.DurationMS)
	case d < time.Minute:
		return fmt.Sprintf("%.1f s", d.Seconds())
	}
	return d.Round(time.Second).String()
}

// printsNothing reports whether the page should say that there is no output.
func (x execution) printsNothing() bool {
	return !x.running() && !x.Private && len(x.outputs) == 0 && x.Status != events.ExecutionRefused
}

// outputPart names the output of a running execution among the texts that are being written.
func outputPart(execution string) string { return "output-" + execution }
