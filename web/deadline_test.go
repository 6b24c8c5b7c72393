package web_test

import (
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"path"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/matryer/is"

	"pocketcoder/handlers/permission"
	"pocketcoder/ops/expect"
	"pocketcoder/web/api"
	"pocketcoder/web/webtest"
)

// sendUntil sends a request with a deadline, and returns the status and the body of the answer.
func sendUntil(t *testing.T, r *http.Request, deadline string) (int, string) {
	t.Helper()
	r.Header.Set(api.DeadlineHeader, deadline)
	answer, err := http.DefaultTransport.RoundTrip(r) // follows no redirect
	webtest.Check(t, err)
	defer answer.Body.Close()
	body, err := io.ReadAll(answer.Body)
	webtest.Check(t, err)
	return answer.StatusCode, string(body)
}

func atTime(at time.Time) string { return strconv.FormatInt(at.UnixMilli(), 10) }

// arrival is enough for a request to arrive before its deadline. On a busy machine it may arrive later, and is refused
// at once.
const arrival = 300 * time.Millisecond

const tooLate = "The deadline of the request has passed. Nothing was done."

// Each way to decide, over the API and with the form of a page.
func TestADecisionAfterItsDeadlineIsRefused(t *testing.T) {
	t.Parallel()
	s := webtest.NewSystem(t)
	_, token := s.User(t, "ada", "user")
	server := httptest.NewServer(s.Web.Handler())
	t.Cleanup(server.Close)
	request := func(method, at, media, body string) *http.Request {
		r, err := http.NewRequestWithContext(t.Context(), method, server.URL+at, strings.NewReader(body))
		webtest.Check(t, err)
		r.Header = http.Header{"Content-Type": {media}, "Authorization": {token}, "Cookie": {"pocketcoder=" + token},
			"Accept": {"text/plain"}}
		return r
	}
	const form = "application/x-www-form-urlencoded"
	for name, decide := range map[string]func(chat, permission, shown string) *http.Request{
		"API": func(_, permission, _ string) *http.Request {
			return request("PATCH", webtest.RecordsPath("permissions")+"/"+permission, "application/json", `{"status":"denied"}`)
		},
		"batch": func(_, permission, _ string) *http.Request {
			return request("POST", "/api/batch", "application/json", `{"requests":[{"method":"PATCH","url":"`+
				webtest.RecordsPath("permissions")+"/"+permission+`","body":{"status":"denied"}}]}`)
		},
		"page": func(chat, permission, shown string) *http.Request {
			return request("POST", "/chats/"+chat+"/requests/"+permission, form,
				url.Values{"decision": {"denied"}, "shown_request": {shown}}.Encode())
		},
		"group": func(_, permission, shown string) *http.Request {
			return request("POST", "/requests", form, url.Values{"decision": {"denied"}, "shown_request": {shown},
				"request": {permission}, "shown_files": {""}}.Encode())
		},
	} {
		t.Run(name, func(t *testing.T) {
			is := is.New(t)
			chat := s.Chat(t, token, "x")
			permission := s.AppendReferral(t, chat, "per_"+chat)
			stored := func() map[string]any {
				_, stored := s.Call(t, token, "GET", webtest.RecordsPath("permissions")+"/"+permission, nil)
				return stored
			}
			shown := stored()["request"].(string)
			status, text := sendUntil(t, decide(chat, permission, shown), atTime(time.Now().Add(-time.Millisecond)))
			is.Equal(status, http.StatusPreconditionFailed)
			if problem := (api.Problem{}); json.Unmarshal([]byte(text), &problem) == nil {
				text = problem.Message
			}
			is.Equal(text, tooLate)
			status, _ = sendUntil(t, decide(chat, permission, shown), "tomorrow")
			is.Equal(status, http.StatusBadRequest)

			late := decide(chat, permission, shown) // its body ends after the deadline
			body, rest := io.Pipe()
			whole, err := io.ReadAll(late.Body)
			is.NoErr(err)
			deadline := time.Now().Add(arrival)
			late.Body, late.ContentLength = body, int64(len(whole))
			go func() {
				_, _ = rest.Write(whole[:1])
				<-time.After(time.Until(deadline) + time.Millisecond)
				_, _ = rest.Write(whole[1:])
				rest.Close()
			}()
			status, _ = sendUntil(t, late, atTime(deadline))
			is.Equal(status, http.StatusPreconditionFailed)
			is.Equal(stored()["status"], "draft")

			if name != "batch" { // which waits for no lock
				status, text = sendWaiting(t, s, chat, decide(chat, permission, shown))
				is.Equal(status, http.StatusPreconditionFailed)
				expect.Contains(t, text, tooLate)
				is.Equal(stored()["status"], "draft")
			}

			status, _ = sendUntil(t, decide(chat, permission, shown), atTime(time.Now().Add(time.Hour)))
			is.True(status == http.StatusOK || status == http.StatusNoContent)
			is.Equal(stored()["status"], "denied")
		})
	}
}

// sendWaiting sends a decision whose deadline passes while it waits for another decision about the chat.
func sendWaiting(t *testing.T, s *webtest.System, chat string, r *http.Request) (status int, text string) {
	t.Helper()
	deadline := time.Now().Add(arrival)
	answered := make(chan struct{})
	err := s.Web.Chats.Gate.Permissions.Chat(t.Context(), chat).Read(t.Context(), s.Log, func(*permission.State) error {
		go func() {
			defer close(answered)
			status, text = sendUntil(t, r, atTime(deadline))
		}()
		<-time.After(time.Until(deadline) + time.Millisecond)
		return nil
	})
	webtest.Check(t, err)
	<-answered
	return status, text
}

// The button of a notification has no body.
func TestAButtonAfterItsDeadlineIsRefused(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	s := webtest.NewSystem(t)
	_, token := s.User(t, "ada", "user")
	phone := webtest.NewPhone(t)
	s.Phone(t, token, phone)
	s.AppendReferral(t, s.Chat(t, token, "x"), "per_1")
	button := s.URL + "/api/pocketcoder/act/" + path.Base(phone.Button(t, "Deny"))
	press := func(deadline time.Time) int {
		r, err := http.NewRequestWithContext(t.Context(), "POST", button, nil)
		is.NoErr(err)
		status, _ := sendUntil(t, r, atTime(deadline))
		return status
	}
	is.Equal(press(time.Now().Add(-time.Millisecond)), http.StatusPreconditionFailed)
	is.Equal(press(time.Now().Add(time.Hour)), http.StatusOK)
}
