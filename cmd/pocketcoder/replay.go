package main

import (
	"context"
	"math"
	"slices"
	"strconv"

	"pocketcoder/events"
)

const replayUsage = `pocketcoder replay CHAT: show a chat again, from the log alone.

  pocketcoder replay h2k0x9c3v7m1q5z               as it was shown, with the id of each request
  pocketcoder replay h2k0x9c3v7m1q5z --speed 10    at ten times its pace; a pause lasts at most 3 s
  pocketcoder replay h2k0x9c3v7m1q5z --json        every event, one JSON (CloudEvents) a line
  pocketcoder replay h2k0x9c3v7m1q5z --at 812      the chat as it stood after event #812
  pocketcoder replay --follow h2k0x9c3v7m1q5z      what its commands print, as they run; see replay --follow -h

Exit status: 0; 1 when there is no such chat or it failed, 2 for wrong usage.
`

func replayFlags(env environment, args []string) (o replayOptions, data dataDir, err error) {
	fs := newFlags(env, "replay", replayUsage)
	directory := dataFlag(fs, env)
	fs.Uint64Var(&o.from, "from", 0, "first `sequence` to show")
	fs.Uint64Var(&o.to, "to", 0, "last `sequence` to show; 0 is the end of the log")
	fs.Uint64Var(&o.at, "at", 0, "show the chat as it stood after the event with this `sequence`")
	speed := fs.String("speed", "max", "how many `times` the real pace, or max")
	fs.BoolVar(&o.json, "json", false, "print JSON")
	rest, err := parse(fs, args, 1)
	if err != nil {
		return o, data, err
	}
	data = dataDir(*directory)
	if len(rest) == 0 {
		return o, data, wrongUsage(env, "replay: which chat? \"pocketcoder chats\" lists them")
	}
	if o.chat, err = events.ParseID(rest[0]); err != nil {
		return o, data, wrongUsage(env, "replay: %v", err)
	}
	if o.to == 0 {
		o.to = math.MaxUint64
	}
	if o.speed = math.Inf(1); *speed != "max" {
		if o.speed, err = strconv.ParseFloat(*speed, 64); err != nil || !(o.speed > 0) {
			return o, data, wrongUsage(env, "replay: --speed must be max or a number above 0, got %q", *speed)
		}
	}
	switch {
	case o.from > o.to:
		return o, data, wrongUsage(env, "replay: --from %d is after --to %d", o.from, o.to)
	case o.at != 0 && (o.from != 0 || o.to != math.MaxUint64):
		return o, data, wrongUsage(env, "replay: --at shows one moment; it takes neither --from nor --to")
	}
	return o, data, nil
}

func runReplay(ctx context.Context, env environment, args []string) error {
	if i := slices.IndexFunc(args, func(a string) bool { return a == "--follow" || a == "-follow" }); i >= 0 {
		return runTranscript(ctx, env, slices.Delete(slices.Clone(args), i, i+1))
	}
	o, data, err := replayFlags(env, args)
	if err != nil {
		return err
	}
	s, err := connect(ctx, data)
	if err != nil {
		return err
	}
	defer s.close()
	show := rendererOf(env)
	show.email = s.emailOf(ctx)
	return replayChat(ctx, s.log, o, show, env.stdout)
}
