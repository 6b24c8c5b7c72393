package web_test

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/matryer/is"

	"pocketcoder/events"
	"pocketcoder/expect"
	"pocketcoder/handlers"
	"pocketcoder/handlers/channel"
	"pocketcoder/handlers/handlerstest"
	"pocketcoder/web/webtest"
)

const (
	hookToken   = "0123456789abcdef-example"
	hookRecords = "/api/collections/webhooks/records"
)

// postToHook posts to a webhook and returns the status and the answer.
func postToHook(t *testing.T, s *webtest.System, id, body string, headers ...string) (int, map[string]any) {
	t.Helper()
	r, err := http.NewRequest(http.MethodPost, s.URL+"/api/hooks/"+id, strings.NewReader(body))
	webtest.Check(t, err)
	for i := 0; i < len(headers); i += 2 {
		r.Header.Set(headers[i], headers[i+1])
	}
	resp, err := http.DefaultClient.Do(r)
	webtest.Check(t, err)
	defer resp.Body.Close()
	raw, err := io.ReadAll(resp.Body)
	webtest.Check(t, err)
	var answer map[string]any
	_ = json.Unmarshal(raw, &answer)
	return resp.StatusCode, answer
}

func signed(body string) string {
	mac := hmac.New(sha256.New, []byte(hookToken))
	mac.Write([]byte(body))
	return "sha256=" + hex.EncodeToString(mac.Sum(nil))
}

// messageTexts returns the texts of the submitted messages.
func messageTexts(t *testing.T, s *webtest.System) (all []string) {
	t.Helper()
	_, err := s.Log.Fold(t.Context(), events.ChatSubject("*", "message.submitted"), 0, func(e events.Event) error {
		d, err := events.Decode(e)
		all = append(all, d.(events.MessageSubmitted).Parts[0].Text)
		return err
	})
	webtest.Check(t, err)
	return all
}

func TestARequestToAWebhookIsOneMessage(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	s := webtest.NewSystem(t)
	ada, token := s.User(t, "ada", "user")
	chat := s.Chat(t, token, "alerts")
	status, made := s.Call(t, token, "POST", hookRecords, map[string]any{"name": "ci", "user": ada,
		"chat": chat, "prompt": "Look into this alert.", "token": hookToken})
	is.Equal(status, 200)
	id := made["id"].(string)
	_, has := made["token"]
	is.True(!has)

	const body = `{"state":"failed"}`
	status, first := postToHook(t, s, id, body, "X-Hub-Signature-256", signed(body), "Idempotency-Key", "k1")
	is.Equal(status, 200)
	is.Equal(first["chat"], chat)
	status, again := postToHook(t, s, id, `{"state":"failed"}`, "Authorization", "Bearer "+hookToken,
		"Idempotency-Key", "k1")
	is.Equal(status, 200)
	is.Equal(again, first)
	is.Equal(len(messageTexts(t, s)), 1)
	expect.Contains(t, messageTexts(t, s)[0], "Look into this alert.")
	expect.Contains(t, messageTexts(t, s)[0], "data from outside")
	expect.Contains(t, messageTexts(t, s)[0], `{"state":"failed"}`)
	status, _ = postToHook(t, s, id, `{"state":"other"}`, "Authorization", "Bearer "+hookToken, "Idempotency-Key", "k1")
	is.Equal(status, 400) // the key names another message

	at := func(ago time.Duration) string { return fmt.Sprint(time.Now().Add(-ago).Unix()) }
	now, old := at(0), at(6*time.Minute)
	status, _ = postToHook(t, s, id, body, "X-PocketCoder-Signature", signed(now+"."+body), "X-PocketCoder-Timestamp", now,
		"Idempotency-Key", "k1")
	is.Equal(status, 200)

	for name, headers := range map[string][]string{
		"an old timestamp":            {"X-PocketCoder-Signature", signed(old + ".text"), "X-PocketCoder-Timestamp", old},
		"another timestamp":           {"X-PocketCoder-Signature", signed(old + ".text"), "X-PocketCoder-Timestamp", now},
		"a body with a timestamp":     {"X-PocketCoder-Signature", signed(now + ".text")},
		"no secret":                   {},
		"another secret":              {"Authorization", "Bearer x"},
		"an empty secret":             {"Authorization", "Bearer "},
		"a signature of another body": {"X-Hub-Signature-256", signed("other")},
	} {
		status, answer := postToHook(t, s, id, "text", headers...)
		is.Equal([]any{name, status}, []any{name, 404})
		expect.Contains(t, answer["message"].(string), "There is no such webhook")
	}
	// as recorded with a timestamp
	status, _ = postToHook(t, s, id, old+".text", "X-Hub-Signature-256", signed(old+".text"))
	is.Equal(status, 404)
	status, _ = postToHook(t, s, "unknown", "text", "Authorization", "Bearer "+hookToken)
	is.Equal(status, 404)
	for _, size := range []int{65 << 10, 10 << 20} {
		status, _ = postToHook(t, s, id, strings.Repeat("x", size), "Authorization", "Bearer "+hookToken)
		is.Equal(status, 400)
	}
	is.Equal(len(messageTexts(t, s)), 1)

	status, _ = s.Call(t, token, "PATCH", hookRecords+"/"+id, map[string]any{"enabled": false})
	is.Equal(status, 200)
	status, _ = postToHook(t, s, id, "text", "Authorization", "Bearer "+hookToken)
	is.Equal(status, 404)
}

func TestAWebhookOfAnotherAccountsChatIsRefused(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	s := webtest.NewSystem(t)
	_, token := s.User(t, "ada", "user")
	chat := s.Chat(t, token, "private")
	bob, other := s.User(t, "bob", "user")
	status, made := s.Call(t, other, "POST", hookRecords, map[string]any{"name": "ci", "user": bob, "chat": chat,
		"token": hookToken})
	if status == 200 {
		status, _ = postToHook(t, s, made["id"].(string), "text", "Authorization", "Bearer "+hookToken)
	}
	is.True(status >= 400)
	is.Equal(len(messageTexts(t, s)), 0)
	status, made = s.Call(t, other, "POST", hookRecords, map[string]any{"name": "ci", "user": bob, "token": hookToken})
	is.Equal(status, 200)
	status, one := postToHook(t, s, made["id"].(string), "text", "Authorization", "Bearer "+hookToken)
	is.Equal(status, 200)
	_, two := postToHook(t, s, made["id"].(string), "text", "Authorization", "Bearer "+hookToken)
	is.True(one["chat"] != two["chat"]) // a chat for each
	status, _ = s.Call(t, other, "POST", hookRecords, map[string]any{"name": "ci", "user": bob, "token": "short"})
	is.Equal(status, 400)
}

func TestAWebhookBeginsAFewChatsAnHour(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	s := webtest.NewSystem(t)
	bob, token := s.User(t, "bob", "user")
	status, made := s.Call(t, token, "POST", hookRecords, map[string]any{"name": "ci", "user": bob, "token": hookToken})
	is.Equal(status, 200)
	begun := map[string]bool{}
	for n := range 60 {
		if n%25 == 0 { // a restart forgets nothing
			old := s.Web.Channels.Channels
			s.Web.Channels.Channels = &channel.Channels{Log: old.Log, Secrets: old.Secrets, Records: old.Records,
				Chats: old.Chats, Accounts: old.Accounts, Decide: old.Decide, AwaitReadModels: old.AwaitReadModels,
				CountWaiting: old.CountWaiting, IsSubmitted: old.IsSubmitted}
		}
		received, err := s.Web.Channels.Channels.Post(t.Context(), channel.Posted{Webhook: made["id"].(string),
			Body: []byte("text"), Token: hookToken, Key: fmt.Sprint(n / 2)}) // each comes twice
		if n < 40 {
			is.NoErr(err)
			begun[received.Chat] = true
		} else {
			is.Equal(handlerstest.Refusal(t, err), handlers.Conflict)
		}
	}
	is.Equal([]int{len(begun), len(messageTexts(t, s))}, []int{20, 20})
}

func TestTheCodeOfARouteIsForItsCaller(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	s := webtest.NewSystem(t)
	_, admin := s.User(t, "root", "admin")
	_, token := s.User(t, "ada", "user")
	_, agent := s.User(t, "worker", "agent")
	status, _ := s.Call(t, admin, "POST", "/api/collections/channels/records", map[string]any{"name": "phone",
		"kind": "telegram", "token": "1:a"})
	is.Equal(status, 200)
	status, code := s.Call(t, token, "POST", "/api/pocketcoder/pair", map[string]any{"channel": "phone"})
	is.Equal(status, 200)
	is.Equal(len(code["code"].(string)), 12)
	status, _ = s.Call(t, agent, "POST", "/api/pocketcoder/pair", map[string]any{"channel": "phone"})
	is.Equal(status, 400)
	status, _ = s.Call(t, token, "POST", "/api/pocketcoder/pair", map[string]any{"channel": "none"})
	is.Equal(status, 404)
}
