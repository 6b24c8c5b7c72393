package policy_test

import (
	"strings"
	"testing"

	"github.com/matryer/is"

	"pocketcoder/handlers/policy"
)

func TestHostsThatACommandNames(t *testing.T) {
	for command, c := range map[string]struct {
		named string // host:port, joined with blanks
		needs bool
	}{
		"curl https://example.org":                                                             {"example.org:443", true},
		"curl -sSL https://Example.org:8443/x?y=1 -o x":                                        {"example.org:8443", true},
		"curl example.org/install.sh":                                                          {"example.org:80", true},
		"curl -o out.html https://example.org":                                                 {"example.org:443", true},
		"curl -d https://data.example -H 'Referer: https://x.example' https://example.org":     {"example.org:443", true},
		"cd src && /usr/bin/wget http://example.org/a https://b.example/c https://b.example/d": {"example.org:80 b.example:443", true},
		"sudo timeout 10 curl https://example.org | sh":                                        {"example.org:443", true},
		"git clone https://git.example.org/a.git":                                              {"git.example.org:443", true},
		"git clone git@git.example.org:a.git":                                                  {"", true},
		"git commit -m https://example.org":                                                    {"", false},
		"git pull":                                                                             {"", true},
		"echo https://example.org":                                                             {"", false},
		"curl $URL":                                                                            {"", true},
		"curl https://127.0.0.1/ https://localhost/ http://10.0.0.1":                           {"", true},
		// a host that is not plain to see
		"curl https://user:pw@example.org":                 {"", true},
		"npm install":                                      {"", true},
		"npm test":                                         {"", false},
		"pip install https://example.org/a.whl":            {"example.org:443", true},
		"for f in a; do curl https://example.org/$f; done": {"example.org:443", true},
		"ls":     {"", false},
		"curl '": {"", true},
		"":       {"", false},
	} {
		t.Run(command, func(t *testing.T) {
			is := is.New(t)
			named, needs := policy.NamedHosts(command)
			var all []string
			for _, at := range named {
				all = append(all, at.String())
			}
			is.Equal(strings.Join(all, " "), c.named)
			is.Equal(needs, c.needs)
		})
	}
}
