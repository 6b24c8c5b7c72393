package handlers_test

import (
	"crypto/ed25519"
	"encoding/json"
	"strings"
	"testing"
	"time"

	"github.com/matryer/is"
	"golang.org/x/crypto/ssh"

	"pocketcoder/handlers"
	"pocketcoder/handlers/handlerstest"
	"pocketcoder/handlers/permission/permissiontest"
	"pocketcoder/handlers/record"
	"pocketcoder/handlers/sshkey"
)

func TestALoginWithAKeyIsRecordedAtMostOnceAMinute(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	h := permissiontest.Open(t)
	public, _, err := ed25519.GenerateKey(nil)
	is.NoErr(err)
	key, err := ssh.NewPublicKey(public)
	is.NoErr(err)
	line := strings.TrimSpace(string(ssh.MarshalAuthorizedKey(key))) + " ann@laptop"
	id, _, err := h.Records.Save(t.Context(), record.Save{Command: handlers.Command{Actor: handlerstest.Alice}, New: true,
		Collection: sshkey.Collection, Set: record.Fields(map[string]any{"user": "ann", "public_key": line, "is_active": true})})
	is.NoErr(err)
	registered := func() sshkey.Registered {
		t.Helper()
		all, err := sshkey.All(t.Context(), h.Records)
		is.NoErr(err)
		is.Equal(len(all), 1)
		return all[0]
	}
	is.Equal(registered().LastUsed, "")
	use := func() uint64 {
		t.Helper()
		seq, err := sshkey.Use{Command: handlers.Command{Actor: handlerstest.Alice},
			Key: id}.Execute(t.Context(), h.Records)
		is.NoErr(err)
		return seq
	}
	first := use()
	is.True(strings.HasPrefix(registered().LastUsed, time.Now().UTC().Format("2006-")))
	is.Equal(use(), first)
	_, _, err = h.Records.Save(t.Context(), record.Save{
		Command: handlers.Command{Actor: handlerstest.Alice}, Collection: sshkey.Collection, Record: id,
		Set: map[string]json.RawMessage{"last_used": json.RawMessage(`"2026-01-02 03:04:05.000Z"`)},
	})
	is.NoErr(err)
	is.True(use() > first)
	is.True(registered().LastUsed > "2026-01-02 03:04:05.000Z")
	is.Equal(registered().Fingerprint[:7], "SHA256:")
	_, err = sshkey.Use{Command: handlers.Command{Actor: handlerstest.Alice},
		Key: "nothing"}.Execute(t.Context(), h.Records)
	is.True(err != nil)
}
