package main

import (
	"slices"
	"strings"
	"testing"

	"github.com/matryer/is"

	"pocketcoder/events"
	"pocketcoder/handlers/model"
	"pocketcoder/ops/expect"
	"pocketcoder/projections"
)

const replacedKey = "sk-replaced-0q7w2x9z4j8k5v3m"

// A provider replaces its key. Until an administrator stores the new one, messages fail. Administrators get a notice. A
// turn that runs meanwhile continues with the new key.
func storedKeyReplacesARefusedKey(t *testing.T, p *process, replace func()) {
	is := is.New(t)
	admin := p.admin(t)
	chat := p.chat(t, "@@say one")
	p.turnEnds(t, chat)
	is.Equal(p.text(t, chat), "one")
	_, pid := p.engine(t)
	busy := p.chat(t, bash("touch running.txt"))
	request := admin.awaitRequest(t, busy)

	replace()
	const refusal = "custom refuses the key POCKETCODER_MODEL_KEY (status 401)"
	for range 2 {
		p.submit(t, chat, "@@say two")
		p.turnEnds(t, chat)
	}
	all := rows[projections.ShownMessage](t, p, "messages", chat)
	is.Equal(all[len(all)-1].EngineStatus, "failed")
	keyError := func() string {
		list := admin.list(t, "llm_providers", `provider_id = "custom"`)
		text, _ := list[0]["key_error"].(string)
		return text
	}
	expect.Eventually(t, "the refusal is recorded", func() bool { return strings.HasPrefix(keyError(), refusal) })
	health := func() string { return admin.do(t, "GET", "/api/health", nil).body }
	expect.Eventually(t, "health has the refusal", func() bool { return strings.Contains(health(), refusal) })

	key := admin.create(t, "llm_keys", record{"provider_id": "custom", "user": admin.id,
		"env_vars": map[string]string{"POCKETCODER_MODEL_KEY": replacedKey}})
	expect.Eventually(t, "the refusal is withdrawn", func() bool { return keyError() == "" })
	p.turnContinues(t, admin, busy, request)
	is.Equal(p.text(t, busy), "done") // by the new key
	p.submit(t, chat, "@@say three\n@@say "+replacedKey)
	p.turnEnds(t, chat)
	is.True(strings.HasPrefix(p.text(t, chat), "one|three")) // the messages before failed
	expect.Lacks(t, health(), refusal)
	_, now := p.engine(t)
	is.Equal(now, pid) // the value of a key needs no restart
	said := 0
	_, err := p.Log.Fold(t.Context(), events.ConfigSubject("llm_providers", "*", "*"), 0, func(e events.Event) error {
		said += strings.Count(string(e.Data), refusal)
		return nil
	})
	is.NoErr(err)
	is.Equal(said, 1) // though two messages failed
	_, err = p.Log.Fold(t.Context(), events.AllEvents, 0, func(e events.Event) error {
		is.True(!strings.Contains(string(e.Data), replacedKey))
		return nil
	})
	is.NoErr(err)

	anotherProviderIsConnected(t, p, admin, pid)
	is.Equal(admin.do(t, "DELETE", "/api/collections/llm_keys/records/"+key, nil).code, 204)
}

// anotherProviderIsConnected stores the key of a provider that OpenCode has no key of, and approves a procedure. For
// both, OpenCode is started again, but not while a turn runs.
func anotherProviderIsConnected(t *testing.T, p *process, admin login, pid int) {
	t.Helper()
	is := is.New(t)
	busy := p.chat(t, bash("touch waits.txt"))
	request := admin.awaitRequest(t, busy)
	admin.create(t, "llm_keys", record{"provider_id": "anthropic", "user": admin.id,
		"env_vars": map[string]string{"ANTHROPIC_API_KEY": "sk-ant-0q7w2x9z4j8k5v3m1b6n"}})
	expect.Eventually(t, "the restart waits", func() bool {
		return strings.Contains(admin.do(t, "GET", "/api/health", nil).body,
			"for other keys of providers or procedures, once no turn runs")
	})
	proposedProcedureIsApproved(t, p)
	_, now := p.engine(t)
	is.Equal(now, pid)
	p.turnContinues(t, admin, busy, request)
	expect.Eventually(t, "the provider is connected", func() bool {
		list := admin.list(t, "llm_providers", `provider_id = "anthropic"`)
		return len(list) == 1 && list[0]["is_connected"] == true
	})
	_, now = p.engine(t)
	is.True(now != pid)
	procedureIsASkill(t, p)
	modelIsSelectedForAllChats(t, p)
	after := p.chat(t, "@@say after the restart")
	p.turnEnds(t, after)
	is.Equal(p.text(t, after), "after the restart")
}

// turnContinues approves the request of a running turn and waits until the turn ends. A restart must not have
// interrupted the turn.
func (p *process) turnContinues(t *testing.T, admin login, chat string, request record) {
	t.Helper()
	is := is.New(t)
	admin.authorize(t, request)
	p.turnEnds(t, chat)
	for _, e := range p.history(t, chat) {
		kind := e.Subject.Kind
		is.True(kind != events.TurnLost{}.Kind() && kind != events.PermissionExpired{}.Kind()) // interrupted
	}
}

// modelIsSelectedForAllChats selects another model for all chats, and takes that back.
func modelIsSelectedForAllChats(t *testing.T, p *process) {
	t.Helper()
	is := is.New(t)
	run := func(args ...string) string {
		t.Helper()
		stdout, stderr, code := p.cli(t, "", append([]string{"model"}, args...)...)
		if code != 0 {
			t.Fatalf("model %v: %d %s", args, code, stderr)
		}
		return stdout
	}
	var all model.Models
	decode(t, run("list", "--json"), &all)
	i := slices.IndexFunc(all.Models, func(model string) bool { return strings.HasPrefix(model, "anthropic/") })
	is.True(i >= 0)
	expect.Contains(t, run("list"), "* custom/org/gpt-5-scripted\n")
	run("use", all.Models[i])
	expect.Contains(t, run("list"), "* "+all.Models[i]+"\n")
	run("reset")
	expect.Contains(t, run("list"), "* custom/org/gpt-5-scripted\n")
}
