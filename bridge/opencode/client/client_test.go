package client

import (
	"context"
	"errors"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/matryer/is"

	"pocketcoder/ops/expect"
)

func TestMain(m *testing.M) { expect.Run(m) }

// answering returns a client of a server that answers every request alike.
func answering(t *testing.T, status int, body string) *Client {
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.WriteHeader(status)
		w.Write([]byte(body))
	}))
	t.Cleanup(s.Close)
	return New(s.URL, "secret")
}

func TestErrorsSayWhatFailedAndWhetherToTryAgain(t *testing.T) {
	for _, c := range []struct {
		name            string
		status          int
		body            string
		message         string
		retryable, gone bool
	}{
		{"unknown session", 404, `{"name":"NotFoundError","data":{"message":"Session not found: ses_x"}}`,
			"prompt session ses_x: 404 NotFoundError: Session not found: ses_x", false, true},
		{"unknown ask", 404, `{"_tag":"PermissionNotFoundError","requestID":"per_x","message":"Permission request not found: per_x"}`,
			"prompt session ses_x: 404 PermissionNotFoundError: Permission request not found: per_x", false, true},
		{"bad request", 400, `{"name":"BadRequest","data":{"message":"Missing key\n  at [\"parts\"]","kind":"Payload"}}`,
			`prompt session ses_x: 400 BadRequest: Missing key at ["parts"]`, false, false},
		{"inside", 500, `{"name":"UnknownError","data":{"message":"Unexpected server error."}}`,
			"prompt session ses_x: 500 UnknownError: Unexpected server error.", true, false},
		{"wrong password", 401, "", "prompt session ses_x: 401 Unauthorized:", false, false},
		{"not opencode", 404, "<html>", "prompt session ses_x: 404 Not Found: <html>", false, false},
	} {
		t.Run(c.name, func(t *testing.T) {
			is := is.New(t)
			err := answering(t, c.status, c.body).Prompt(t.Context(), "ses_x", Prompt{})
			is.True(err != nil)
			is.Equal(err.Error(), c.message)
			is.Equal(Retryable(err), c.retryable)
			is.Equal(errors.Is(err, ErrGone), c.gone)
		})
	}
}

func TestAnUnreachableServerIsRetryable(t *testing.T) {
	is := is.New(t)
	s := httptest.NewServer(nil)
	s.Close()
	_, err := New(s.URL, "").Health(t.Context())
	is.True(err != nil)
	is.True(Retryable(err))
	is.True(!errors.Is(err, ErrGone))
	is.True(strings.HasPrefix(err.Error(), "check opencode: dial tcp"))
}

func TestACallersCancelIsFinal(t *testing.T) {
	is := is.New(t)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	_, err := answering(t, 200, "{}").Health(ctx)
	is.True(errors.Is(err, context.Canceled))
	is.True(!Retryable(err))
}

func TestAnAnswerCutShortIsRetryable(t *testing.T) {
	is := is.New(t)
	_, err := answering(t, 200, `{"id":"ses_`).Session(t.Context(), "ses_x")
	is.True(err != nil)
	is.True(Retryable(err))
}

func TestStoredObjectsKeepWhatWeDoNotLookAt(t *testing.T) {
	is := is.New(t)
	const request = `{"id":"per_1","sessionID":"ses_1","permission":"bash","patterns":["ls"],"metadata":{"command":"ls"},"always":["ls *"],"later":1,` +
		`"tool":{"messageID":"msg_1","callID":"call_1"}}`
	requests, err := answering(t, 200, "["+request+"]").PermissionRequests(t.Context(), "/w")
	is.NoErr(err)
	is.Equal(len(requests), 1)
	is.Equal(string(requests[0].Raw), request)
	is.Equal([]string{requests[0].ID, requests[0].SessionID}, []string{"per_1", "ses_1"})
}

func TestMessagesArePagedOldestFirst(t *testing.T) {
	is := is.New(t)
	pages := map[string]string{"": `[{"info":{"id":"c"}},{"info":{"id":"d"}}]`,
		"2": `[{"info":{"id":"a"}},{"info":{"id":"b"}}]`}
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		before := r.URL.Query().Get("before")
		if before == "" {
			w.Header().Set("X-Next-Cursor", "2")
		}
		w.Write([]byte(pages[before]))
	}))
	defer s.Close()
	c := New(s.URL, "")
	all, err := c.Messages(t.Context(), "ses_x")
	is.NoErr(err)
	var ids string
	for _, m := range all {
		ids += m.Info.ID
	}
	is.Equal(ids, "abcd")
}
