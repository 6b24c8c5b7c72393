package main

import (
	"context"

	"pocketcoder/events"
)

const transcriptUsage = `pocketcoder replay --follow CHAT: follow what a chat's commands print, as they run.

  pocketcoder replay --follow h2k0x9c3v7m1q5z
  pocketcoder replay --follow h2k0x9c3v7m1q5z --session ses_1f2c…    those of one subagent, until its turn is over

It begins with the last commands, and goes on until Ctrl-C. Each is shown with when it began, who asked for it and who allowed it,
its output, and how it ended. "pocketcoder attach" shows it in tmux.
`

func transcriptFlags(env environment, args []string) (transcriptOptions, error) {
	fs := newFlags(env, "replay --follow", transcriptUsage)
	data := dataFlag(fs, env)
	o := transcriptOptions{}
	fs.StringVar(&o.session, "session", "", "only the subagent with this `id` of OpenCode's")
	fs.BoolVar(&o.windows, "windows", false, internalFlag+"open a window of \"pocketcoder attach\" for each subagent at work, and end with the chat")
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
	return o, nil
}

func runTranscript(ctx context.Context, env environment, args []string) error {
	o, err := transcriptFlags(env, args)
	if err != nil {
		return err
	}
	s, err := connect(ctx, o.data)
	if err != nil {
		return err
	}
	defer s.close()
	return followCommands(ctx, s, rendererOf(env), o)
}
