package store

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/matryer/is"
	"github.com/pocketbase/dbx"

	"pocketcoder/ops/expect"
)

// count returns the number of rows of a table, or of a table with a condition.
func count(t testing.TB, db dbx.Builder, of string) (n int) {
	t.Helper()
	if err := db.NewQuery("SELECT count(*) FROM " + of).Row(&n); err != nil {
		t.Fatal(err)
	}
	return n
}

func TestViewSeesOneMoment(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	m := idle(t)
	apply(t, m, saved(t, "x", "one"), saved(t, "a", "one"))
	err := m.View(t.Context(), func(db dbx.Builder, seq uint64) error {
		is.Equal(seq, uint64(2))
		apply(t, m, saved(t, "b", "one")) // committed before our first query
		is.Equal(m.Seq(), uint64(3))
		is.Equal(count(t, db, "notes"), 2)
		is.Equal(count(t, db, "checkpoint WHERE seq=2"), 1)
		return nil
	})
	is.NoErr(err)
	is.NoErr(m.View(t.Context(), func(db dbx.Builder, seq uint64) error {
		is.Equal(seq, uint64(3))
		is.Equal(count(t, db, "notes"), 3)
		return nil
	}))
}

func TestAQueryThatFailsInTheMiddleReturnsAnError(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	_, err := List[struct{ ID string }](t.Context(), idle(t), "rows",
		"SELECT json(column1) AS id FROM (VALUES ('1'), ('2'), ('{'))", nil)
	is.True(err != nil)
	expect.Contains(t, err.Error(), "malformed JSON")
}

// Clients disconnect at any moment, also while a transaction begins.
func TestAViewThatIsCancelledBreaksNoOther(t *testing.T) {
	t.Parallel()
	m := idle(t)
	nothing := func(dbx.Builder, uint64) error { return nil }
	for i := range 5000 {
		ctx, cancel := context.WithCancel(t.Context())
		go func() {
			for range i % 100 {
				runtime.Gosched()
			}
			cancel()
		}()
		_ = m.View(ctx, nothing)
		if err := m.View(t.Context(), nothing); err != nil {
			t.Fatalf("after %d views that were cancelled: %v", i+1, err)
		}
	}
}

func TestViewOnlyReads(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	m := idle(t)
	mine := errors.New("mine")
	is.Equal(m.View(t.Context(), func(db dbx.Builder, _ uint64) error {
		_, err := db.NewQuery("DELETE FROM notes").Execute()
		is.True(err != nil)
		return mine // returned unchanged
	}), mine)
}

func TestQueriesOfAViewEndWithItsContext(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	m := idle(t)
	count := func(db dbx.Builder, limit int) error {
		var n int
		return db.NewQuery("WITH RECURSIVE all_of(n) AS (SELECT 1 UNION ALL SELECT n+1 FROM all_of LIMIT {:limit}) " +
			"SELECT count(*) FROM all_of").Bind(dbx.Params{"limit": limit}).Row(&n)
	}
	is.NoErr(m.View(t.Context(), func(db dbx.Builder, _ uint64) error { return count(db, 1) })) // the same query is kept
	ctx, cancel := context.WithCancel(t.Context())
	err := m.View(ctx, func(db dbx.Builder, _ uint64) error {
		cancel()
		return count(db, 50_000_000)
	})
	is.True(errors.Is(err, context.Canceled))
	is.True(errors.Is(m.View(ctx, nil), context.Canceled))
}

func TestOneViewTooManyWaitsForAnother(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	m := idle(t)
	inside, leave, ended := make(chan bool), make(chan bool), make(chan error, maxViews)
	free := sync.OnceFunc(func() { close(leave) })
	defer free()
	for range maxViews {
		go func() {
			ended <- m.View(t.Context(), func(dbx.Builder, uint64) error { inside <- true; <-leave; return nil })
		}()
	}
	for range maxViews {
		<-inside
	}
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	err := m.View(ctx, func(dbx.Builder, uint64) error { return errors.New("it did not wait") })
	is.True(errors.Is(err, context.DeadlineExceeded))
	free()
	for range maxViews {
		is.NoErr(<-ended)
	}
	is.NoErr(m.View(t.Context(), func(dbx.Builder, uint64) error { return nil }))
}

// Clients choose filters, and each is another query.
func TestKeptQueriesAreBoundedInBytesAndHoldNoContext(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	m := idle(t)
	is.NoErr(m.View(t.Context(), func(db dbx.Builder, _ uint64) error {
		for i := range 200 {
			for _, comment := range []string{"", strings.Repeat("x", 100<<10)} {
				var n int
				if err := db.NewQuery(fmt.Sprintf("SELECT 1 /* %d %s */", i, comment)).Row(&n); err != nil {
					return err
				}
			}
		}
		return nil
	}))
	v := <-m.current.viewers
	defer func() { m.current.viewers <- v }()
	texts, parsed := 0, 0
	for text := range v.statements {
		texts += len(text)
	}
	for text, q := range v.parsed {
		parsed += len(text)
		is.Equal(q.Context(), context.Background())
	}
	is.True(len(v.parsed) >= 200 && parsed < 1<<20)
	is.True(texts > 0 && texts <= 2<<20)
}
