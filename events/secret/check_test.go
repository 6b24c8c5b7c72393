package secret_test

import (
	"crypto/rand"
	"encoding/base64"
	"encoding/hex"
	"fmt"
	mathrand "math/rand/v2"
	"strings"
	"testing"

	"github.com/matryer/is"

	"pocketcoder/events/eventstest"
	"pocketcoder/events/secret"
	"pocketcoder/ops/expect"
)

func TestOnlyRandomTextsPassAsSecrets(t *testing.T) {
	for text, reason := range map[string]string{
		"":                            "is shorter than 16 bytes",
		"Xk9mQ2pvL4zR8wT":             "is shorter than 16 bytes",
		"Xk9mQ2pvL4 zR8wTq7jHd":       "contains a blank",
		"deploy to staging":           "contains a blank",
		"Xk9mQ2pvL4zR8wTq7jHd\n":      "contains a blank",
		"private/archive01":           "looks like a path",
		"/srv/shop/.env.production":   "looks like a path",
		"../Xk9mQ2pvL4zR8wTq7jHd/a":   "looks like a path",
		"src/app\\components\\a9f3k2": "looks like a path",
		"deploytoproduction":          "consists of words",
		"strings.ContainsFunc":        "consists of words",
		"node_modules_cache":          "consists of words",
		"archive-of-2024-05-11":       "consists of words",
		"20240511T101530123Z":         "consists of words",
		"aaaaaaaaaaaaaaaaaaaa":        "consists of words",
		"0123456789abcdef":            "consists of words",
		"9073815264907381":            "consists of words",
	} {
		expect.Contains(t, fmt.Sprint(text, " ", secret.Check(text)), reason)
	}
	for _, text := range []string{
		"xkqv-wjzr-bqhd-mfvt",                    // an app password
		"123456789:AAq7zk2xv9jh4WbdqTfmvXk3pZr8", // a token of a bot
		"sk-ant-api03-Xk9mQ2pvL4zR8wTq7jHd",
		"550e8400-e29b-41d4-a716-446655440000",
		"wJalrXUtnFEMI/K7MDENG/bPxRfqZvQKXWKJHY",
		"https://hooks.example.org/T01/B02/Xk9mQ2pvL4zR8wTq7jHd",
	} {
		if err := secret.Check(text); err != nil {
			t.Error(text, err)
		}
	}
	// The same texts in each run: one in 500,000 texts in Base64 does not pass (measured).
	repeatable := mathrand.NewChaCha8([32]byte{})
	for range 1000 {
		b := make([]byte, 32)
		_, _ = repeatable.Read(b)
		for _, text := range []string{base64.RawURLEncoding.EncodeToString(b), hex.EncodeToString(b), longText()} {
			if err := secret.Check(text); err != nil {
				t.Error(text, err)
			}
		}
	}
}

// longText is random. One in 20,000 texts of half its length does not pass, and one of its length in 10 million
// (measured).
func longText() string { return rand.Text() + rand.Text() }

func TestASourceOfSecretsHasItsOwnBudget(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	l := eventstest.Log(t)
	random := func(n int) (all []string) {
		for range n {
			all = append(all, longText())
		}
		return all
	}
	n := secret.Webhooks.Budget()
	is.Equal(l.Conceal(secret.Webhooks, "a", random(n-1)...), 0)
	is.Equal(l.Full(), "")
	last := longText()
	is.Equal(l.Conceal(secret.Webhooks, "b", "deploy to staging", last), 0) // words need no place
	is.Equal(string(l.Redactor().Bytes([]byte("deploy to staging "+last))), "deploy to staging [redacted]")
	expect.Contains(t, l.Full(), "no further tokens of webhooks are accepted")
	is.Equal(l.Conceal(secret.Webhooks, "c", longText()), 1)
	expect.Contains(t, l.Full(), "1 of the tokens of webhooks are not redacted")

	key := longText()
	is.Equal(l.Conceal(secret.MCP, "lab", key), 0) // the others still have room
	is.Equal(string(l.Redactor().Bytes([]byte(key))), "[redacted]")
	expect.Lacks(t, l.Full(), "MCP")
	l.Conceal(secret.Webhooks, "c")
	l.Conceal(secret.Webhooks, "b")
	is.Equal(l.Full(), "")
	is.True(!strings.Contains(string(l.Redactor().Bytes([]byte(last))), "redacted"))
}

// An upgrade finds secrets that people stored before Check.
func TestAWeakSecretThatIsStoredIsRedactedOrNamed(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	l := eventstest.Log(t)
	redacted := func(text string) string { return string(l.Redactor().Bytes([]byte(text))) }
	l.Conceal(secret.Environment, "relay", "")
	l.Conceal(secret.Environment, "admin", "correct horse")
	l.Conceal(secret.MCP, "mcp.lab", "private/archive01", "")
	l.Conceal(secret.Channels, "channel.mail", "deploytoproduction")
	l.Conceal(secret.Targets, "target.ci", "12345678")
	is.Equal(redacted("correct horse, private/archive01, deploytoproduction, 12345678"),
		"[redacted], [redacted], [redacted], [redacted]")
	is.Equal(l.Full(), "")

	l.Conceal(secret.ProviderKeys, "llm.root.k1", "eu-central-1") // a setting
	is.Equal(redacted("eu-central-1"), "eu-central-1")
	is.Equal(l.Full(), "")

	l.Conceal(secret.Webhooks, "webhook.old", "deploy to staging") // of any account
	is.Equal(redacted("deploy to staging, not to production"), "deploy to staging, not to production")
	l.Conceal(secret.MCP, "mcp.lab", "short", longText())
	is.Equal(l.Full(), `tokens of webhooks that are too short or too easy to guess are not redacted (webhook.old): `+
		`make a new token with "pocketcoder webhook token"; `+
		`values of MCP servers that are too short or too easy to guess are not redacted (mcp.lab): `+
		`store a longer value with "pocketcoder mcp secret", or write an ordinary setting into the command`)
	l.Conceal(secret.Webhooks, "webhook.old", longText())
	l.Conceal(secret.MCP, "mcp.lab")
	is.Equal(l.Full(), "")
}
