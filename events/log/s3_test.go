package log_test

import (
	"crypto/sha256"
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/matryer/is"

	"pocketcoder/events"
	"pocketcoder/events/eventstest"
	"pocketcoder/events/log"
	"pocketcoder/events/log/blob"
	"pocketcoder/events/log/file"
	"pocketcoder/events/log/place"
	"pocketcoder/events/log/s3"
	"pocketcoder/expect"
)

func TestAnOffloadedBlobIsReadFromItsObject(t *testing.T) {
	is := is.New(t)
	s := eventstest.NewStore(t)
	nc := eventstest.Conn(t, eventstest.Server(t, expect.MemoryDir(t)))
	l := eventstest.Open(t, nc)
	reader, err := log.Attach(nc, "$JS.API")
	is.NoErr(err)
	for _, text := range []string{strings.Repeat("line of output\n", 1_300_000), "short"} {
		stored, err := l.Blobs.PutByHash(t.Context(), []byte(text))
		is.NoErr(err)
		for _, want := range []bool{true, false} {
			moved, err := l.Blobs.Offload(t.Context(), stored.Name, s.URL)
			is.NoErr(err)
			is.Equal(moved, want)
		}
		is.True(s.Signed.Load())
		is.True(s.Content(t, stored.Name) == text)
		for _, l := range []*log.Log{l, reader} {
			is.True(contentOf(t, l, stored.Name) == text)
			end, err := l.Blobs.ReadEnd(t.Context(), stored.Name, 20)
			is.NoErr(err)
			is.Equal(string(end), text[max(0, len(text)-20):])
		}
		s.Replace(t, stored.Name, "damaged")
		_, err = l.Blobs.PutByHash(t.Context(), []byte(text)) // another event has the same content
		is.NoErr(err)
		_, err = s.HeadObject("archive", "old/chats/"+stored.Name)
		is.True(err != nil) // nothing names the damaged object any more
		is.True(contentOf(t, l, stored.Name) == text)
	}
}

// An object that the store has lost is lost. An object that it cannot return now is readable again once the store is
// available.
func TestEventWithAnUnreadableObjectIsMalformed(t *testing.T) {
	is := is.New(t)
	s := eventstest.NewStore(t)
	nc := eventstest.Conn(t, eventstest.Server(t, expect.MemoryDir(t)))
	l := eventstest.Open(t, nc)
	e := eventOfSize(t, "evt_large", log.MaxInline+1)
	_, err := l.Append(t.Context(), e)
	is.NoErr(err)
	_, err = l.Append(t.Context(), eventOfSize(t, "evt_next", 100))
	is.NoErr(err)
	name := blob.HashName(e.Data)
	_, err = l.Blobs.Offload(t.Context(), name, s.URL)
	is.NoErr(err)
	check := func(what string, want error) {
		t.Helper()
		var all []error
		_, err := l.Fold(t.Context(), events.ChatFilter("chat1"), 0, func(e events.Event) error {
			all = append(all, e.Malformed)
			return nil
		})
		is.NoErr(err)
		t.Log(what, all)
		is.Equal(len(all), 2)
		is.True(errors.Is(all[0], want))
		expect.Lacks(t, fmt.Sprint(all[0]), "endpoint=")
		expect.Lacks(t, fmt.Sprint(all[0]), "127.0.0.1")
		is.Equal(errors.Is(all[0], blob.ErrNotFound), want == blob.ErrNotFound)
		is.NoErr(all[1])
	}
	check("whole", nil)
	s.Down.Store(true)
	check("silent", s3.ErrUnavailable)
	check("silent, and not asked again", s3.ErrUnavailable)
	s.Down.Store(false)
	s3.Forget()
	check("back", nil)
	s.Replace(t, name, string(e.Data[:len(e.Data)-1])+"x")
	check("damaged", blob.ErrDamaged)
	is.NoErr(place.At(strings.Replace(s.URL, "?", "/"+name+"?", 1)).Remove(t.Context()))
	check("removed", blob.ErrNotFound)
}

func TestOffloadToAStoreLeavesTheBlobIfItFails(t *testing.T) {
	is := is.New(t)
	s := eventstest.NewStore(t)
	l := eventstest.Log(t)
	stored, err := l.Blobs.Put(t.Context(), "x1.stdout", strings.NewReader("all of it"))
	is.NoErr(err)
	s.Down.Store(true)
	_, err = l.Blobs.Offload(t.Context(), stored.Name, s.URL)
	is.True(err != nil)
	is.Equal(contentOf(t, l, stored.Name), "all of it")
	s.Down.Store(false)
	_, err = l.Blobs.Offload(t.Context(), stored.Name, strings.Replace(s.URL, "archive", "missing", 1))
	expect.Contains(t, err.Error(), "bucket does not exist")
	is.Equal(contentOf(t, l, stored.Name), "all of it")
	sum := sha256.Sum256([]byte("another"))
	object := s3.Object(strings.Replace(s.URL, "?", "/y?", 1))
	err = object.Write(t.Context(), strings.NewReader("content"), 7, sum[:])
	is.True(errors.Is(err, file.ErrMismatch))
	is.Equal(object.Holds(t.Context(), sum[:]), false)
	_, err = s.HeadObject("archive", "old/chats/y")
	is.True(err != nil)
}

func TestOnlyASafeStoreIsAccepted(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	for _, url := range []string{"s3://b/p", "s3://b", "s3://b/p?endpoint=https://s3.example.org&region=eu-1",
		"s3://b/p?endpoint=http://127.0.0.1:9000", "s3://b/p?endpoint=http://[::1]:9000"} {
		is.NoErr(place.CheckStore(url))
	}
	for url, want := range map[string]string{
		"s3://":               "want s3://BUCKET",
		"s3://key:secret@b/p": "without credentials",
		"s3://b/p?endpoint=http://s3.example.org":             "want https",
		"s3://b/p?endpoint=http://192.0.2.1:9000":             "want https",
		"s3://b/p?endpoint=s3.example.org":                    "want https://HOST",
		"s3://b/p?endpoint=https://s3.example.org/x":          "want https://HOST",
		"s3://b/p?secret=x":                                   "unknown parameter",
		"s3://b/p?endpoint=https://key:hidden@s3.example.org": "without credentials",
		"s3://b/p?endpoint=https://s3.example.org?key=hidden": "without credentials",
		"s3://key:hidden@b/%zz":                               "without credentials",
	} {
		err := place.CheckStore(url)
		is.True(err != nil) // url
		expect.Contains(t, err.Error(), want)
		expect.Lacks(t, err.Error(), "hidden")
	}
}
