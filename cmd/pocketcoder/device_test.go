package main

import (
	"crypto/ed25519"
	"crypto/rand"
	"encoding/json"
	"encoding/pem"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/matryer/is"
	cryptossh "golang.org/x/crypto/ssh"

	"pocketcoder/handlers/channel"
	"pocketcoder/ops/expect"
)

func TestDevicesAreAddedTestedAndRemoved(t *testing.T) {
	t.Parallel()
	p := startAPI(t)
	is := is.New(t)
	phone := newPhone(t)
	must := func(args ...string) string {
		t.Helper()
		stdout, stderr, code := p.cli(t, "", append([]string{"device"}, args...)...)
		if code != 0 {
			t.Fatalf("device %v: %d %s", args, code, stderr)
		}
		return stdout
	}
	devices := func() (all []channel.Device) {
		t.Helper()
		is.NoErr(json.Unmarshal([]byte(must("list", "--json")), &all))
		return all
	}
	expect.Contains(t, must("list"), "no devices")
	p.admin(t)
	must("add", "My phone", phone.URL+"/topic") // of the only account
	must("add", "My old phone", phone.URL+"/topic")
	all := devices()
	is.Equal(len(all), 1) // the same topic is the same device
	id := all[0].ID
	is.Equal(all[0].Name, "My old phone")
	listed := must("list")
	expect.Contains(t, listed, adminEmail)
	expect.Lacks(t, listed, "/topic") // the list does not show the secret topics
	expect.Contains(t, must("test", id), "accepted the notification")
	is.Equal(phone.next(t).Type, "test")

	missing := httptest.NewServer(http.NotFoundHandler())
	t.Cleanup(missing.Close)
	must("add", "Gone", missing.URL+"/topic")
	var broken string
	for _, d := range devices() {
		if d.Name == "Gone" {
			broken = d.ID
		}
	}
	_, stderr, code := p.cli(t, "", "device", "test", broken)
	is.Equal(code, 1)
	expect.Contains(t, stderr, "the notification was not sent: 404 Not Found")
	_, stderr, code = p.cli(t, "", "device", "test", broken)
	is.Equal(code, 1)
	expect.Contains(t, stderr, "there is no active device") // the service said that the device is gone

	ann := p.account(t, "user")
	_, stderr, code = p.cli(t, "", "device", "add", "Whose?")
	is.Equal(code, 1)
	expect.Contains(t, stderr, "name one with --user EMAIL")
	made := must("add", "Ann's", "--user", ann.email)
	expect.Contains(t, made, "\n  https://ntfy.sh/pocketcoder-")
	must("remove", id)
	is.Equal(len(devices()), 2)
	for want, args := range map[string][]string{
		"must be that of an ntfy topic": {"add", "x", "topic", "--user", ann.email},
		"needs a name":                  {"add", " ", "--user", ann.email},
		"there is no account":           {"add", "x", "--user", "nobody@example.org"},
		"there is no device":            {"remove", "nothing"},
		"wrong number of arguments":     {"test"},
		"want add, delete, disable":     {"drop"},
	} {
		_, stderr, code := p.cli(t, "", append([]string{"device"}, args...)...)
		is.True(code != 0)
		expect.Contains(t, stderr, want) // stderr names the error
	}
}

// newSSHKey creates a key, and returns the path of the private key and the public line.
func newSSHKey(t *testing.T) (path, public string) {
	t.Helper()
	is := is.New(t)
	_, private, err := ed25519.GenerateKey(rand.Reader)
	is.NoErr(err)
	block, err := cryptossh.MarshalPrivateKey(private, "")
	is.NoErr(err)
	path = filepath.Join(t.TempDir(), "key")
	is.NoErr(os.WriteFile(path, pem.EncodeToMemory(block), 0o600))
	key, err := cryptossh.NewPublicKey(private.Public())
	is.NoErr(err)
	return path, strings.TrimSpace(string(cryptossh.MarshalAuthorizedKey(key)))
}
