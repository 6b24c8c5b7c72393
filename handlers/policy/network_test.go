package policy_test

import (
	"strings"
	"testing"

	"github.com/matryer/is"

	"pocketcoder/handlers/policy"
)

func TestNetworkRules(t *testing.T) {
	for _, c := range []struct {
		rules, address string
		want           policy.Action
	}{
		{"", "api.example.org:443", policy.AskPerson},
		{"network: api.example.org", "api.example.org:443", policy.Allow},
		{"network: api.example.org", "API.EXAMPLE.org.:80", policy.Allow},
		{"network: API.Example.org.", "api.example.org:80", policy.Allow},
		{"network: api.example.org", "api.example.org:22", policy.AskPerson},
		{"network: api.example.org:22", "api.example.org:22", policy.Allow},
		{"network: api.example.org:22", "api.example.org:443", policy.AskPerson},
		{"network: api.example.org", "api.example.org.evil.com:443", policy.AskPerson},
		{"network: example.org", "api.example.org:443", policy.AskPerson},
		{"network: *.example.org", "api.example.org:443", policy.Allow},
		{"network: *.example.org", "a.b.example.org:443", policy.Allow},
		{"network: *.example.org", "example.org:443", policy.AskPerson},
		{"network: *.example.org", "evilexample.org:443", policy.AskPerson},
		{"network: *.example.org", "xn--rgistry-bya.example.org:443", policy.AskPerson},
		{"network: *.example.org", "evil.com\x00.example.org:443", policy.Deny},
		{"network: xn--rgistry-bya.example.org", "xn--rgistry-bya.example.org:443", policy.Allow},
		{"network: 8.8.8.8:53", "0x08080808:53", policy.Allow},
		{"deny network: 8.8.8.8", "134744072:443", policy.Deny},
		{"network: [2606:2800:220:1::1]", "[2606:2800:220:1:0:0:0:1]:443", policy.Allow},
		{"network: *.example.org, deny network: evil.example.org", "evil.example.org:443", policy.Deny},
		{"network: evil.com, deny network: *.com", "evil.com:443", policy.Deny},
		{"network: evil.com, deny network: *.evil.com", "xn--a.evil.com:443", policy.Deny},
		{"network: evil.com, deny network: evil.com:22", "evil.com:443", policy.Allow},
		{"network: evil.com:25, deny network: evil.com", "evil.com:25", policy.Deny},
		{"network: evil.com, deny network: *", "evil.com:443", policy.Deny},
		{"network: evil.com, ask network: *", "evil.com:443", policy.AskPerson},
		{"network: evil.com, deny *: *", "evil.com:443", policy.Deny},
		{"webfetch: https://evil.com/*", "evil.com:443", policy.AskPerson},
		{"mcp: network", "evil.com:443", policy.AskPerson},
		{"", "127.0.0.1:443", policy.Deny},
		{"", "169.254.169.254:80", policy.Deny},
		{"", "localhost:8090", policy.Deny},
		{"", "router:80", policy.Deny},
		{"", "10.0.0.1.nip.io:80", policy.Deny},
		{"", "metadata.google.internal:80", policy.Deny},
	} {
		t.Run(c.rules+" on "+c.address, func(t *testing.T) {
			is := is.New(t)
			var rules []policy.Rule
			for text := range strings.SplitSeq(c.rules, ", ") {
				if text != "" {
					r, err := policy.ParseRule(text)
					is.NoErr(err)
					rules = append(rules, r)
				}
			}
			v := policy.Evaluate(rules, policy.Input{Type: "network", Patterns: []string{c.address}, Address: c.address})
			is.Equal(v.Action, c.want)
			is.True(v.Reason != "")
		})
	}
}

func TestANetworkRuleIsSuggestedThatAllowsTheHostAlone(t *testing.T) {
	for address, want := range map[string]string{
		"api.example.org:443": "network: api.example.org", "git.example.org:22": "network: git.example.org:22",
		"[2606:2800:220:1::1]:80": "network: [2606:2800:220:1::1]", "127.0.0.1:80": "",
	} {
		is := is.New(t)
		rules := policy.Suggest(policy.Input{Type: "network", Address: address}, nil)
		if want == "" {
			is.Equal(len(rules), 0)
			continue
		}
		is.Equal(len(rules), 1)
		is.Equal(rules[0].String(), want)
	}
}
