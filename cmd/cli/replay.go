package cli

import (
	"cmp"
	"context"
	"fmt"
	"math"
	"slices"
	"strconv"

	"pocketcoder/cmd/client"
	"pocketcoder/cmd/console/replay"
	"pocketcoder/handlers"
)

const replayUsage = `pocketcoder replay CHAT: show a chat from the log, as it was after any event; export it.

  pocketcoder replay h2k0x9c3v7m1q5z               the conversation, with the id of each request
  pocketcoder replay h2k0x9c3v7m1q5z --speed 10    at ten times its pace; a pause lasts at most 3 s
  pocketcoder replay h2k0x9c3v7m1q5z --json        every event, one JSON (CloudEvents) a line
  pocketcoder replay h2k0x9c3v7m1q5z --at 812      the chat as it stood after event #812
  pocketcoder replay h2k0x9c3v7m1q5z --html        its conversation as one HTML page, on stdout; with --at as it stood then
  pocketcoder replay h2k0x9c3v7m1q5z --cast        its commands as an asciinema recording, on stdout
  pocketcoder replay --follow h2k0x9c3v7m1q5z      what its commands print, as they run; see replay --follow -h

Exit status: 0; 1 when there is no such chat or it failed, 2 for wrong usage.
`

type replayOptions struct {
	replay.Options
	html, cast bool // write a file to stdout
}

func replayFlags(env Environment, args []string) (o replayOptions, at client.Address, err error) {
	fs := NewFlags(env, "replay", replayUsage)
	address := ServerFlags(fs, env)
	fs.Uint64Var(&o.From, "from", 0, "first `sequence` to show")
	fs.Uint64Var(&o.To, "to", 0, "last `sequence` to show; 0 is the end of the log")
	fs.Uint64Var(&o.At, "at", 0, "show the chat as it stood after the event with this `sequence`")
	speed := fs.String("speed", "max", "how many `times` the real pace, or max")
	fs.BoolVar(&o.JSON, "json", false, "print JSON")
	fs.BoolVar(&o.html, "html", false, "write an HTML page")
	fs.BoolVar(&o.cast, "cast", false, "write an asciinema recording")
	if o.Chat, err = ParseID(fs, args, `which chat? "pocketcoder chats" lists them`); err != nil {
		return o, at, err
	}
	at = *address
	o.To = cmp.Or(o.To, math.MaxUint64)
	if o.Speed = math.Inf(1); *speed != "max" {
		if o.Speed, err = strconv.ParseFloat(*speed, 64); err != nil || !(o.Speed > 0) {
			return o, at, WrongUsage(env, "replay: --speed must be max or a number above 0, got %q", *speed)
		}
	}
	switch {
	case o.From > o.To:
		return o, at, WrongUsage(env, "replay: --from %d is after --to %d", o.From, o.To)
	case o.At != 0 && (o.From != 0 || o.To != math.MaxUint64):
		return o, at, WrongUsage(env, "replay: --at shows one moment; it takes neither --from nor --to")
	case o.JSON && (o.html || o.cast) || o.html && o.cast:
		return o, at, WrongUsage(env, "replay: only one of --json, --html and --cast")
	case (o.html || o.cast) && (o.From != 0 || o.To != math.MaxUint64):
		return o, at, WrongUsage(env, "replay: --html and --cast take --at, neither --from nor --to")
	}
	return o, at, nil
}

func Replay(ctx context.Context, env Environment, args []string) error {
	if i := slices.IndexFunc(args, func(a string) bool { return a == "--follow" || a == "-follow" }); i >= 0 {
		return runTranscript(ctx, env, slices.Delete(slices.Clone(args), i, i+1))
	}
	o, at, err := replayFlags(env, args)
	if err != nil {
		return err
	}
	s, err := client.Connect(ctx, at)
	if err != nil {
		return err
	}
	defer s.Close()
	if o.html || o.cast {
		return writeReplay(ctx, env, s, o)
	}
	show := newRenderer(env)
	show.Email = s.EmailOf(ctx)
	return replay.Show(ctx, s, o.Options, show, env.Stdout)
}

// writeReplay writes a chat as a file to stdout.
func writeReplay(ctx context.Context, env Environment, s *client.System, o replayOptions) error {
	format := either(o.cast, "cast", "html")
	path := "/api/chats/" + o.Chat + "/export/" + format
	if o.At != 0 {
		path += "?at=" + strconv.FormatUint(o.At, 10)
	}
	err := s.Download(ctx, path, env.Stdout)
	if handlers.CodeOf(err) == handlers.NotFound {
		err = fmt.Errorf("there is no chat %s in the log", o.Chat)
	}
	return err
}
