package admin

import (
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/matryer/is"

	"pocketcoder/cmd/backup"
	"pocketcoder/cmd/datadir"
	"pocketcoder/events"
	"pocketcoder/events/log"
	"pocketcoder/events/secret"
	"pocketcoder/ops/expect"
	"pocketcoder/ops/natsconf"
)

// parents are the chats of a data directory, with the chat that delegated to each.
var parents = map[string]string{"chat": "", "delegate": "chat", "below": "delegate", "other": "",
	"otherdelegate": "other"}

// chatsAndDelegates makes a data directory with the chats of parents. The title of each is its text.
func chatsAndDelegates(t *testing.T) datadir.Dir {
	t.Helper()
	is := is.New(t)
	d := datadir.Dir(filepath.Join(expect.MemoryDir(t), "data"))
	release, err := d.Open()
	is.NoErr(err)
	defer release()
	keys, err := natsconf.LoadKeys(d.Path("keys"))
	is.NoErr(err)
	server, nc, err := backup.OpenStore(t.Context(), d.Path("nats"), keys, true)
	is.NoErr(err)
	defer server.Close()
	defer nc.Close()
	l, err := log.Open(t.Context(), nc, log.DefaultOptions, secret.NewRedactor())
	is.NoErr(err)
	for chat, parent := range parents {
		created := events.ChatCreated{Title: textOf(chat), User: "u1"}
		if parent != "" {
			created.Parent = &events.Parent{Chat: parent, Root: "chat"}
		}
		e, err := events.New(chat, events.UserActor("u1"), created)
		is.NoErr(err)
		_, err = l.Append(t.Context(), e)
		is.NoErr(err)
	}
	return d
}

func textOf(chat string) string { return "text-of-" + chat + "-end" }

// chatsWithText returns the chats whose text is in a file of a data directory.
func chatsWithText(t *testing.T, d datadir.Dir) map[string]bool {
	t.Helper()
	found := map[string]bool{}
	is.New(t).NoErr(filepath.WalkDir(string(d), func(path string, e fs.DirEntry, err error) error {
		if err != nil || !e.Type().IsRegular() {
			return err
		}
		body, err := os.ReadFile(path)
		for chat := range parents {
			if strings.Contains(string(body), textOf(chat)) {
				found[chat] = true
			}
		}
		return err
	}))
	return found
}

func TestAnErasureReachesTheDelegatesOnlyByTheFlag(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	d := chatsAndDelegates(t)
	erase := func(flags ...string) string {
		t.Helper()
		env, out := environment(nil)
		is.NoErr(Run(t.Context(), env, append([]string{"erase", "chat", "--yes", "--data", string(d)}, flags...)))
		return out.String()
	}
	out := erase()
	is.Equal(chatsWithText(t, d), map[string]bool{"delegate": true, "below": true, "other": true, "otherdelegate": true})
	expect.Contains(t, out, "its delegates still hold their text: delegate\n"+
		"erase them with: pocketcoder admin erase --delegates chat\n")

	out = erase("--delegates") // also if the chat is erased already
	is.Equal(chatsWithText(t, d), map[string]bool{"other": true, "otherdelegate": true})
	for _, chat := range []string{"chat", "delegate", "below"} {
		expect.Contains(t, out, "erased chat "+chat+": ")
	}
	expect.Lacks(t, out, "still hold their text")
}
