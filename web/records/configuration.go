package records

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"time"

	"pocketcoder/events"
	"pocketcoder/handlers/account"
	"pocketcoder/handlers/record"
	"pocketcoder/web/api"
	"pocketcoder/web/query/schema"
)

// ConfigTable is the table of the configuration records of all collections.
const ConfigTable = "config"

// unique are the fields of a collection whose values identify one record. With upsert, creating a second record with
// the same values changes the first: some clients create without checking.
var unique = map[string]struct {
	fields []string
	upsert bool
}{
	"ai_agents":                   {fields: []string{"name"}},
	"tool_permissions":            {fields: []string{"agent", "tool", "pattern", "chat"}},
	"sops":                        {fields: []string{"name"}},
	"budgets":                     {fields: []string{"name"}},
	"notification_rules":          {fields: []string{"user"}, upsert: true},
	"devices":                     {fields: []string{"user", "push_token"}, upsert: true},
	record.ProviderKeysCollection: {fields: []string{"provider_id", "user"}, upsert: true},
	"ssh_keys":                    {fields: []string{"fingerprint"}}, // among all accounts: a key says who somebody is
}

// complete sets fields that follow from others, and refuses fields that contradict each other.
var complete = map[string]func(s *Records, ctx context.Context, w change) error{
	"sops":              completeSOP,
	"mcp_servers":       completeMCPServer,
	"proposals":         completeProposal,
	"budgets":           completeBudget,
	"tool_permissions":  completeToolPermission,
	"whitelist_actions": completeWhitelistAction,
	"whitelist_targets": completeWhitelistTarget,
}

// computed reports whether complete sets a required field.
func computed(c schema.Collection, f schema.Field) bool {
	return c.ID == sshKeys && f.Name == "fingerprint" || c.ID == "sops" && f.Name == "signature"
}

func createKept(s *Records, ctx context.Context, w change) (string, uint64, error) {
	return saveKept(s, ctx, w)
}

func updateKept(s *Records, ctx context.Context, w change) (string, uint64, error) {
	if user, given := w.text("user"); given && user != w.oldText("user") {
		return "", 0, api.BadField("user", "validation_invalid_value", "The record stays its owner's.")
	}
	return saveKept(s, ctx, w)
}

// maxRecordBody is how many bytes of fields a client may send for a configuration record without admin rights: the log stores
// each version for ever.
const maxRecordBody = 64 << 10

// checkSize refuses a body of more than maxRecordBody, unless the caller is an administrator.
func (w change) checkSize() error {
	size := 0
	for name, value := range w.set {
		size += len(name) + len(value)
	}
	if size > maxRecordBody && !w.who.Is(account.Admin) {
		return api.BadRequest("The fields of this record have %d KiB, but only administrators may store more than %d KiB.", (size+1023)>>10, maxRecordBody>>10)
	}
	return nil
}

func saveKept(s *Records, ctx context.Context, w change) (string, uint64, error) {
	if err := w.checkSize(); err != nil {
		return "", 0, err
	}
	switch w.c.ID {
	case record.ProviderKeysCollection:
		return saveLLMKey(s, ctx, w)
	case sshKeys:
		return saveSSHKey(s, ctx, w)
	case modelSelection:
		return saveModelSelection(s, ctx, w)
	}
	if fill := complete[w.c.ID]; fill != nil {
		if err := fill(s, ctx, w); err != nil {
			return "", 0, err
		}
	}
	return saveRecord(s, ctx, w)
}

func saveRecord(s *Records, ctx context.Context, w change) (string, uint64, error) {
	rule := unique[w.c.ID]
	return s.Records.Save(ctx, record.Save{
		Command: w.Command, Collection: w.c.ID, Record: w.id, Set: w.set, New: w.isNew, Unique: rule.fields, Upsert: rule.upsert,
	})
}

func removeKept(s *Records, ctx context.Context, w change) (string, uint64, error) {
	if w.c.ID == record.ProviderKeysCollection {
		return removeLLMKey(s, ctx, w)
	}
	return removeRecord(s, ctx, w)
}

func removeRecord(s *Records, ctx context.Context, w change) (string, uint64, error) {
	seq, err := s.Records.Delete(ctx, record.Delete{Command: w.Command, Collection: w.c.ID, Record: w.id})
	return w.id, seq, err
}

// completeSOP stores the hash of the content, so that a reader can check that the content is the approved one.
func completeSOP(_ *Records, _ context.Context, w change) error {
	delete(w.set, "signature")
	if content, given := w.set["content"]; given {
		sum := sha256.Sum256([]byte(textOf(content)))
		w.set["signature"] = api.MustJSON(hex.EncodeToString(sum[:]))
	}
	return nil
}

// completeMCPServer stores who approved a server, and when. An agent can only request one.
func completeMCPServer(_ *Records, _ context.Context, w change) error {
	delete(w.set, "approved_by")
	delete(w.set, "approved_at")
	status, given := w.text("status")
	if w.isNew {
		w.set["requested_by"] = api.MustJSON(w.who.Account)
		if status != "pending" && !w.who.Is("admin") {
			return api.BadField("status", "validation_invalid_value", "Must be pending: an administrator decides.")
		}
	}
	if given && status == "approved" && w.oldStatus() != "approved" {
		w.set["approved_by"] = api.MustJSON(w.who.Account)
		w.set["approved_at"] = api.MustJSON(time.Now().UTC().Format(events.TimeFormat))
	}
	return nil
}

func (w change) oldStatus() string {
	if w.isNew {
		return ""
	}
	return w.oldText("status")
}

// completeProposal lets only administrators approve, and stores when. The author of an agent's proposal is poco.
func completeProposal(_ *Records, _ context.Context, w change) error {
	if w.who.Is(account.Agent) {
		w.set["authored_by"] = api.MustJSON("poco")
	}
	status, given := w.text("status")
	if !w.who.Is(account.Admin) {
		delete(w.set, "approved_at")
		if given && status != "draft" {
			return api.BadField("status", "validation_invalid_value", "Must be draft: an administrator approves.")
		}
	}
	if given && status == "approved" && w.oldStatus() != "approved" && textOf(w.set["approved_at"]) == "" {
		w.set["approved_at"] = api.MustJSON(time.Now().UTC().Format(events.TimeFormat))
	}
	return nil
}
