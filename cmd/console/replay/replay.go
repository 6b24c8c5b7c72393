// Package replay shows a chat from the log: as it was shown, as JSON, or as it was after an event. Follow shows the
// output of its commands while they run.
//
// Promises: what is shown comes from the log alone, but for the names of accounts. The server computes from it how the
// chat was after an event.
//
// It must not know flags.
package replay

import (
	"context"
	"encoding/json"
	"io"
	"time"

	"pocketcoder/cmd/client"
	"pocketcoder/cmd/console/render"
	"pocketcoder/events"
	"pocketcoder/events/log/sleep"
	"pocketcoder/handlers/policy/display"
)

// Options selects what is shown of a chat.
type Options struct {
	Chat     string
	From, To uint64
	At       uint64
	Speed    float64 // infinite: without waiting
	JSON     bool
}

// Show shows a chat from the log with show, or writes it to out as JSON.
func Show(ctx context.Context, s *client.System, o Options, show *render.Renderer, out io.Writer) error {
	switch {
	case o.At != 0:
		return replayAt(ctx, s, o, show, out)
	case o.JSON:
		return eachEvent(ctx, s, o, func(_ events.Event, raw []byte) error { return printLine(out, json.RawMessage(raw)) })
	}
	return replayText(ctx, show, s, o)
}

// replayText shows the events at the requested speed. It applies the earlier events without showing them.
func replayText(ctx context.Context, show *render.Renderer, s *client.System, o Options) error {
	first, shown, begun := o.From, show.Out, false
	o.From, show.Out = 0, io.Discard
	var before time.Time
	err := eachEvent(ctx, s, o, func(e events.Event, _ []byte) error {
		switch {
		case e.Seq >= first && !begun:
			show.EndLine()
			show.Out, begun = shown, true
		case begun:
			if err := sleep.For(ctx, pauseAt(e.Time.Sub(before), o.Speed)); err != nil {
				return err
			}
		}
		before = e.Time
		show.Event(e)
		for _, a := range show.Due() {
			show.ShowRequest(a)
		}
		return show.Err
	})
	if err != nil {
		return err
	}
	for _, a := range show.Pending() {
		show.ShowRequest(a)
	}
	show.Finish()
	return show.Err
}

// eachEvent calls each with the chat's events from o.From to o.To in order, and their JSON.
func eachEvent(ctx context.Context, s *client.System, o Options, each func(events.Event, []byte) error) error {
	_, err := s.Fold(ctx, o.Chat, max(o.From, 1)-1, func(e events.Event, raw []byte) error {
		if e.Seq > o.To {
			return events.ErrStop
		}
		return each(e, raw)
	})
	return err
}

const longestPause = 3 * time.Second

// pauseAt returns the pause for a gap between two events at a speed.
func pauseAt(gap time.Duration, speed float64) time.Duration {
	seconds := min(gap.Seconds()/speed, longestPause.Seconds())
	return time.Duration(max(seconds, 0) * float64(time.Second))
}

func printLine(w io.Writer, v any) error {
	line, err := json.Marshal(v)
	if err != nil {
		return err
	}
	_, err = w.Write(append(display.EscapeJSON(line), '\n'))
	return err
}
