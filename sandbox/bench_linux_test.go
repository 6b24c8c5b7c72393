package sandbox

import (
	"io"
	"log/slog"
	"testing"

	"pocketcoder/sandbox/isolation"
)

// BenchmarkCommand measures a command from the request to the result.
func BenchmarkCommand(b *testing.B) {
	for _, level := range []isolation.Level{isolation.Bwrap, isolation.None} {
		choice, err := isolation.Choose(string(level))
		if err != nil {
			b.Skip(err)
		}
		w, err := Open(Config{Isolation: choice, Workspace: b.TempDir(), Home: b.TempDir(),
			Log: slog.New(slog.DiscardHandler)})
		if err != nil {
			b.Fatal(err)
		}
		b.Cleanup(w.Close)
		for name, loopback := range map[string]string{"own network": "", "network of the chat": "chat1"} {
			if loopback != "" && !choice.SharesLoopback {
				continue
			}
			b.Run(string(level)+"/"+name, func(b *testing.B) {
				for b.Loop() {
					r := w.request("true")
					r.Loopback = loopback
					if result := w.Exec(b.Context(), r, io.Discard, io.Discard); result.ExitCode != 0 {
						b.Fatal(result)
					}
				}
			})
		}
	}
}
