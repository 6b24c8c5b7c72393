package conversation

import (
	"context"

	"github.com/pocketbase/dbx"

	"pocketcoder/events/log"
	"pocketcoder/projections/timeline"
	"pocketcoder/web/pages/site"
)

// outputs turns what running commands print into fragments of their tool calls.
type outputs struct {
	Conversation
	calls map[string]string // by execution: the call; "" for an execution that no call of the chat started
	sent  site.LiveOutput
}

// fragment returns a piece of output as a fragment of the tool call that runs the command, and whether the page shows
// it.
func (o outputs) fragment(ctx context.Context, d log.Delta) (f site.Fragment, ok bool) {
	exec := site.ExecutionOf(d)
	call, known := o.calls[exec]
	if !known {
		call = o.callOf(ctx, exec)
		o.calls[exec] = call
	}
	if call == "" {
		return f, false
	}
	text, ok := o.sent.Piece(d)
	return site.Fragment{Part: callPart(call), Text: text}, ok
}

// callOf returns the tool call that started an execution, once the read models hold the event of its start.
func (o outputs) callOf(ctx context.Context, exec string) (call string) {
	err := o.API.Model.CatchUp(ctx)
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
