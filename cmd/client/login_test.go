package client

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/matryer/is"

	"pocketcoder/cmd/datadir"
	"pocketcoder/ops/expect"
)

func TestLoginsAtTheSameTimeAreAllStored(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	at := Address{Config: t.TempDir()}
	const n = 20
	var all sync.WaitGroup
	for i := range n {
		all.Go(func() {
			at := at
			at.Server = fmt.Sprintf("https://code%d.example.org", i)
			if err := at.store(t.Context(), login{Token: at.Server}); err != nil {
				t.Error(err)
			}
		})
	}
	all.Wait()
	stored, err := at.logins()
	is.NoErr(err)
	is.Equal(len(stored), n)
}

// The first questions get no answer, and the next one an error of a proxy in front of a server that starts.
func TestALoginOutlastsALostConnection(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	asked := 0
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/api/pocketcoder/logins" {
			fmt.Fprint(w, `{"code": "BCDF-GHJK", "secret": "s", "page": "/connect"}`)
			return
		}
		switch asked++; asked {
		case 1:
			panic(http.ErrAbortHandler)
		case 2:
			w.WriteHeader(http.StatusBadGateway)
		default:
			fmt.Fprint(w, `{"token": "t", "email": "ada@example.org"}`)
		}
	}))
	t.Cleanup(server.Close)
	email, err := Login(t.Context(), Address{Server: server.URL, Config: t.TempDir()}, func(string, string) {})
	is.NoErr(err)
	is.Equal([]any{email, asked}, []any{"ada@example.org", 3})
}

func TestALoginEndsWhenTheCodeIsRefused(t *testing.T) {
	t.Parallel()
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if !strings.HasSuffix(r.URL.Path, "/token") {
			fmt.Fprint(w, `{"code": "BCDF-GHJK", "secret": "s", "page": "/connect"}`)
			return
		}
		w.WriteHeader(http.StatusNotFound)
		fmt.Fprint(w, `{"message": "This code is wrong, was used or has expired."}`)
	}))
	t.Cleanup(server.Close)
	_, err := Login(t.Context(), Address{Server: server.URL, Config: t.TempDir()}, func(string, string) {})
	expect.Contains(t, fmt.Sprint(err), "has expired")
}

func TestEachServerHasADirectoryOfItsOwn(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	seen := map[datadir.Dir]bool{}
	servers := []string{"https://example.org", "https://example.org:8443", "https://example.org-8443", "http://localhost"}
	for _, server := range servers {
		state := Address{Config: "/config", Server: server}.State()
		is.Equal(filepath.Dir(string(state)), "/config/servers")
		seen[state] = true
	}
	is.Equal(len(seen), len(servers))
}
