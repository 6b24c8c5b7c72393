package api

import (
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/matryer/is"
)

func TestReadTimeoutAppliesToTheBodyOnly(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	read := make(chan error, 1)
	gone := make(chan bool, 1)
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_, err := readAll(limitBodyTime(w, r, 100*time.Millisecond))
		read <- err
		select {
		case <-r.Context().Done():
			gone <- true
		case <-time.After(300 * time.Millisecond): // longer than the body may take
			gone <- false
		}
	}))
	defer server.Close()
	conn, err := net.Dial("tcp", strings.TrimPrefix(server.URL, "http://"))
	is.NoErr(err)
	defer conn.Close()
	fmt.Fprint(conn, "POST / HTTP/1.1\r\nHost: localhost\r\nContent-Length: 1000\r\n\r\n{")
	is.Equal(ProblemOf(<-read).Status, http.StatusRequestTimeout)
	<-gone
	for _, body := range []string{"", "{}"} {
		resp, err := http.Post(server.URL, "application/json", strings.NewReader(body))
		is.NoErr(err)
		is.NoErr(resp.Body.Close())
		is.NoErr(<-read)
		is.True(!<-gone) // the answer has no deadline
	}
}
