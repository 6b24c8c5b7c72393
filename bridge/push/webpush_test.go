package push_test

import (
	"crypto/aes"
	"crypto/cipher"
	"crypto/ecdh"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/hkdf"
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/golang-jwt/jwt/v5"
	"github.com/matryer/is"

	"pocketcoder/bridge/push"
	"pocketcoder/events"
	"pocketcoder/handlers/account"
	"pocketcoder/ops/expect"
)

// browser is a Web Push subscriber.
type browser struct {
	key  *ecdh.PrivateKey
	auth []byte
}

func newBrowser(t testing.TB) browser {
	t.Helper()
	key, err := ecdh.P256().GenerateKey(rand.Reader)
	check(t, err)
	auth := make([]byte, 16)
	rand.Read(auth)
	return browser{key, auth}
}

// subscription returns a PushSubscription in JSON.
func (b browser) subscription(endpoint string) string {
	text, _ := json.Marshal(map[string]any{"endpoint": endpoint, "expirationTime": nil, "keys": map[string]string{
		"p256dh": base64.RawURLEncoding.EncodeToString(b.key.PublicKey().Bytes()), "auth": base64.RawURLEncoding.EncodeToString(b.auth),
	}})
	return string(text)
}

// open decrypts a message: RFC 8291, with one record of RFC 8188.
func (b browser) open(t testing.TB, sealed string) string {
	t.Helper()
	salt, size := []byte(sealed[:16]), int(sealed[20])
	sender, err := ecdh.P256().NewPublicKey([]byte(sealed[21 : 21+size]))
	check(t, err)
	shared, err := b.key.ECDH(sender)
	check(t, err)
	derive := func(secret, salt []byte, info string, n int) []byte {
		key, err := hkdf.Key(sha256.New, secret, salt, info, n)
		check(t, err)
		return key
	}
	ikm := derive(shared, b.auth, "WebPush: info\x00"+string(b.key.PublicKey().Bytes())+string(sender.Bytes()), 32)
	block, err := aes.NewCipher(derive(ikm, salt, "Content-Encoding: aes128gcm\x00", 16))
	check(t, err)
	gcm, err := cipher.NewGCM(block)
	check(t, err)
	padded, err := gcm.Open(nil, derive(ikm, salt, "Content-Encoding: nonce\x00", 12), []byte(sealed[21+size:]), nil)
	check(t, err)
	return strings.TrimSuffix(strings.TrimRight(string(padded), "\x00"), "\x02")
}

func TestWebPushIsReadByTheBrowserAlone(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	s, r, b := newSystem(t), newReceiver(t, nil), newBrowser(t)
	ann := s.user("ann", account.User)
	s.device("d1", ann, "webpush", b.subscription(r.URL+"/wpush/secret"))
	chat := s.chat(ann, "chat")
	s.appendRequest(chat, "per_1", "ls")
	got := s.awaitRequest(r, 0)
	is.Equal(got.path, "/wpush/secret")
	is.Equal([]string{got.header.Get("Content-Encoding"), got.header.Get("TTL"), got.header.Get("Urgency")},
		[]string{"aes128gcm", "86400", "high"})
	expect.Lacks(t, got.body, "may I run this")

	shown := read(t, b.open(t, got.body))
	is.Equal([]string{shown.Title, shown.Message, shown.Type, shown.Chat},
		[]string{"Run ls", "ls\nin /workspace\nno rule allows it\nChat: chat", "permission", chat})
	is.Equal(shown.Click, baseURL+"/requests/per_1")
	is.Equal(shown.ID, got.header.Get("Topic"))
	is.Equal([]string{shown.Actions[0].Action, shown.Actions[1].Action}, []string{"approve", "deny"})
	s.awaitKinds("evt.chat."+chat, "queued", "sent")

	_, err := s.Act(t.Context(), token(t, shown.Actions[1].URL), "")
	is.NoErr(err)
	withdrawal := s.awaitRequest(r, 1)
	is.Equal(withdrawal.header.Get("Topic"), shown.ID) // it replaces the first message
	done := read(t, b.open(t, withdrawal.body))
	is.True(done.Done)
	is.Equal([]any{done.ID, done.Message, len(done.Actions)}, []any{shown.ID, "It is decided.", 0})
	s.checkSignature(r, got.header.Get("Authorization"))
}

// checkSignature checks that a request is signed with our key, for its receiver only.
func (s *system) checkSignature(r *receiver, authorization string) {
	s.t.Helper()
	is := is.New(s.t)
	signed, key, ok := strings.Cut(strings.TrimPrefix(authorization, "vapid t="), ", k=")
	is.True(ok)
	is.Equal(key, s.vapid.Public)
	point, err := base64.RawURLEncoding.DecodeString(key)
	is.NoErr(err)
	public, err := ecdsa.ParseUncompressedPublicKey(elliptic.P256(), point)
	is.NoErr(err)
	claims := jwt.MapClaims{}
	_, err = jwt.ParseWithClaims(signed, claims, func(*jwt.Token) (any, error) { return public, nil },
		jwt.WithValidMethods([]string{"ES256"}), jwt.WithExpirationRequired())
	is.NoErr(err)
	is.Equal([]any{claims["aud"], claims["sub"]}, []any{r.Server.URL, baseURL})
}

func TestTheLongestWebPushFits(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	s, r, b := newSystem(t), newReceiver(t, nil), newBrowser(t)
	ann := s.user("ann", account.User)
	s.device("d1", ann, "webpush", b.subscription(r.URL))
	s.device("d2", ann, "unifiedpush", r.URL)
	chat := s.chat(ann, strings.Repeat("𝄞", 125))
	s.appendOpenCode(chat, events.PermissionAsked, `{"id":"per_1","sessionID":"s","permission":"bash","patterns":[],"metadata":{"command":"`+strings.Repeat("𝄞", 200)+`"}}`)
	s.append(chat, events.PermissionReferred{Permission: "per_1", Reason: strings.Repeat("𝄞", 500)})
	s.awaitRequest(r, 1)
	for _, got := range r.requests() {
		is.True(len(got.body) <= 4096) // the limit of push services
	}
	s.eventually("both are sent", func() bool { return s.count(chat, events.NotificationSent{}) == 2 })
}

func TestABrokenSubscriptionFailsForGood(t *testing.T) {
	t.Parallel()
	for _, token := range []string{"", "x", `{"endpoint":"https://push.example.org"}`,
		`{"endpoint":"https://push.example.org","keys":{"auth":"AA","p256dh":"AA"}}`,
		`{"endpoint":"https://push.example.org","keys":{"auth":"!","p256dh":"!"}}`,
		newBrowser(t).subscription("ftp://push.example.org")} {
		s := newSystem(t)
		ann := s.user("ann", account.User)
		s.device("d1", ann, "webpush", token)
		chat := s.chat(ann, "chat")
		s.appendRequest(chat, "per_1", "ls")
		s.awaitKinds("evt.chat."+chat, "queued", "failed")
		if got := s.notificationsAbout("evt.chat." + chat)[1].(events.NotificationFailed); got.Attempts != 1 {
			t.Errorf("%s: %+v", token, got)
		}
	}
}

func TestWebPushKeysAreStoredInAPrivateFile(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	file := filepath.Join(t.TempDir(), "webpush.json")
	made, err := push.LoadVAPID(file)
	is.NoErr(err)
	reread, err := push.LoadVAPID(file)
	is.NoErr(err)
	is.Equal(reread, made)
	info, err := os.Stat(file)
	is.NoErr(err)
	is.Equal(info.Mode().Perm(), os.FileMode(0o600))
	is.NoErr(os.Chmod(file, 0o644))
	_, err = push.LoadVAPID(file)
	expect.Contains(t, err.Error(), "only its owner can read")
	is.NoErr(os.WriteFile(file, []byte("{}"), 0o600))
	is.NoErr(os.Chmod(file, 0o600))
	_, err = push.LoadVAPID(file)
	expect.Contains(t, err.Error(), "does not hold")
}
