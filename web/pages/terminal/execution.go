package terminal

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
	"pocketcoder/web/pages/texts"
	"pocketcoder/web/pages/visible"
)

// execution is an execution with the part of its output that is shown.
type execution struct {
	projections.Run
	outputs []output
}

// output is what a command printed on one stream.
type output struct {
	stream string // stdout, stderr
	tokens []visible.Token
	more   string // says how much of it is not shown
}

func executionsOf(runs []projections.Run) (all []execution) {
	for _, run := range runs {
		all = append(all, execution{Run: run})
	}
	return all
}

// maxHead is how much is shown of an output that is too large for its event, in bytes, from its beginning.
const maxHead = 16 << 10

// readOutputs reads what is shown of the outputs of executions that have ended.
func (t Terminal) readOutputs(ctx context.Context, all []execution) {
	for i, x := range all {
		var outputs projections.Outputs
		_ = json.Unmarshal([]byte(x.Outputs), &outputs) // the column is such an object
		for _, one := range []struct {
			stream string
			events.Output
		}{{"stdout", outputs.Stdout}, {"stderr", outputs.Stderr}} {
			if one.Bytes == 0 {
				continue
			}
			o := output{stream: one.stream}
			text, err := t.textOf(ctx, one.Output)
			if err != nil {
				t.API.Logger.Error("show output", "exec", x.ID, "err", err)
				o.more = texts.NoBlob
			} else if one.Blob != nil {
				o.more = fmt.Sprintf(texts.BytesMore, one.Bytes-int64(len(text)), x.ID)
			}
			o.tokens = visible.Colored(conversation.Shortened(text))
			all[i].outputs = append(all[i].outputs, o)
		}
	}
}

// textOf returns an output, or the beginning of one in BLOBS.
func (t Terminal) textOf(ctx context.Context, o events.Output) (string, error) {
	if o.Blob == nil {
		return validText(cmp.Or(o.Text, string(o.Base64))), nil
	}
	r, err := t.Log.OpenBlob(ctx, o.Blob.Name)
	if err != nil {
		return "", err
	}
	defer r.Close()
	b, err := io.ReadAll(io.LimitReader(r, maxHead))
	for n := 0; n < utf8.UTFMax && len(b) > 0; n++ { // a character that was cut
		if last, size := utf8.DecodeLastRune(b); last != utf8.RuneError || size > 1 {
			break
		}
		b = b[:len(b)-1]
	}
	return validText(string(b)), err
}

func validText(text string) string { return strings.ToValidUTF8(text, string(utf8.RuneError)) }

func (x execution) elementID() string { return "x-" + x.ID }

// order is the place of the execution among all of its chat, as a text that sorts.
func (x execution) order() string { return fmt.Sprintf("%016d", x.Position) }

func (x execution) running() bool { return x.Status == events.ExecutionRunning }

// command is what ran, in one piece.
func (x execution) command() string {
	if x.Terminal {
		return texts.OwnShell
	}
	return x.Text
}

// mark is the sign of the execution's state.
func (x execution) mark() string {
	switch x.Status {
	case events.ExecutionRunning:
		return "●"
	case events.ExecutionCompleted:
		return "✓"
	}
	return "✗"
}

// outcome says in a few words how the execution ended.
func (x execution) outcome() string {
	switch {
	case x.running():
		return texts.RunningCommand
	case texts.Ends[x.Status] != "":
		return texts.Ends[x.Status]
	case x.Signal != "":
		return fmt.Sprintf(texts.EndedBySignal, x.ExitCode, visible.Line(x.Signal))
	}
	return fmt.Sprintf(texts.ExitCode, x.ExitCode)
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

// part names the output of a running execution among the texts that are being written.
func part(execution string) string { return "output-" + execution }
