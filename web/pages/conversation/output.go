package conversation

import (
	"bytes"
	"context"
	"strings"
	"unicode/utf8"

	"github.com/pocketbase/dbx"

	"pocketcoder/events/log"
	"pocketcoder/projections/timeline"
	"pocketcoder/web/pages/texts"
)

// maxLiveOutput is how much of what a command prints a page shows while the command runs, in bytes. When it has ended, the page shows
// its beginning and its end.
const maxLiveOutput = 64 << 10

// outputs turns what running commands print into fragments of their tool calls.
type outputs struct {
	Conversation
	calls map[string]string // by execution: the call; "" for an execution that no call of the chat started
	sent  map[string]int    // by execution: bytes
}

// fragment returns a piece of output as a fragment of the tool call that runs the command, and whether the page shows it.
func (o outputs) fragment(ctx context.Context, d log.Delta) (f fragment, ok bool) {
	exec := d.Subject[strings.LastIndexByte(d.Subject, '.')+1:]
	call, known := o.calls[exec]
	if !known {
		call = o.callOf(ctx, exec)
		o.calls[exec] = call
	}
	if call == "" || o.sent[exec] > maxLiveOutput {
		return f, false
	}
	text := string(bytes.ToValidUTF8(d.Data, []byte(string(utf8.RuneError))))
	if o.sent[exec] += len(d.Data); o.sent[exec] > maxLiveOutput {
		text = "\n" + texts.MoreOutput
	}
	return fragment{callPart(call), text}, true
}

// callOf returns the tool call that started an execution, once the read models hold the event of its start.
func (o outputs) callOf(ctx context.Context, exec string) (call string) {
	last, err := o.Log.Last(ctx)
	if err == nil {
		err = o.API.Model.Wait(ctx, last)
	}
	if err == nil {
		err = o.API.Model.View(ctx, func(db dbx.Builder, _ uint64) (err error) {
			call, err = timeline.CallOf(ctx, db, exec)
			return err
		})
	}
	if err != nil && ctx.Err() == nil { // the page shows the output when the command has ended
		o.API.Logger.Error("show output", "exec", exec, "err", err)
	}
	return call
}

// callPart names the output of a tool call among the texts that are being written.
func callPart(call string) string { return "output-" + call }
