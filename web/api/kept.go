package api

import (
	"context"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"maps"
	"slices"
	"time"

	"golang.org/x/crypto/ssh"

	"pocketcoder/events"
	"pocketcoder/handlers"
	"pocketcoder/projections"
	"pocketcoder/web/api/records"
)

// keptTable is the table of the collections that people and agents keep.
const keptTable = "config"

// unique are the fields of a collection that together name one record. With upsert, creating a second one changes the first:
// clients create without looking.
var unique = map[string]struct {
	fields []string
	upsert bool
}{
	"ai_agents":          {fields: []string{"name"}},
	"tool_permissions":   {fields: []string{"agent", "tool", "pattern"}},
	"sops":               {fields: []string{"name"}},
	"notification_rules": {fields: []string{"user"}, upsert: true},
	"devices":            {fields: []string{"user", "push_token"}, upsert: true},
	"llm_keys":           {fields: []string{"provider_id", "user"}, upsert: true},
	"model_selection":    {fields: []string{"user", "chat"}, upsert: true},
	"ssh_keys":           {fields: []string{"user", "fingerprint"}},
}

// complete fills in what follows from a record's other fields, and refuses what does not fit together.
var complete = map[string]func(s *Server, ctx context.Context, w change) error{
	"ssh_keys":    completeSSHKey,
	"sops":        completeSOP,
	"mcp_servers": completeMCPServer,
	"llm_keys":    completeLLMKey,
}

// computed says whether a required field is filled in by complete.
func computed(c records.Collection, f records.Field) bool {
	return c.ID == "ssh_keys" && f.Name == "fingerprint" || c.ID == "sops" && f.Name == "signature"
}

func createKept(s *Server, ctx context.Context, w change) (string, uint64, error) {
	return saveKept(s, ctx, w)
}

func updateKept(s *Server, ctx context.Context, w change) (string, uint64, error) {
	if user, given := w.text("user"); given && user != w.oldText("user") {
		return "", 0, badField("user", "validation_invalid_value", "The record stays its owner's.")
	}
	return saveKept(s, ctx, w)
}

func saveKept(s *Server, ctx context.Context, w change) (string, uint64, error) {
	if fill := complete[w.c.ID]; fill != nil {
		if err := fill(s, ctx, w); err != nil {
			return "", 0, err
		}
	}
	rule := unique[w.c.ID]
	return s.Handlers.SaveRecord(ctx, handlers.SaveRecord{
		Command: w.Command, Collection: w.c.ID, Record: w.id, Set: w.set, New: w.gone, Unique: rule.fields, Upsert: rule.upsert,
	})
}

func removeKept(s *Server, ctx context.Context, w change) (string, uint64, error) {
	seq, err := s.Handlers.DeleteRecord(ctx, handlers.DeleteRecord{Command: w.Command, Collection: w.c.ID, Record: w.id})
	if err == nil && w.c.ID == "llm_keys" {
		err = s.Secrets.Delete(ctx, llmKey(w.oldText("user"), w.oldText("provider_id")))
	}
	return w.id, seq, err
}

// completeSSHKey computes the fingerprint itself: a client's word about its key is worth nothing. It is padded base64, as the
// phone app looks for it.
func completeSSHKey(_ *Server, _ context.Context, w change) error {
	line, given := w.text("public_key")
	if !given {
		delete(w.set, "fingerprint")
		return nil
	}
	key, comment, _, rest, err := ssh.ParseAuthorizedKey([]byte(line))
	if err != nil || len(rest) > 0 {
		return badField("public_key", "validation_invalid_value", "Must be one public key, as in a .pub file.")
	}
	sum := sha256.Sum256(key.Marshal())
	w.set["fingerprint"] = mustJSON("SHA256:" + base64.StdEncoding.EncodeToString(sum[:]))
	w.set["algorithm"] = mustJSON(key.Type())
	if _, given := w.set["comment"]; !given {
		w.set["comment"] = mustJSON(comment)
	}
	return nil
}

// completeSOP signs the content with its hash, so that a reader sees whether it is what was approved.
func completeSOP(_ *Server, _ context.Context, w change) error {
	delete(w.set, "signature")
	if content, given := w.set["content"]; given {
		sum := sha256.Sum256([]byte(textOf(content)))
		w.set["signature"] = mustJSON(hex.EncodeToString(sum[:]))
	}
	return nil
}

// completeMCPServer notes who let a server in and when; an agent can only ask for one.
func completeMCPServer(_ *Server, _ context.Context, w change) error {
	delete(w.set, "approved_by")
	delete(w.set, "approved_at")
	status, given := w.text("status")
	if w.gone {
		w.set["requested_by"] = mustJSON(w.who.Account)
		if status != "pending" && !w.who.is("admin") {
			return badField("status", "validation_invalid_value", "Must be pending: an administrator decides.")
		}
	}
	if given && status == "approved" && w.oldStatus() != "approved" {
		w.set["approved_by"] = mustJSON(w.who.Account)
		w.set["approved_at"] = mustJSON(time.Now().UTC().Format(projections.TimeFormat))
	}
	return nil
}

func (w change) oldStatus() string {
	if w.gone {
		return ""
	}
	return w.oldText("status")
}

// ConcealKeys takes the values of all providers' variables out of every event from now on.
func ConcealKeys(ctx context.Context, log *events.Log, secrets *events.Secrets) error {
	keys, err := secrets.Keys(ctx, llmKeys)
	if err != nil {
		return err
	}
	for _, key := range keys {
		raw, _, err := secrets.Get(ctx, key)
		if err != nil {
			return err
		}
		var values map[string]string
		_ = json.Unmarshal(raw, &values) // written by completeLLMKey
		log.Conceal(slices.Collect(maps.Values(values))...)
	}
	return nil
}

// llmKeys is the prefix of all their keys among the secrets.
const llmKeys = "llm"

// llmKey is where the values of a provider's variables are kept.
func llmKey(user, provider string) string {
	return llmKeys + "." + user + "." + hex.EncodeToString([]byte(provider))
}

// completeLLMKey puts the values among the secrets; the record has the names of the variables alone.
func completeLLMKey(s *Server, ctx context.Context, w change) error {
	raw, given := w.set["env_vars"]
	if !given {
		return nil
	}
	var values map[string]string
	if json.Unmarshal(raw, &values) != nil {
		return badField("env_vars", "validation_invalid_type", "want an object of texts")
	}
	named, secrets := map[string]string{}, []string{}
	for name, value := range values {
		named[name] = ""
		if value != "" {
			secrets = append(secrets, value)
		}
	}
	user, _ := w.text("user")
	provider, _ := w.text("provider_id")
	if !w.gone { // the values are found by these two
		user, provider = w.oldText("user"), w.oldText("provider_id")
		w.set["provider_id"] = mustJSON(provider)
	}
	w.set["env_vars"] = mustJSON(named)
	if len(secrets) == 0 {
		return nil // a record that is sent back as it was shown
	}
	slices.Sort(secrets)
	s.Log.Conceal(secrets...)
	return s.Secrets.Put(ctx, llmKey(user, provider), raw)
}
