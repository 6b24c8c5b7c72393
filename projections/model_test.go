package projections_test

import (
	"testing"

	"github.com/matryer/is"

	"pocketcoder/events/eventstest"
	"pocketcoder/ops/expect"
	"pocketcoder/projections"
	"pocketcoder/projections/store"
)

func digestOf(t testing.TB, m *projections.Model) string {
	t.Helper()
	d, err := m.Digest(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	return d
}

// waited returns the model after it has applied seq.
func waited(t testing.TB, m *projections.Model, seq uint64) *projections.Model {
	t.Helper()
	if err := m.Wait(t.Context(), seq); err != nil {
		t.Fatal(err)
	}
	return m
}

func TestRebuildGivesTheSameBytes(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	log := eventstest.Log(t)
	m := running(t, expect.MemoryDir(t), log)
	var last uint64
	for i, name := range []string{"9i-perm-task", "14-question", "18-abort-text", "85-abort-parent"} {
		all := conversation(t, name)
		if i > 0 {
			all = all[4:] // the chat is there
		}
		for _, e := range all {
			seq, err := log.Append(t.Context(), e)
			is.NoErr(err)
			last = seq
		}
	}
	is.NoErr(m.Wait(t.Context(), last))
	before := digestOf(t, m)
	r, err := m.Rebuild(t.Context(), func(done, total uint64) {})
	is.NoErr(err)
	is.Equal(r, store.RebuildResult{Events: last, Duration: r.Duration, Before: before, After: before})
	is.Equal(digestOf(t, m), before)
}
