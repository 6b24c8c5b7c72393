package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"slices"
	"strconv"
	"time"

	"pocketcoder/events"
	"pocketcoder/events/log"
)

const replayUsage = `pocketcoder replay CHAT: show a chat again, from the log alone.

  pocketcoder replay h2k0x9c3v7m1q5z               as it was shown, with the id of each request
  pocketcoder replay h2k0x9c3v7m1q5z --speed 10    at ten times its pace; a pause lasts at most 3 s
  pocketcoder replay h2k0x9c3v7m1q5z --json        every event, one JSON (CloudEvents) a line
  pocketcoder replay h2k0x9c3v7m1q5z --at 812      the chat as it stood after event #812
  pocketcoder replay --follow h2k0x9c3v7m1q5z      what its commands print, as they run; see replay --follow -h

Exit status: 0; 1 when there is no such chat or it failed, 2 for wrong usage.
`

// replayOptions is what a person may choose.
type replayOptions struct {
	data     dataDir
	chat     string
	from, to uint64
	at       uint64
	speed    float64 // infinite: without waiting
	json     bool
}

func replayFlags(env environment, args []string) (replayOptions, error) {
	fs := newFlags(env, "replay", replayUsage)
	data := dataFlag(fs, env)
	o := replayOptions{}
	fs.Uint64Var(&o.from, "from", 0, "first `sequence` to show")
	fs.Uint64Var(&o.to, "to", 0, "last `sequence` to show; 0 is the end of the log")
	fs.Uint64Var(&o.at, "at", 0, "show the chat as it stood after the event with this `sequence`")
	speed := fs.String("speed", "max", "how many `times` the real pace, or max")
	fs.BoolVar(&o.json, "json", false, "print JSON")
	rest, err := parse(fs, args, 1)
	if err != nil {
		return o, err
	}
	o.data = dataDir(*data)
	if len(rest) == 0 {
		return o, wrongUsage(env, "replay: which chat? \"pocketcoder chats\" lists them")
	}
	if o.chat, err = events.ParseID(rest[0]); err != nil {
		return o, wrongUsage(env, "replay: %v", err)
	}
	if o.to == 0 {
		o.to = math.MaxUint64
	}
	if o.speed = math.Inf(1); *speed != "max" {
		if o.speed, err = strconv.ParseFloat(*speed, 64); err != nil || !(o.speed > 0) {
			return o, wrongUsage(env, "replay: --speed must be max or a number above 0, got %q", *speed)
		}
	}
	switch {
	case o.from > o.to:
		return o, wrongUsage(env, "replay: --from %d is after --to %d", o.from, o.to)
	case o.at != 0 && (o.from != 0 || o.to != math.MaxUint64):
		return o, wrongUsage(env, "replay: --at shows one moment; it takes neither --from nor --to")
	}
	return o, nil
}

func runReplay(ctx context.Context, env environment, args []string) error {
	if i := slices.IndexFunc(args, func(a string) bool { return a == "--follow" || a == "-follow" }); i >= 0 {
		return runTranscript(ctx, env, slices.Delete(slices.Clone(args), i, i+1))
	}
	o, err := replayFlags(env, args)
	if err != nil {
		return err
	}
	s, err := connect(ctx, o.data)
	if err != nil {
		return err
	}
	defer s.close()
	return replay(ctx, env, s.log, o, s.emailOf(ctx))
}

// replay shows a chat from the log, accounts by what email returns.
func replay(ctx context.Context, env environment, log *log.Log, o replayOptions, email func(string) string) error {
	if err := inLog(ctx, log, o.chat); err != nil {
		return err
	}
	switch {
	case o.at != 0:
		return replayAt(ctx, env, log, o, email)
	case o.json:
		return eachEvent(ctx, log, o, func(e events.Event) error { return printLine(env.stdout, e) })
	}
	show := newRenderer(newScreen(env))
	show.email = email
	return replayText(ctx, show, log, o)
}

// replayText shows the events at the pace that was asked for. What came before the first of them is known and not shown.
func replayText(ctx context.Context, show *renderer, log *log.Log, o replayOptions) error {
	first, shown, begun := o.from, show.w, false
	o.from, show.w = 0, io.Discard
	var before time.Time
	err := eachEvent(ctx, log, o, func(e events.Event) error {
		switch {
		case e.Seq >= first && !begun:
			show.endLine()
			show.w, begun = shown, true
		case begun:
			if err := sleep(ctx, wait(e.Time.Sub(before), o.speed)); err != nil {
				return err
			}
		}
		before = e.Time
		show.event(e)
		for _, a := range show.due() {
			show.showAsk(a)
		}
		return show.err
	})
	if err != nil {
		return err
	}
	for _, a := range show.pending() {
		show.showAsk(a)
	}
	show.finish()
	return show.err
}

// inLog looks for the chat's first event.
func inLog(ctx context.Context, log *log.Log, chat string) error {
	_, err := log.Fold(ctx, events.ChatFilter(chat), 0, func(events.Event) error { return events.ErrStop })
	if errors.Is(err, events.ErrStop) {
		return nil
	}
	if err == nil {
		err = fmt.Errorf("there is no chat %s in the log", chat)
	}
	return err
}

// eachEvent gives the chat's events from o.from to o.to in order.
func eachEvent(ctx context.Context, log *log.Log, o replayOptions, fn func(events.Event) error) error {
	_, err := log.Fold(ctx, events.ChatFilter(o.chat), max(o.from, 1)-1, func(e events.Event) error {
		if e.Seq > o.to {
			return events.ErrStop
		}
		return fn(e)
	})
	if errors.Is(err, events.ErrStop) {
		return nil
	}
	return err
}

// longestPause is how long a replay stands still at most.
const longestPause = 3 * time.Second

// wait is how long a gap between two events lasts at a speed.
func wait(gap time.Duration, speed float64) time.Duration {
	seconds := min(gap.Seconds()/speed, longestPause.Seconds())
	return time.Duration(max(seconds, 0) * float64(time.Second))
}

func sleep(ctx context.Context, d time.Duration) error {
	select {
	case <-time.After(d):
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// printLine writes a value as one line of JSON.
func printLine(w io.Writer, v any) error {
	line, err := json.Marshal(v)
	if err != nil {
		return err
	}
	_, err = w.Write(append(line, '\n'))
	return err
}
