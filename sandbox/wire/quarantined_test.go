package wire_test

import (
	"context"
	"io"
	"strings"
	"testing"

	"github.com/matryer/is"

	"pocketcoder/ops/expect"
	"pocketcoder/sandbox/wire"
)

func TestTheWorkerWithTheItemIsAsked(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	url := natsServer(t)
	h := newHeldHandler()
	close(h.release)
	for _, name := range []string{"a", "b", "c"} {
		serveAs(t, url, wire.Server{Handle: h.as(name), Holds: func(item string) bool { return item == "of-"+name }})
	}
	nc := connect(t, url)
	for _, name := range []string{"a", "b", "c", "a", "b", "c"} {
		is.NoErr(<-call(t, nc, wire.Request{Op: wire.Dismiss, Item: "of-" + name}))
		is.Equal(<-h.runs, name)
	}
	is.NoErr(<-call(t, nc, wire.Request{Op: wire.Keep, Item: "unknown"})) // any of them answers
}

func TestInvalidQuarantinedNamesAreNotAccepted(t *testing.T) {
	t.Parallel()
	valid := wire.Quarantined{ID: "one", Name: ".envrc", Kind: wire.FileKind, Bytes: 1, Text: "x"}
	for name, change := range map[string]func(q *wire.Quarantined){
		"":              func(*wire.Quarantined) {},
		"no id":         func(q *wire.Quarantined) { q.ID = "a b" },
		"path":          func(q *wire.Quarantined) { q.Name = "../x" },
		"parent":        func(q *wire.Quarantined) { q.Name = ".." },
		"lines":         func(q *wire.Quarantined) { q.Name = "a\nb" },
		"kind":          func(q *wire.Quarantined) { q.Kind = "door" },
		"negative size": func(q *wire.Quarantined) { q.Bytes = -1 },
		"long text":     func(q *wire.Quarantined) { q.Text = strings.Repeat("x", wire.MaxQuarantineText+1) },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			is := is.New(t)
			url := natsServer(t)
			q := valid
			change(&q)
			serveAs(t, url, wire.Server{Handle: func(context.Context, wire.Request, io.Writer, io.Writer) wire.Result {
				return wire.Result{Quarantined: []wire.Quarantined{q}}
			}})
			result, err := wire.Call(t.Context(), connect(t, url), subject, hello, io.Discard, io.Discard)
			is.NoErr(err)
			if name == "" {
				is.Equal(result.Quarantined, []wire.Quarantined{valid})
				return
			}
			is.Equal(result.Reason, wire.Lost)
			expect.Contains(t, result.Error, "result:")
		})
	}
}
