package web_test

import (
	"bytes"
	"crypto/rand"
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"

	"github.com/matryer/is"

	"pocketcoder/events"
	"pocketcoder/events/log"
	"pocketcoder/events/secret"
	"pocketcoder/handlers"
	"pocketcoder/handlers/account"
	"pocketcoder/handlers/model"
	"pocketcoder/handlers/project"
	"pocketcoder/handlers/proposal"
	"pocketcoder/handlers/record"
	"pocketcoder/handlers/recordtype"
	"pocketcoder/ops/expect"
	"pocketcoder/web/webtest"
)

// values returns the stored values of a key, by the names of its variables; nil if none is stored.
func values(s *webtest.System, t *testing.T, user string, key any) (values map[string]string) {
	t.Helper()
	raw, found, err := s.Web.Records.ProviderKeys.Secrets.Get(t.Context(), "llm."+user+"."+key.(string))
	webtest.Check(t, err)
	if found {
		webtest.Check(t, json.Unmarshal(raw, &values))
	}
	return values
}

func variables(list ...string) map[string]any {
	values := map[string]any{}
	for i := 0; i < len(list); i += 2 {
		values[list[i]] = list[i+1]
	}
	return map[string]any{"env_vars": values}
}

func TestProviderKeyStoresTheVariablesOfItsRecord(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	s := webtest.NewSystem(t)
	user, ann := s.User(t, "ann", account.User)
	body := variables("A", "value-a-1", "B", "value-b-1")
	body["id"], body["provider_id"] = "keykeykeykey001", " p "
	status, key := s.Call(t, ann, "POST", webtest.RecordsPath("llm_keys"), body)
	is.Equal(status, 200)
	is.Equal(key["provider_id"], " p ")
	id := key["id"]
	path := webtest.RecordsPath("llm_keys") + "/" + id.(string)
	for _, step := range []struct {
		body map[string]any
		want map[string]string
	}{
		// B as the API shows it
		{variables("A", "value-a-2", "B", ""), map[string]string{"A": "value-a-2", "B": "value-b-1"}},
		{map[string]any{}, map[string]string{"A": "value-a-2", "B": "value-b-1"}},
		{map[string]any{"provider_id": "q"}, map[string]string{"A": "value-a-2", "B": "value-b-1"}},
		{variables("B", ""), map[string]string{"B": "value-b-1"}},
		{variables("A", "", "B", ""), map[string]string{"B": "value-b-1"}}, // a removed value does not come back
		{variables(), nil},
		{variables("C", "value-c-1"), map[string]string{"C": "value-c-1"}},
	} {
		status, answer := s.Call(t, ann, "PATCH", path, step.body)
		is.Equal(status, 200)
		is.Equal(values(s, t, user, id), step.want)
		for name := range step.want {
			is.Equal(answer["env_vars"].(map[string]any)[name], "") // the names without the values
		}
	}
	body["env_vars"] = map[string]any{"Z": "value-z-1"}
	body["provider_id"] = "another"
	status, _ = s.Call(t, ann, "POST", webtest.RecordsPath("llm_keys"), body) // the id is taken
	is.Equal(status, 400)
	is.Equal(values(s, t, user, id), map[string]string{"C": "value-c-1"})
	status, _ = s.Call(t, ann, "DELETE", path, nil)
	is.Equal(status, http.StatusNoContent)
	is.Equal(values(s, t, user, id), nil)
}

func TestProviderKeySizeIsLimited(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	s := webtest.NewSystem(t)
	_, ann := s.User(t, "ann", account.User)
	many := map[string]any{}
	for i := range 21 {
		many[fmt.Sprint("K", i)] = "value"
	}
	for _, body := range []map[string]any{
		{"provider_id": strings.Repeat("p", 3000), "env_vars": map[string]any{"A": "secret123456"}},
		{"provider_id": strings.Repeat("p", 101)},
		{"provider_id": "p\r\nq"},
		{"provider_id": "p", "env_vars": many},
		{"provider_id": "p", "env_vars": map[string]any{"A": strings.Repeat("x", 4097)}},
		{"provider_id": "p", "env_vars": map[string]any{"A B": "x"}},
		{"provider_id": "p", "env_vars": map[string]any{"1A": "x"}},
		{"provider_id": "p", "env_vars": map[string]any{"": "x"}},
		{"provider_id": "p", "env_vars": map[string]any{strings.Repeat("A", 101): "x"}},
		{"provider_id": "p", "env_vars": map[string]any{"A": 1}},
		{"provider_id": "p", "env_vars": []any{"A"}},
		{"provider_id": "p", "env_vars": "A"},
	} {
		status, _ := s.Call(t, ann, "POST", webtest.RecordsPath("llm_keys"), body)
		is.Equal(status, 400)
	}
	for i := range 50 {
		status, _ := s.Call(t, ann, "POST", webtest.RecordsPath("llm_keys"),
			map[string]any{"provider_id": fmt.Sprint("p", i)})
		is.Equal(status, 200)
	}
	status, _ := s.Call(t, ann, "POST", webtest.RecordsPath("llm_keys"), map[string]any{"provider_id": "one more"})
	is.Equal(status, 400)
	status, _ = s.Call(t, ann, "POST", webtest.RecordsPath("llm_keys"),
		map[string]any{"provider_id": "p7", "env_vars": map[string]any{"A": "x"}})
	is.Equal(status, 200) // the key is in the list
}

// Redaction concerns every chat, so an account must not be able to hide text of other chats by storing that text as a
// key.
func TestOnlySecretsOfAdministratorsAreRedacted(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	s := webtest.NewSystem(t)
	s.Web.Records.ProviderKeys.Paths = append(s.Web.Records.ProviderKeys.Paths, "/srv/pocketcoder-data-of-2026")
	_, err := project.Ensure(t.Context(), s.Records, project.Project{ID: "app", Name: "app",
		Directory: "/srv/project-of-the-year-2027"})
	is.NoErr(err)
	_, ann := s.User(t, "ann", account.User)
	_, eve := s.User(t, "eve", account.User)
	_, root := s.User(t, "root", account.Admin)
	chat := s.Chat(t, ann, "x")
	const (
		secret = "sk-canary-0q7w2x9z4j8k"
		words  = "withoutanydigitatall 1234567890123456789012 of/a/path/0123456789 pocketcoder-data-of-2026 short-0123456789 " +
			"project-of-the-year-2027"
	)
	shown := func() any {
		_, c := s.Call(t, ann, "PATCH", webtest.RecordsPath("chats")+"/"+chat,
			map[string]any{"title": events.NewID() + " " + words + " " + secret + " " + s.Workspace})
		_, rest, _ := strings.Cut(c["title"].(string), " ")
		return rest
	}
	body := variables("A", "authorized", "B", "sessionID", "C", "a sentence of 2 or 3 words", "F", secret, "W",
		s.Workspace)
	body["provider_id"] = "p"
	for i, word := range strings.Fields(words) {
		body["env_vars"].(map[string]any)[fmt.Sprint("N", i)] = word
	}
	status, _ := s.Call(t, eve, "POST", webtest.RecordsPath("llm_keys"), body)
	is.Equal(status, 200)
	is.Equal(shown(), words+" "+secret+" "+s.Workspace) // eve is no administrator
	webtest.Check(t, s.Web.Records.ProviderKeys.Restore(t.Context()))
	is.Equal(shown(), words+" "+secret+" "+s.Workspace) // nor after a restart

	status, key := s.Call(t, root, "POST", webtest.RecordsPath("llm_keys"), body)
	is.Equal(status, 200)
	status, answer := s.Call(t, ann, "PATCH", webtest.RecordsPath("permissions")+"/"+s.AppendRequest(t, chat, "per_1"),
		map[string]any{"status": "authorized"})
	is.Equal(status, 200)
	is.Equal(answer["status"], "authorized")
	is.Equal(shown(), words+" [redacted] "+s.Workspace)
	status, _ = s.Call(t, root, "PATCH", webtest.RecordsPath("llm_keys")+"/"+key["id"].(string),
		variables("F", "sk-another-9k2p8x4m7v3q"))
	is.Equal(status, 200)
	is.Equal(shown(), words+" "+secret+" "+s.Workspace) // the value is no longer a key
}

func TestAProviderKeyThatCannotBeRedactedIsRefused(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	s := webtest.NewSystem(t)
	_, root := s.User(t, "root", account.Admin)
	var all []string
	for range secret.ProviderKeys.Budget() {
		all = append(all, rand.Text()+rand.Text()) // a shorter one may consist of words
	}
	is.Equal(s.Log.Conceal(secret.ProviderKeys, "others", all...), 0)
	body := variables("A", "sk-key-0q7w2x9z4j8k")
	body["provider_id"] = "p"
	status, answer := s.Call(t, root, "POST", webtest.RecordsPath("llm_keys"), body)
	is.Equal(status, 400)
	expect.Contains(t, answer["message"].(string), "No further keys of providers can be stored")
	s.Log.Conceal(secret.ProviderKeys, "others", all[1:]...)
	status, _ = s.Call(t, root, "POST", webtest.RecordsPath("llm_keys"), body)
	is.Equal(status, 200)
}

// The process ended after it deleted the record and before it deleted the values.
func TestOrphanedSecretsAreRemovedAtStart(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	s := webtest.NewSystem(t)
	_, root := s.User(t, "root", account.Admin)
	annID, ann := s.User(t, "ann", account.Admin)
	eveID, eve := s.User(t, "eve", account.Admin)
	save := func(token, provider, value string) string {
		body := variables("A", value)
		body["provider_id"] = provider
		status, key := s.Call(t, token, "POST", webtest.RecordsPath("llm_keys"), body)
		is.Equal(status, 200)
		return key["id"].(string)
	}
	const kept, lost, left = "sk-kept-0q7w2x9z4j8k", "sk-lost-1q7w2x9z4j8k", "sk-left-2q7w2x9z4j8k"
	stays, goes, eves := save(ann, "p", kept), save(ann, "q", lost), save(eve, "p", left)
	_, err := s.Records.Delete(t.Context(), record.Delete{Command: handlers.Command{Actor: events.ActorSystem},
		Collection: "llm_keys", Record: goes})
	is.NoErr(err)
	status, _ := s.Call(t, root, "DELETE", webtest.RecordsPath("users")+"/"+eveID, nil)
	is.Equal(status, http.StatusNoContent)
	webtest.Check(t, s.Web.Records.ProviderKeys.Secrets.Put(t.Context(), "llm.nobody", []byte("{}")))

	// the last change of a third key cannot be read
	const hidden = "sk-hidden-3q7w2x9z4j8k"
	unreadable := save(ann, "r", hidden)
	is.NoErr(s.Conn.Publish("evt.config.llm_keys."+unreadable+".saved", []byte("{}")))
	is.NoErr(s.Conn.Flush())

	log, err := log.Open(t.Context(), s.Conn, log.DefaultOptions, secret.NewRedactor()) // another process
	is.NoErr(err)
	stored := s.Web.Records.ProviderKeys
	restarted := &model.ProviderKeys{Records: recordtype.Open(log, recordtype.Machine{}), Secrets: stored.Secrets,
		Logger: stored.Logger}
	is.NoErr(restarted.Restore(t.Context()))
	keys, err := s.Web.Records.ProviderKeys.Secrets.Keys(t.Context(), "llm")
	is.NoErr(err)
	slices.Sort(keys)
	is.Equal(keys, slices.Sorted(slices.Values([]string{"llm." + annID + "." + stays, "llm." + annID + "." + unreadable})))
	is.Equal(values(s, t, eveID, eves), nil)
	is.Equal(string(log.Redactor().Bytes([]byte(kept+" "+hidden+" "+lost+" "+left))),
		"[redacted] [redacted] "+lost+" "+left)
}

func TestOnlyAdministratorsApproveProposals(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	s := webtest.NewSystem(t)
	_, ann := s.User(t, "ann", account.User)
	_, bot := s.User(t, "bot", account.Agent)
	_, root := s.User(t, "root", account.Admin)
	body := func(status string) map[string]any {
		return map[string]any{"name": "n", "content": "c", "authored_by": "human", "status": status,
			"approved_at": "2026-01-02 03:04:05.000Z"}
	}
	for _, token := range []string{ann, bot} {
		status, _ := s.Call(t, token, "POST", webtest.RecordsPath("proposals"), body("approved"))
		is.Equal(status, 400)
	}
	_, anns := s.Call(t, ann, "POST", webtest.RecordsPath("proposals"), body("draft"))
	is.Equal([]any{anns["authored_by"], anns["approved_at"]}, []any{"human", ""})
	_, bots := s.Call(t, bot, "POST", webtest.RecordsPath("proposals"), body("draft"))
	is.Equal([]any{bots["authored_by"], bots["approved_at"]}, []any{"poco", ""})
	_, approved := s.Call(t, root, "PATCH", webtest.RecordsPath("proposals")+"/"+bots["id"].(string),
		map[string]any{"status": "approved"})
	is.True(approved["approved_at"] != "")
	_, second := s.Call(t, root, "PATCH", webtest.RecordsPath("proposals")+"/"+bots["id"].(string),
		map[string]any{"status": "approved"})
	is.Equal(second["approved_at"], approved["approved_at"])
	_, given := s.Call(t, root, "POST", webtest.RecordsPath("proposals"), body("approved"))
	is.Equal(given["approved_at"], "2026-01-02 03:04:05.000Z")
}

// An approval that names what was shown does not approve another text.
func TestAProposalIsApprovedAsItWasShown(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	s := webtest.NewSystem(t)
	_, ann := s.User(t, "ann", account.User)
	_, root := s.User(t, "root", account.Admin)
	_, _ = s.Call(t, root, "POST", webtest.RecordsPath("sops"), map[string]any{"name": "n", "description": "d",
		"content": "in force"})
	_, first := s.Call(t, ann, "POST", webtest.RecordsPath("proposals"), map[string]any{"name": "n", "content": "c",
		"authored_by": "human", "status": "draft"})
	is.Equal(first["in_force"], "in force")
	path := webtest.RecordsPath("proposals") + "/" + first["id"].(string)
	status, edited := s.Call(t, root, "PATCH", path, map[string]any{"content": "other"})
	is.Equal(status, 200)
	is.True(edited["definition"] != first["definition"])
	decide := func(decision string, shown any) int {
		status, _ := s.Call(t, root, "PATCH", path, map[string]any{"status": decision, "shown_definition": shown})
		return status
	}
	is.True(decide("approved", first["definition"]) >= 400)
	_, now := s.Call(t, root, "GET", path, nil)
	is.Equal(now["status"], "draft")
	is.Equal(decide("approved", edited["definition"]), 200)
	is.NoErr(proposal.Proposals{Records: s.Records}.Apply(t.Context(), events.Event{}))
	is.Equal(decide("denied", edited["definition"]), 400) // the procedure exists
	_, second := s.Call(t, ann, "POST", webtest.RecordsPath("proposals"), map[string]any{"name": "o", "content": "c",
		"authored_by": "human", "status": "draft"})
	path = webtest.RecordsPath("proposals") + "/" + second["id"].(string)
	is.Equal(second["in_force"], "")
	for kind, want := range map[string]int{"agent": 400, "prompt": 400, "procedure": 200} {
		_, made := s.Call(t, ann, "POST", webtest.RecordsPath("proposals"), map[string]any{"kind": kind, "name": kind,
			"content": "---\nname: agent\n---\n\nt\n", "authored_by": "human", "status": "draft"})
		of := webtest.RecordsPath("proposals") + "/" + made["id"].(string)
		status, answer := s.Call(t, root, "PATCH", of, map[string]any{"status": "approved"})
		is.Equal(status, want)
		if want == 400 {
			expect.Contains(t, fmt.Sprint(answer), "Must be the definition of the proposal that was shown.")
			status, _ = s.Call(t, root, "PATCH", of, map[string]any{"status": "approved",
				"shown_definition": made["definition"]})
			is.Equal(status, 200)
		}
	}
	is.Equal(decide("denied", second["definition"]), 200)
}

func TestSSHKeyIsNormalizedToOneLine(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	s := webtest.NewSystem(t)
	_, ann := s.User(t, "ann", account.User)
	line := strings.TrimSpace(webtest.PublicKey(t))
	for _, bad := range []string{
		"ssh-hidden AAAAhidden someone else\n" + line, line + "\n" + line, "# comment\n" + line, line + "\r" + line,
		"garbage\n\n" + line,
		`command="sh" ` + line, "no-pty " + line, "garbage " + line, line + " \x1b[2J", "ssh-ed25519",
		line + strings.Repeat(" x", 9000),
	} {
		status, _ := s.Call(t, ann, "POST", webtest.RecordsPath("ssh_keys"),
			map[string]any{"public_key": bad, "is_active": true})
		is.Equal(status, 400)
	}
	status, key := s.Call(t, ann, "POST", webtest.RecordsPath("ssh_keys"),
		map[string]any{"public_key": "  " + line + "   ann's \t phone \n", "is_active": true})
	is.Equal(status, 200)
	is.Equal(key["public_key"], line+" ann's phone")
	is.Equal(key["comment"], "ann's phone")
	_, lines := s.Raw(t, ann, "GET", "/api/pocketcoder/ssh_keys", nil)
	is.True(bytes.Equal(bytes.TrimSpace(lines), []byte(line+" ann's phone")))
}

func TestSSHKeyBelongsToOneAccount(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	s := webtest.NewSystem(t)
	_, ann := s.User(t, "ann", account.User)
	_, bob := s.User(t, "bob", account.Admin)
	line, free := strings.TrimSpace(webtest.PublicKey(t)), strings.TrimSpace(webtest.PublicKey(t))
	status, key := s.Call(t, ann, "POST", webtest.RecordsPath("ssh_keys"),
		map[string]any{"public_key": line, "is_active": false})
	is.Equal(status, 200)
	taken := func(status int, answer map[string]any) {
		t.Helper()
		is.Equal(status, 400)
		is.Equal(answer["data"].(map[string]any)["public_key"].(map[string]any)["code"], "validation_not_unique")
	}
	for _, token := range []string{ann, bob} {
		status, answer := s.Call(t, token, "POST", webtest.RecordsPath("ssh_keys"),
			map[string]any{"public_key": line + " another comment", "is_active": true})
		taken(status, answer)
	}
	status, his := s.Call(t, bob, "POST", webtest.RecordsPath("ssh_keys"),
		map[string]any{"public_key": free, "is_active": true})
	is.Equal(status, 200)
	status, answer := s.Call(t, bob, "PATCH", webtest.RecordsPath("ssh_keys")+"/"+his["id"].(string),
		map[string]any{"public_key": line})
	taken(status, answer)
	status, _ = s.Call(t, ann, "DELETE", webtest.RecordsPath("ssh_keys")+"/"+key["id"].(string), nil)
	is.Equal(status, 204)
	status, _ = s.Call(t, bob, "PATCH", webtest.RecordsPath("ssh_keys")+"/"+his["id"].(string),
		map[string]any{"public_key": line})
	is.Equal(status, 200)
}

func TestOnlyAdministratorsStoreLargeConfigurationRecords(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	s := webtest.NewSystem(t)
	_, ann := s.User(t, "ann", account.User)
	_, agent := s.User(t, "poco", account.Agent)
	_, admin := s.User(t, "admin", account.Admin)
	rules := func(bytes int) map[string]any {
		return map[string]any{"rules": map[string]any{"x": strings.Repeat("y", bytes)}}
	}
	path := webtest.RecordsPath("notification_rules")
	status, own := s.Call(t, ann, "POST", path, rules(60<<10))
	is.Equal(status, 200)
	path += "/" + own["id"].(string)
	last := func() uint64 {
		seq, err := s.Log.Last(t.Context())
		is.NoErr(err)
		return seq
	}
	before := last()
	const refusal = "The fields of this record have 70 KiB, but only administrators may store more than 64 KiB."
	for _, w := range []struct {
		token, method, path string
		body                map[string]any
	}{
		{ann, "PATCH", path, rules(69 << 10)},
		{ann, "POST", webtest.RecordsPath("notification_rules"), rules(69 << 10)},
		{agent, "POST", webtest.RecordsPath("mcp_servers"), map[string]any{"name": "m", "status": "pending", "config": rules(69 << 10)}},
	} {
		status, answer := s.Call(t, w.token, w.method, w.path, w.body)
		is.Equal(status, 400)
		is.Equal(answer["message"], refusal)
	}
	status, _, _ = s.Batch(t, ann, webtest.Object{"method": "PATCH", "url": path, "body": rules(69 << 10)})
	is.Equal(status, 400)
	is.Equal(last(), before) // nothing is stored
	status, _ = s.Call(t, admin, "POST", webtest.RecordsPath("mcp_servers"),
		map[string]any{"name": "m", "status": "pending", "config": rules(69 << 10)})
	is.Equal(status, 200)
}
