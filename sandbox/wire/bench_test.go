package wire_test

import (
	"context"
	"io"
	"testing"

	"pocketcoder/sandbox/wire"
)

// One command that does nothing, on one idle worker: what the protocol costs.
func BenchmarkCall(b *testing.B) {
	nc := pair(b, func(context.Context, wire.Request, io.Writer, io.Writer) wire.Result { return wire.Result{} })
	for b.Loop() {
		if _, err := wire.Call(b.Context(), nc, subject, hello, io.Discard, io.Discard); err != nil {
			b.Fatal(err)
		}
	}
}
