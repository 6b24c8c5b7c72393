package secret_test

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"github.com/matryer/is"
	"pgregory.net/rapid"

	"pocketcoder/events/eventstest"
	"pocketcoder/events/secret"
	"pocketcoder/ops/expect"
)

func TestEveryStretchThatSecretsCoverIsReplaced(t *testing.T) {
	t.Parallel()
	expect.Property(t, func(t *rapid.T) {
		text := rapid.StringMatching(`[ab]{0,60}`)
		secrets := rapid.SliceOfN(rapid.StringMatching(`[ab]{8,12}`), 0, 20).Draw(t, "secrets")
		in := text.Draw(t, "text")
		covered := make([]bool, len(in)+1)
		begins := map[int]bool{}
		for _, s := range secrets {
			for at := range in {
				if strings.HasPrefix(in[at:], s) {
					begins[at] = true
					for i := range s {
						covered[at+i] = true
					}
				}
			}
		}
		got := string(secret.NewRedactor(secrets...).Bytes([]byte(in)))
		var rest strings.Builder // what no secret covers stays, in its order, and nothing else
		for i := range in {
			if !covered[i] {
				rest.WriteByte(in[i])
			}
		}
		if left := strings.ReplaceAll(got, "[redacted]", ""); left != rest.String() {
			t.Fatalf("%q with %q: %q", in, secrets, got)
		}
		if (len(begins) > 0) != strings.Contains(got, "[redacted]") {
			t.Fatalf("%q with %q: %q", in, secrets, got)
		}
	})
}

func TestConcealedTextLeavesKeysAndNumbers(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	l := eventstest.Log(t)
	l.Conceal(secret.System, "eve", "authorized", "sessionID", "12345678", `x","status":"`)
	body := `{"sessionID" : "sessionID!", "authorized":{"n":[12345678,"12345678"]}, "text":"a\nauthorized\n", "x":"x","status":"x"}`
	clean := string(l.Redactor().JSON([]byte(body)))
	is.Equal(clean, `{"sessionID" : "[redacted]!", "authorized":{"n":[12345678,"[redacted]"]}, "text":"a\n[redacted]\n", "x":"x","status":"x"}`)
	is.Equal(string(l.Redactor().JSON([]byte(`{"a":"\u0061uthorized"}`))), `{"a":"[redacted]"}`) // however it is written
	is.Equal(string(l.Redactor().JSON([]byte(`{"a":"\\"}`))), `{"a":"\\"}`)
}

func TestConcealedGroupIsForgottenWhenItIsReplaced(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	l := eventstest.Log(t, "from-the-start")
	shown := func() string {
		return string(l.Redactor().JSON([]byte(`"from-the-start first-secret second-secret"`)))
	}
	l.Conceal(secret.System, "a", "first-secret")
	l.Conceal(secret.System, "b", "second-secret")
	is.Equal(shown(), `"[redacted] [redacted] [redacted]"`)
	l.Conceal(secret.System, "a", "another-secret")
	is.Equal(shown(), `"[redacted] first-secret [redacted]"`)
	l.Conceal(secret.System, "a")
	l.Conceal(secret.System, "b")
	is.Equal(shown(), `"[redacted] first-secret second-secret"`)
}

func TestConcealTakesBoundedSecrets(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	l := eventstest.Log(t)
	many := make([]string, secret.System.Budget())
	for i := range many {
		many[i] = fmt.Sprintf("secret-number-%d-", i)
	}
	is.Equal(l.Conceal(secret.System, "a", many...), 0)
	is.Equal(l.Conceal(secret.System, "b", "one-too-many"), 1)
	is.Equal(string(l.Redactor().Bytes([]byte("one-too-many secret-number-599-"))), "one-too-many [redacted]")
	is.Equal(l.Conceal(secret.System, "a", many[1:]...), 0)
	is.Equal(l.Conceal(secret.System, "b", "one-too-many"), 0)
	is.Equal(string(l.Redactor().Bytes([]byte("one-too-many"))), "[redacted]")
}

func TestRedactedJSONStaysJSON(t *testing.T) {
	t.Parallel()
	expect.Property(t, func(t *rapid.T) {
		secrets := rapid.SliceOfN(rapid.StringMatching(`[ab"\\,:\[\]{}\n]{8,10}`), 1, 8).Draw(t, "secrets")
		words := rapid.OneOf(rapid.SampledFrom(secrets), rapid.String())
		body, _ := json.Marshal(rapid.MapOf(words, rapid.SliceOf(words)).Draw(t, "value"))
		clean := secret.NewRedactor(secrets...).JSON(body)
		if !json.Valid(clean) {
			t.Fatalf("%s", clean)
		}
		var values map[string][]string
		if err := json.Unmarshal(clean, &values); err != nil {
			t.Fatal(err)
		}
		for key, list := range values {
			for _, text := range append(list, key) {
				for _, s := range secrets {
					if strings.Contains(text, s) {
						t.Fatalf("%q in %q", s, text)
					}
				}
			}
		}
	})
}
