package push_test

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/matryer/is"

	"pocketcoder/events"
	"pocketcoder/handlers/account"
	"pocketcoder/ops/expect"
)

func TestAButtonDecidesOnceInTheNameOfItsOwner(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	s, r := newSystem(t), newReceiver(t, nil)
	ann := s.user("ann", account.User)
	s.device("d1", ann, "unifiedpush", r.URL+"/topic")
	chat := s.chat(ann, "chat")
	s.appendRequest(chat, "per_1", "ls")
	all := buttons(t, s.awaitRequest(r, 0))

	decision, err := s.Act(t.Context(), token(t, all["Approve"]), "192.0.2.1")
	is.NoErr(err)
	is.Equal(decision, events.Authorized)
	var decided events.Event
	_, err = s.log.Fold(t.Context(), events.ChatSubject(chat, "permission.decided"), 0, func(e events.Event) error {
		decided = e
		return nil
	})
	is.NoErr(err)
	d, err := events.Decode(decided)
	is.NoErr(err)
	is.Equal(decided.Actor, events.UserActor(ann))
	is.Equal(d.(events.PermissionDecided).Client, events.Client{Address: "192.0.2.1", Device: "Phone of " + ann})
	is.Equal(d.(events.PermissionDecided).Command, "ls")

	_, err = s.Act(t.Context(), token(t, all["Approve"]), "")
	is.Equal(err.Error(), "this button was used already")
	_, err = s.Act(t.Context(), token(t, all["Deny"]), "")
	expect.Contains(t, err.Error(), "decided already") // the other button
	for _, unknown := range []string{"", "x", strings.Repeat("x", 1000), "a.b.>"} {
		_, err = s.Act(t.Context(), unknown, "")
		is.Equal(err.Error(), "there is no such button")
	}
}

func TestConcurrentPressesOfAButtonDecideOnce(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	s, r := newSystem(t), newReceiver(t, nil)
	ann := s.user("ann", account.User)
	s.device("d1", ann, "unifiedpush", r.URL+"/topic")
	s.appendRequest(s.chat(ann, "chat"), "per_1", "ls")
	deny := token(t, buttons(t, s.awaitRequest(r, 0))["Deny"])
	results := make(chan error)
	for range 8 {
		go func() { _, err := s.Act(t.Context(), deny, ""); results <- err }()
	}
	done := 0
	for range 8 {
		if <-results == nil {
			done++
		}
	}
	is.Equal(done, 1)
}

func TestInvalidButtonsAreRefused(t *testing.T) {
	t.Parallel()
	for name, spoil := range map[string]func(s *system, ann, button string){
		"when it has expired": func(s *system, _, button string) { s.expire(button) },
		"when its account is disabled": func(s *system, ann, _ string) {
			yes := true
			_, err := s.accounts.UpdateAccount(s.t.Context(), account.UpdateAccount{Account: ann, Disabled: &yes})
			check(s.t, err)
		},
		"when its account became an agent": func(s *system, ann, _ string) {
			role := account.Agent
			_, err := s.accounts.UpdateAccount(s.t.Context(), account.UpdateAccount{Account: ann, Role: &role})
			check(s.t, err)
		},
		"when its device was deactivated":   func(s *system, _, _ string) { s.save("devices", "d1", map[string]any{"is_active": false}) },
		"when its device has another owner": func(s *system, _, _ string) { s.save("devices", "d1", map[string]any{"user": "bob"}) },
		"when the chat has another owner": func(s *system, _, _ string) {
			bob := "bob"
			s.append("c1", events.ChatUpdated{User: &bob})
		},
		"when the ask is decided": func(s *system, _, _ string) { s.decide("c1", "per_1", events.Denied) },
		"when the files of the command changed": func(s *system, _, _ string) {
			s.append("c1", events.PermissionReferred{Permission: "per_1", Cwd: "/workspace",
				Files: []events.FileFingerprint{{Path: "/workspace/ls", Size: 1}}})
		},
		"when the notification shows another request": func(s *system, _, button string) {
			s.changeButton(button, "request", strings.Repeat("0", 64))
		},
		"when the ask has expired": func(s *system, _, _ string) {
			s.append("c1", events.PermissionExpired{Permission: "per_1", Reason: "gone"})
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			is := is.New(t)
			s, r := newSystem(t), newReceiver(t, nil)
			ann := s.user("ann", account.User)
			s.user("root", account.Admin) // so that ann is not the last administrator
			s.device("d1", ann, "unifiedpush", r.URL+"/topic")
			s.append("c1", events.ChatCreated{Title: "chat", User: ann, Engine: "local"})
			s.appendRequest("c1", "per_1", "ls")
			approve := buttons(t, s.awaitRequest(r, 0))["Approve"]
			before := s.count("c1", events.PermissionDecided{})
			spoil(s, ann, approve)
			if name == "when the ask is decided" {
				before++
			}
			_, err := s.Act(t.Context(), token(t, approve), "")
			is.True(err != nil)
			is.Equal(s.count("c1", events.PermissionDecided{}), before)
		})
	}
}

// changeButton changes a field of what is stored about a button.
func (s *system) changeButton(button, field string, value any) {
	s.t.Helper()
	sum := sha256.Sum256([]byte(token(s.t, button)))
	key := "act." + hex.EncodeToString(sum[:])
	stored, _, err := s.secrets.Get(s.t.Context(), key)
	check(s.t, err)
	var a map[string]any
	check(s.t, json.Unmarshal(stored, &a))
	a[field] = value
	stored, err = json.Marshal(a)
	check(s.t, err)
	check(s.t, s.secrets.Put(s.t.Context(), key, stored))
}

// expire makes a button expire.
func (s *system) expire(button string) {
	s.t.Helper()
	keys, err := s.secrets.Keys(s.t.Context(), "act")
	check(s.t, err)
	for _, key := range keys {
		value, _, err := s.secrets.Get(s.t.Context(), key)
		check(s.t, err)
		var a map[string]any
		check(s.t, json.Unmarshal(value, &a))
		if strings.Contains(string(value), token(s.t, button)) {
			s.t.Error("the token itself is kept")
		}
		expires, err := time.Parse(time.RFC3339, a["expires"].(string))
		check(s.t, err)
		if left := time.Until(expires); left < 14*time.Minute || left > 15*time.Minute {
			s.t.Errorf("a button holds for %s", left)
		}
		a["expires"] = time.Now().Add(-time.Second).UTC()
		value, _ = json.Marshal(a)
		check(s.t, s.secrets.Put(s.t.Context(), key, value))
	}
}

// count returns the number of events of a kind in a chat.
func (s *system) count(chat string, d events.Data) (n int) {
	s.t.Helper()
	_, err := s.log.Fold(s.t.Context(), events.ChatSubject(chat, d.Kind()), 0, func(events.Event) error {
		n++
		return nil
	})
	check(s.t, err)
	return n
}

func TestButtonsThatExpiredAreRemoved(t *testing.T) {
	t.Parallel()
	s, r := newSystem(t), newReceiver(t, nil)
	ann := s.user("ann", account.User)
	s.device("d1", ann, "unifiedpush", r.URL+"/topic")
	chat := s.chat(ann, "chat")
	s.appendRequest(chat, "per_1", "ls")
	s.awaitKinds("evt.chat."+chat, "queued", "sent")
	s.expire(buttons(t, s.awaitRequest(r, 0))["Deny"])
	s.stop()
	s.start()
	s.eventually("the buttons are gone", func() bool {
		keys, err := s.secrets.Keys(t.Context(), "act")
		check(t, err)
		return len(keys) == 0
	})
}

func TestApproveIsOfferedOnlyWhereAllOfItIsShown(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	s, r := newSystem(t), newReceiver(t, nil)
	ann := s.user("ann", account.User)
	s.device("d1", ann, "unifiedpush", r.URL+"/topic")
	chat := s.chat(ann, "")
	for i, c := range []struct {
		command, shown string
		whole          bool
	}{
		{"ls\x1b[2K\n\trm -r / # \u202e\u200b\u3164", "ls␛[2K\n  ␉rm -r / # <U+202E><U+200B><U+3164>", true},
		{"ls\nin /safe\nChat: x", "ls\n  in /safe\n  Chat: x", true}, // no line looks like one of ours
		{strings.Repeat("ä", 450), strings.Repeat("ä", 450), false},  // a phone shows a part only
		{strings.Repeat("ä", 450) + "; rm -r /", strings.Repeat("ä", 450) + "…", false},
		{"curl -H " + modelKey + " x", "curl -H [redacted] x", false}, // a secret is redacted
	} {
		s.appendRequest(chat, "per_"+string(rune('a'+i)), c.command)
		got := s.awaitRequest(r, i)
		is.Equal(read(t, got.body).Message, c.shown+"\nin /workspace\nno rule allows it\nChat: New chat")
		all := buttons(t, got)
		_, offered := all["Approve"]
		is.Equal(offered, c.whole)
		is.True(all["Deny"] != "")
	}
}

// A phone shows about ten lines. A button must not approve what is below them, or behind a screen of blanks.
func TestApproveIsOfferedOnlyForWhatAPhoneShows(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	s, r := newSystem(t), newReceiver(t, nil)
	ann := s.user("ann", account.User)
	s.device("d1", ann, "unifiedpush", r.URL+"/topic")
	chat := s.chat(ann, "")
	for i, c := range []struct {
		command, shown string
		whole          bool
	}{
		{"make check" + strings.Repeat("\n", 400) + "touch OWNED", "make check\n  ⏎×399\n  touch OWNED", true},
		{"make check" + strings.Repeat(" \n\t", 400) + "touch OWNED", "", false}, // tabs are signs
		{"make check" + strings.Repeat("\n  ", 400) + ";touch OWNED", "make check\n  ⏎×399\n  ;touch OWNED", true},
		{"make check" + strings.Repeat(" ", 700) + ";touch OWNED", "make check␠×700;touch OWNED", true},
		{"make check" + strings.Repeat("\u3000", 50) + ";touch OWNED", "make check" + strings.Repeat("<U+3000>", 50) + ";touch OWNED", false},
		// 11 rows
		{"make check" + strings.Repeat("\n", 9) + "touch OWNED", "make check" + strings.Repeat("\n", 8) + "\n  touch OWNED", false},
		// 10 rows with the folder
		{"a\nb\nc\nd\ne\nf\ng\nh\ni", "a\n  b\n  c\n  d\n  e\n  f\n  g\n  h\n  i", true},
		{"a\nb\nc\nd\ne\nf\ng\nh\ni\nj", "a\n  b\n  c\n  d\n  e\n  f\n  g\n  h\n  i\n  j", false},
		{strings.Repeat("x", 360), strings.Repeat("x", 360), true}, // wrapped
		{strings.Repeat("x", 361), strings.Repeat("x", 361), false},
		// a row for each word
		{strings.TrimSpace(strings.Repeat(strings.Repeat("x", 21)+" ", 16)), strings.TrimSpace(strings.Repeat(strings.Repeat("x", 21)+" ", 16)), false},
		{"make check #" + strings.Repeat("\u1100", 270) + "\ntouch OWNED", "make check #" + strings.Repeat("\u1100", 270) + "\n  touch OWNED", false},
		{strings.Repeat("漢", 181), strings.Repeat("漢", 181), false}, // two columns each
	} {
		s.appendRequest(chat, "per_"+string(rune('a'+i)), c.command)
		got := s.awaitRequest(r, i)
		if c.shown != "" {
			is.Equal(read(t, got.body).Message, c.shown+"\nin /workspace\nno rule allows it\nChat: New chat") // command
		}
		all := buttons(t, got)
		if _, offered := all["Approve"]; offered != c.whole {
			t.Errorf("approve %.30q…: %v", c.command, offered)
		}
		is.True(all["Deny"] != "")
	}
}

func TestAChangeIsShownAsItsDiff(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	s, r := newSystem(t), newReceiver(t, nil)
	ann := s.user("ann", account.User)
	s.device("d1", ann, "unifiedpush", r.URL+"/topic")
	chat := s.chat(ann, "Docs")
	header := func(file string) string {
		return "Index: " + file + "\n===================================================================\n--- " + file +
			"\n+++ " + file + "\n"
	}
	for i, c := range []struct {
		name, diff, title, message string
		whole                      bool
		files                      string // of a patch
	}{
		{"demo.md", "@@ -0,0 +1,3 @@\n+# Demo\n+\n+text\n", "Write demo.md (+3 −0)", "file: /w/demo.md\n+# Demo\n+\n+text\nChat: Docs", true, ""},
		{"a.go", "@@ -1,3 +1,3 @@\n one\n-two\n+2\n three\n", "Edit a.go (+1 −1)", "file: /w/a.go\n@@ -1,3 +1,3 @@\n one\n-two\n+2\n three\nChat: Docs", true, ""},
		{"b.go", "@@ -0,0 +1,1 @@\n" + strings.Repeat("+x", 600) + "\n", "Write b.go (+1 −0)", "file: /w/b.go\n" + strings.Repeat("+x", 443) + "…\nChat: Docs", false, ""},
		{"c.md", "@@ -1,1 +1,1 @@\n-a\n+[redacted]\n", "Edit c.md (+1 −1)", "file: /w/c.md\n@@ -1,1 +1,1 @@\n-a\n+[redacted]\nChat: Docs", false, ""},
		{"d.md", "@@ -1,1 +1,1 @@\n-a\n+b\n", "Edit d.md (+1 −1)", "update: /w/d.md\n@@ -1,1 +1,1 @@\n-a\n+b\nChat: Docs", true, `[{"filePath":"/w/d.md","type":"update"}]`},
		{"e.md", "@@ -1,1 +1,1 @@\n-a\n+b\n", "Move /w/e.md to /w/package.json", "", false, `[{"filePath":"/w/e.md","movePath":"/w/package.json","type":"move"}]`},
		{"f.md", "@@ -1,1 +0,0 @@\n-a\n", "Delete /w/f.md", "", false, `[{"filePath":"/w/f.md","type":"delete"}]`},
		{"i.md", "", "Edit i.md (no line changes)", "file: /w/i.md\n  No line changes: the file is empty, or it already has this content.\nChat: Docs", true, ""},
		{"g.md", "@@ -1,1 +1,1 @@\n-a\n+b\n", "Change 2 files", "", false, `[{"filePath":"/w/g.md"},{"filePath":"/w/h.md"}]`},
	} {
		about := map[string]any{"filepath": "/w/" + c.name, "diff": header("/w/"+c.name) + c.diff}
		if c.files != "" {
			about["files"] = json.RawMessage(c.files)
		}
		metadata, err := json.Marshal(about)
		is.NoErr(err)
		id := "per_" + string(rune('a'+i))
		s.appendOpenCode(chat, events.PermissionAsked, `{"id":"`+id+`","sessionID":"s","permission":"edit","patterns":["`+c.name+
			`"],"metadata":`+string(metadata)+`}`)
		s.append(chat, events.PermissionReferred{Permission: id})
		got := s.awaitRequest(r, i)
		b := read(t, got.body)
		is.Equal(b.Title, c.title)
		if c.message != "" {
			is.Equal(b.Message, c.message)
		}
		is.Equal(buttons(t, got)["Approve"] != "", c.whole)
	}
}

func TestASearchThatIsNotShownWholeIsNotApprovedOnAPhone(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	s, r := newSystem(t), newReceiver(t, nil)
	ann := s.user("ann", account.User)
	s.device("d1", ann, "unifiedpush", r.URL+"/topic")
	chat := s.chat(ann, "Docs")
	for i, metadata := range []string{`{}`, `{"pattern":"KEY","path":"/w/private"}`,
		`{"pattern":"KEY","include":"` + strings.Repeat("x", 1000) + `"}`} {
		id := fmt.Sprint("per_", i)
		s.appendOpenCode(chat, events.PermissionAsked, `{"id":"`+id+
			`","sessionID":"s","permission":"grep","patterns":["KEY"],"metadata":`+metadata+`}`)
		s.append(chat, events.PermissionReferred{Permission: id})
		got := s.awaitRequest(r, i)
		is.Equal(buttons(t, got)["Approve"] != "", i < 2)
		is.Equal(strings.Contains(read(t, got.body).Message, "KEY\n  path: /w/private\n"), i == 1)
	}
}

// Push services accept 4 KiB.
func TestTheLargestNotificationFits(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	s, r := newSystem(t), newReceiver(t, nil)
	ann := s.user("ann", account.User)
	s.device("d1", ann, "unifiedpush", r.URL+"/topic")
	long := strings.Repeat(`"`, 4000) // JSON doubles it
	chat := s.chat(ann, long[:500])
	metadata, err := json.Marshal(map[string]string{"command": long})
	is.NoErr(err)
	id := "per_" + strings.Repeat("x", 60)
	s.appendOpenCode(chat, events.PermissionAsked, `{"id":"`+id+
		`","sessionID":"s","permission":"bash","patterns":["x"],"metadata":`+string(metadata)+`}`)
	s.append(chat, events.PermissionReferred{Permission: id, Reason: long, Cwd: "/" + long})
	is.True(len(s.awaitRequest(r, 0).body) < 3400) // Web Push adds two buttons
}
