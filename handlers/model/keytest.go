package model

import (
	"context"
	"encoding/json"

	"pocketcoder/handlers/record"
)

// KnownProvider is a provider of models with a single key. ID and Variable are those of OpenCode.
type KnownProvider struct{ ID, Name, Variable string }

// The verdicts of the test of a key.
const (
	KeyAccepted = "accepted"
	KeyRefused  = "refused"
	KeyUnclear  = "unclear"     // the provider's answer says nothing about the key
	NoAnswer    = "unreachable" // the provider could not be reached
	NotTested   = "untested"    // there is no test of this provider's keys
)

// KeyTest is the result of a test of a key. Said is what the provider said, or why it could not be reached.
type KeyTest struct{ Provider, Verdict, Said string }

// Test sends the provider of a stored key a request that costs nothing, and returns its answer.
func (k *ProviderKeys) Test(ctx context.Context, id string) (KeyTest, error) {
	r, _, err := record.One[struct {
		User     string
		Provider string `json:"provider_id"`
	}](ctx, k.Records, Keys, id)
	if err != nil {
		return KeyTest{}, err
	}
	raw, _, err := k.Secrets.Get(ctx, providerKey(r.User, id))
	if err != nil {
		return KeyTest{}, err
	}
	var values map[string]string
	_ = json.Unmarshal(raw, &values) // store wrote it, or there is none
	verdict, said := k.Try(ctx, r.Provider, values)
	return KeyTest{Provider: k.nameOf(r.Provider), Verdict: verdict, Said: said}, nil
}

func (k *ProviderKeys) nameOf(provider string) string {
	for _, p := range k.Known {
		if p.ID == provider {
			return p.Name
		}
	}
	return provider
}
