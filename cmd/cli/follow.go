package cli

import (
	"context"

	"pocketcoder/cmd/client"
	"pocketcoder/cmd/console/replay"
	"pocketcoder/events"
)

const transcriptUsage = `pocketcoder replay --follow CHAT: follow what a chat's commands print, as they run.

  pocketcoder replay --follow h2k0x9c3v7m1q5z
  pocketcoder replay --follow h2k0x9c3v7m1q5z --session ses_1f2c…    the commands of one subagent, until its turn is over

It begins with the last commands and ends with Ctrl-C. For each command it shows the start time, which agent requested it, who
allowed it, its output and its result. "pocketcoder attach" shows the same in tmux.
`

func transcriptFlags(env Environment, args []string) (replay.FollowOptions, error) {
	fs := NewFlags(env, "replay --follow", transcriptUsage)
	at := ServerFlags(fs, env)
	o := replay.FollowOptions{}
	fs.StringVar(&o.Session, "session", "", "only the subagent whose OpenCode session has this `id`")
	fs.BoolVar(&o.Windows, "windows", false, internalFlag+
		"open a window of \"pocketcoder attach\" for each subagent at work, and end with the chat")
	rest, err := Parse(fs, args, 1)
	if err != nil {
		return o, err
	}
	o.At = *at
	if len(rest) == 0 {
		return o, WrongUsage(env, "replay: which chat? \"pocketcoder chats\" lists them")
	}
	if o.Chat, err = events.ParseID(rest[0]); err != nil {
		return o, WrongUsage(env, "replay: %v", err)
	}
	return o, nil
}

func runTranscript(ctx context.Context, env Environment, args []string) error {
	o, err := transcriptFlags(env, args)
	if err != nil {
		return err
	}
	s, err := client.Connect(ctx, o.At)
	if err != nil {
		return err
	}
	defer s.Close()
	return replay.Follow(ctx, s, newRenderer(env), o)
}
