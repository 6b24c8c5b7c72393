package eventstest

import (
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/johannesboyne/gofakes3"
	"github.com/johannesboyne/gofakes3/backend/s3mem"
	"github.com/matryer/is"
)

// Store is an S3 server on this machine.
type Store struct {
	*s3mem.Backend
	URL    string      // of a prefix, for --offload-dir
	Down   atomic.Bool // the connection ends without an answer
	Signed atomic.Bool // the last request was
}

// NewStore starts a server with a bucket, and writes a file with credentials for it.
func NewStore(t *testing.T) *Store {
	t.Helper()
	is := is.New(t)
	credentials := filepath.Join(t.TempDir(), "credentials")
	const profile = "[default]\naws_access_key_id = key1\naws_secret_access_key = s3cret\n"
	is.NoErr(os.WriteFile(credentials, []byte(profile), 0o600))
	t.Setenv("AWS_SHARED_CREDENTIALS_FILE", credentials)
	for _, name := range []string{"AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_PROFILE"} {
		t.Setenv(name, "")
	}
	s := &Store{Backend: s3mem.New()}
	is.NoErr(s.CreateBucket("archive"))
	served := gofakes3.New(s.Backend, gofakes3.WithLogger(gofakes3.DiscardLog())).Server()
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if s.Down.Load() {
			panic(http.ErrAbortHandler)
		}
		s.Signed.Store(strings.Contains(r.Header.Get("Authorization"), "Credential=key1/"))
		served.ServeHTTP(w, r)
	}))
	t.Cleanup(server.Close)
	s.URL = "s3://archive/old/chats?endpoint=" + server.URL + "&region=eu-1"
	return s
}

func (s *Store) Content(t *testing.T, name string) string {
	t.Helper()
	o, err := s.GetObject("archive", "old/chats/"+name, nil)
	is.New(t).NoErr(err)
	defer o.Contents.Close()
	body, err := io.ReadAll(o.Contents)
	is.New(t).NoErr(err)
	return string(body)
}

func (s *Store) Replace(t *testing.T, name, body string) {
	t.Helper()
	_, err := s.PutObject("archive", "old/chats/"+name, map[string]string{}, strings.NewReader(body), int64(len(body)),
		nil)
	is.New(t).NoErr(err)
}
