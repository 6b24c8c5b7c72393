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
	"github.com/nats-io/nats.go/jetstream"

	"pocketcoder/events"
	"pocketcoder/events/log"
	"pocketcoder/events/secret"
	"pocketcoder/handlers"
	"pocketcoder/handlers/channel"
	"pocketcoder/handlers/handlerstest"
	"pocketcoder/handlers/recordtype"
	"pocketcoder/ops/expect"
	"pocketcoder/web/webtest"
)

const (
	hookRecords = "/api/collections/webhooks/records"
	botToken    = "123456789:AAq7zk2xv9jh4wbdqtfmv"
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

func signed(token, body string) string {
	mac := hmac.New(sha256.New, []byte(token))
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
		"chat": chat, "prompt": "Look into this alert."})
	is.Equal(status, 200)
	id := made["id"].(string)
	hook := made["token"].(string)
	is.Equal(len(hook), 43)
	_, stored := s.Call(t, token, "GET", hookRecords+"/"+id, nil)
	_, has := stored["token"]
	is.True(!has)

	const body = `{"state":"failed"}`
	status, first := postToHook(t, s, id, body, "X-Hub-Signature-256", signed(hook, body), "Idempotency-Key", "k1")
	is.Equal(status, 200)
	is.Equal(first["chat"], chat)
	status, again := postToHook(t, s, id, `{"state":"failed"}`, "Authorization", "Bearer "+hook,
		"Idempotency-Key", "k1")
	is.Equal(status, 200)
	is.Equal(again, first)
	is.Equal(len(messageTexts(t, s)), 1)
	expect.Contains(t, messageTexts(t, s)[0], "Look into this alert.")
	expect.Contains(t, messageTexts(t, s)[0], "data from outside")
	expect.Contains(t, messageTexts(t, s)[0], `{"state":"failed"}`)
	status, _ = postToHook(t, s, id, `{"state":"other"}`, "Authorization", "Bearer "+hook, "Idempotency-Key", "k1")
	is.Equal(status, 400) // the key names another message

	at := func(ago time.Duration) string { return fmt.Sprint(time.Now().Add(-ago).Unix()) }
	now, old := at(0), at(6*time.Minute)
	status, _ = postToHook(t, s, id, body, "X-PocketCoder-Signature", signed(hook, now+"."+body),
		"X-PocketCoder-Timestamp", now,
		"Idempotency-Key", "k1")
	is.Equal(status, 200)

	for name, headers := range map[string][]string{
		"an old timestamp":            {"X-PocketCoder-Signature", signed(hook, old+".text"), "X-PocketCoder-Timestamp", old},
		"another timestamp":           {"X-PocketCoder-Signature", signed(hook, old+".text"), "X-PocketCoder-Timestamp", now},
		"a body with a timestamp":     {"X-PocketCoder-Signature", signed(hook, now+".text")},
		"no secret":                   {},
		"another secret":              {"Authorization", "Bearer x"},
		"an empty secret":             {"Authorization", "Bearer "},
		"a signature of another body": {"X-Hub-Signature-256", signed(hook, "other")},
	} {
		status, answer := postToHook(t, s, id, "text", headers...)
		is.Equal([]any{name, status}, []any{name, 404})
		expect.Contains(t, answer["message"].(string), "There is no such webhook")
	}
	// as recorded with a timestamp
	status, _ = postToHook(t, s, id, old+".text", "X-Hub-Signature-256", signed(hook, old+".text"))
	is.Equal(status, 404)
	status, _ = postToHook(t, s, "unknown", "text", "Authorization", "Bearer "+hook)
	is.Equal(status, 404)
	for _, size := range []int{65 << 10, 10 << 20} {
		status, _ = postToHook(t, s, id, strings.Repeat("x", size), "Authorization", "Bearer "+hook)
		is.Equal(status, 400)
	}
	is.Equal(len(messageTexts(t, s)), 1)

	status, _ = s.Call(t, token, "PATCH", hookRecords+"/"+id, map[string]any{"enabled": false})
	is.Equal(status, 200)
	status, _ = postToHook(t, s, id, "text", "Authorization", "Bearer "+hook)
	is.Equal(status, 404)
}

func TestAWebhookOfAnotherAccountsChatIsRefused(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	s := webtest.NewSystem(t)
	_, token := s.User(t, "ada", "user")
	chat := s.Chat(t, token, "private")
	bob, other := s.User(t, "bob", "user")
	status, made := s.Call(t, other, "POST", hookRecords, map[string]any{"name": "ci", "user": bob, "chat": chat})
	if status == 200 {
		status, _ = postToHook(t, s, made["id"].(string), "text", "Authorization", "Bearer "+made["token"].(string))
	}
	is.True(status >= 400)
	is.Equal(len(messageTexts(t, s)), 0)
	status, made = s.Call(t, other, "POST", hookRecords, map[string]any{"name": "ci", "user": bob})
	is.Equal(status, 200)
	status, one := postToHook(t, s, made["id"].(string), "text", "Authorization", "Bearer "+made["token"].(string))
	is.Equal(status, 200)
	_, two := postToHook(t, s, made["id"].(string), "text", "Authorization", "Bearer "+made["token"].(string))
	is.True(one["chat"] != two["chat"]) // a chat for each
}

func TestAWebhookBeginsAFewChatsAnHour(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	s := webtest.NewSystem(t)
	bob, token := s.User(t, "bob", "user")
	status, made := s.Call(t, token, "POST", hookRecords, map[string]any{"name": "ci", "user": bob})
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
			Body: []byte("text"), Token: made["token"].(string), Key: fmt.Sprint(n / 2)}) // each comes twice
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
		"kind": "telegram", "token": botToken})
	is.Equal(status, 200)
	status, code := s.Call(t, token, "POST", "/api/pocketcoder/pair", map[string]any{"channel": "phone"})
	is.Equal(status, 200)
	is.Equal(len(code["code"].(string)), 12)
	status, _ = s.Call(t, agent, "POST", "/api/pocketcoder/pair", map[string]any{"channel": "phone"})
	is.Equal(status, 400)
	status, _ = s.Call(t, token, "POST", "/api/pocketcoder/pair", map[string]any{"channel": "none"})
	is.Equal(status, 404)
}

func TestTheServerMakesTheTokenOfAWebhook(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	s := webtest.NewSystem(t)
	_, root := s.User(t, "root", "admin")
	ada, token := s.User(t, "ada", "user")
	_, other := s.User(t, "bob", "user")
	for path, body := range map[string]map[string]any{
		hookRecords: {"name": "ci", "user": ada},
		"/api/collections/webhook_targets/records": {"name": "ci", "url": "https://example.org/", "types": "turn.lost"},
	} {
		caller := map[bool]string{true: token, false: root}[path == hookRecords]
		status, made := s.Call(t, caller, "POST", path, body)
		is.Equal(status, 200)
		id, first := made["id"].(string), made["token"].(string)
		body["token"] = "Xk9mQ2pvL4zR8wTq7jHd"
		for method, at := range map[string]string{"POST": path, "PATCH": path + "/" + id} {
			status, refused := s.Call(t, caller, method, at, body)
			is.Equal(status, 400)
			expect.Contains(t, fmt.Sprint(refused["data"]), "PocketCoder makes the token")
		}
		renew := strings.Replace(strings.TrimSuffix(path, "/records"), "collections", "pocketcoder", 1) + "/" + id + "/token"
		status, _ = s.Call(t, other, "POST", renew, nil)
		is.Equal(status, 404) // only callers who may change the record
		status, renewed := s.Call(t, caller, "POST", renew, nil)
		is.Equal(status, 200)
		second := renewed["token"].(string)
		is.True(len(second) == 43 && second != first)
		redacted := func(text string) string { return string(s.Log.Redactor().Bytes([]byte(text))) }
		is.Equal(redacted(first+" "+second), first+" [redacted]")
		if path == hookRecords {
			status, _ = postToHook(t, s, id, "text", "Authorization", "Bearer "+first)
			is.Equal(status, 404)
			status, _ = postToHook(t, s, id, "text", "Authorization", "Bearer "+second)
			is.Equal(status, 200)
		}
		status, _ = s.Call(t, caller, "DELETE", path+"/"+id, nil)
		is.Equal(status, 204)
		is.Equal(redacted(second), second) // the deletion ends its redaction
		status, _ = s.Call(t, caller, "POST", renew, nil)
		is.Equal(status, 404)
	}
}

// A restart and other nodes read the secrets as they are stored.
func TestAnotherProcessRedactsTheTokenOfAWebhookUntilItIsDeleted(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	s := webtest.NewSystem(t)
	ada, token := s.User(t, "ada", "user")
	create := func() (id, hook string) {
		status, made := s.Call(t, token, "POST", hookRecords, map[string]any{"name": events.NewID(), "user": ada})
		is.Equal(status, 200)
		return made["id"].(string), made["token"].(string)
	}
	id, stored := create()
	gone, deleted := create()
	status, _ := s.Call(t, token, "DELETE", hookRecords+"/"+gone, nil)
	is.Equal(status, 204)
	webtest.Check(t, s.Web.Channels.Channels.Secrets.Put(t.Context(), "webhook.old", []byte("deploy to staging")))

	other, err := log.Open(t.Context(), s.Conn, log.DefaultOptions, secret.NewRedactor())
	is.NoErr(err)
	followed := recordtype.Open(other, recordtype.Machine{})
	followed.Secrets = s.Records.Secrets
	go followed.Follow(t.Context())
	redacted := func(text string) string { return string(other.Redactor().Bytes([]byte(text))) }
	expect.Eventually(t, "the stored token is redacted", func() bool { return redacted(stored) == "[redacted]" })
	is.Equal(redacted(deleted), deleted)
	_, later := create()
	expect.Eventually(t, "a later token is redacted", func() bool { return redacted(later) == "[redacted]" })
	is.Equal(redacted("deploy to staging, not to production"), "deploy to staging, not to production")
	status, _ = s.Call(t, token, "DELETE", hookRecords+"/"+id, nil)
	is.Equal(status, 204)
	expect.Eventually(t, "the deleted token is not redacted", func() bool { return redacted(stored) == stored })
}

func TestAWebhookWhoseTokenCannotBeRedactedIsRefused(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	s := webtest.NewSystem(t)
	ada, token := s.User(t, "ada", "user")
	var all []string
	for i := range secret.Webhooks.Budget() {
		all = append(all, fmt.Sprintf("%s%04d", "Xk9mQ2pvL4zR8wTq7jHd", i))
	}
	is.Equal(s.Log.Conceal(secret.Webhooks, "others", all...), 0)
	body := map[string]any{"name": "ci", "user": ada}
	status, refused := s.Call(t, token, "POST", hookRecords, body)
	is.Equal(status, 400)
	expect.Contains(t, refused["message"].(string), "No further tokens of webhooks can be stored")
	_, list := s.Call(t, token, "GET", hookRecords, nil)
	is.Equal(len(list["items"].([]any)), 0)
	s.Log.Conceal(secret.Webhooks, "others")
	status, _ = s.Call(t, token, "POST", hookRecords, body)
	is.Equal(status, 200)
}

func TestAChannelWithAWeakTokenIsRefused(t *testing.T) {
	t.Parallel()
	s := webtest.NewSystem(t)
	_, admin := s.User(t, "root", "admin")
	for token, reason := range map[string]string{"1:a": "is shorter than 16 bytes",
		"deploy-to-staging": "consists of words"} {
		status, refused := s.Call(t, admin, "POST", "/api/collections/channels/records", map[string]any{"name": "phone",
			"kind": "telegram", "token": token})
		if status != 400 {
			t.Error(token, status)
		}
		expect.Contains(t, fmt.Sprint(refused["data"].(map[string]any)["token"]), reason)
	}
}

func TestAnAccountHasALimitedNumberOfWebhooks(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	s := webtest.NewSystem(t)
	_, root := s.User(t, "root", "admin")
	ada, token := s.User(t, "ada", "user")
	bob, other := s.User(t, "bob", "user")
	body := map[string]any{"name": "ci", "user": ada}
	var id string
	for range 20 {
		status, made := s.Call(t, token, "POST", hookRecords, body)
		is.Equal(status, 200)
		id = made["id"].(string)
	}
	const limit = "The account has 20 webhooks. The limit is 20. Delete a webhook that is not used any more."
	status, refused := s.Call(t, token, "POST", hookRecords, body)
	is.Equal(status, 400)
	is.Equal(refused["message"], limit)
	status, _ = s.Call(t, token, "PATCH", hookRecords+"/"+id, map[string]any{"name": "build", "user": ada})
	is.Equal(status, 200)
	status, made := s.Call(t, other, "POST", hookRecords, map[string]any{"name": "ci", "user": bob})
	is.Equal(status, 200)
	status, _ = s.Call(t, root, "PATCH", hookRecords+"/"+made["id"].(string), map[string]any{"user": ada})
	is.Equal(status, 400) // an account gets no webhook of another
	status, _ = s.Call(t, token, "DELETE", hookRecords+"/"+id, nil)
	is.Equal(status, 204)
	status, _ = s.Call(t, token, "POST", hookRecords, body)
	is.Equal(status, 200)
}

func TestATokenStaysRedactedIfItsReplacementCannotBeStored(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	s := webtest.NewSystem(t)
	ada, token := s.User(t, "ada", "user")
	_, made := s.Call(t, token, "POST", hookRecords, map[string]any{"name": "ci", "user": ada})
	id, first := made["id"].(string), made["token"].(string)
	redacted := func(text string) string { return string(s.Log.Redactor().Bytes([]byte(text))) }
	js, err := jetstream.New(s.Conn)
	is.NoErr(err)
	stream, err := js.Stream(t.Context(), "KV_SECRETS")
	is.NoErr(err)
	limit := func(bytes int32) {
		config := stream.CachedInfo().Config
		config.MaxMsgSize = bytes
		_, err := js.UpdateStream(t.Context(), config)
		is.NoErr(err)
	}
	limit(1) // no secret fits
	renew := "/api/pocketcoder/webhooks/" + id + "/token"
	status, _ := s.Call(t, token, "POST", renew, nil)
	is.Equal(status, 500)
	is.Equal(redacted(first), "[redacted]") // it is still valid
	limit(-1)
	status, renewed := s.Call(t, token, "POST", renew, nil)
	is.Equal(status, 200)
	is.Equal(redacted(renewed["token"].(string)), "[redacted]")
	is.Equal(redacted(first), first)
}

// The process may end between the deletions of a record and of its secret.
func TestTheSecretOfADeletedRecordIsDeletedAtTheNextStart(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	s := webtest.NewSystem(t)
	ada, token := s.User(t, "ada", "user")
	channels := s.Web.Channels.Channels
	create := func() (key, hook string) {
		_, made := s.Call(t, token, "POST", hookRecords, map[string]any{"name": "ci", "user": ada})
		return "webhook." + made["id"].(string), made["token"].(string)
	}
	left, hook := create()
	used, _ := create()
	gone, err := events.NewConfig(channel.Webhooks, strings.TrimPrefix(left, "webhook."), events.UserActor(ada),
		events.Deleted{})
	is.NoErr(err)
	_, err = s.Log.Append(t.Context(), gone) // the process ended before it deleted the secret
	is.NoErr(err)
	go s.Records.Follow(t.Context())
	expect.Eventually(t, "the secret is deleted", func() bool {
		_, found, err := channels.Secrets.Get(t.Context(), left)
		is.NoErr(err)
		return !found && string(s.Log.Redactor().Bytes([]byte(hook))) == hook
	})
	_, found, err := channels.Secrets.Get(t.Context(), used)
	is.NoErr(err)
	is.True(found)
}
