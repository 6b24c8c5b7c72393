package handlers_test

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/matryer/is"

	"pocketcoder/handlers/mcpserver"
	"pocketcoder/ops/expect"
	"pocketcoder/sandbox/wire"
)

func tool(name, description, schema string) mcpserver.Tool {
	return mcpserver.Tool{Name: name, Description: description, InputSchema: json.RawMessage(schema)}
}

func TestExactlyADifferentToolHasAnotherHash(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	hash := func(one mcpserver.Tool) string {
		all, err := mcpserver.Canonical([]mcpserver.Tool{one})
		is.NoErr(err)
		return all[0].SHA256
	}
	first := hash(tool("a", "b", `{"type":"object","properties":{"x":{"maximum":1.0}}}`))
	is.Equal(first, hash(tool("a", "b", ` {"properties": {"x":{"maximum":1.0}}, "type":"object"}`)))
	for _, other := range []mcpserver.Tool{
		tool("b", "b", `{"type":"object","properties":{"x":{"maximum":1.0}}}`),
		tool("a", "b ", `{"type":"object","properties":{"x":{"maximum":1.0}}}`),
		tool("a", "b", `{"type":"object","properties":{"x":{"maximum":1.1}}}`),
	} {
		is.True(first != hash(other))
	}
}

func TestAServerIsRefusedUnlessItsVersionIsExact(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	for command, says := range map[string]string{
		"npx -y @scope/server@1.2.3":   "",
		"npx -y @scope/server@1.2.3 x": "",
		"uvx server==1.2":              "",
		"/opt/server --fast":           "",
		"npx -y @scope/server":         "exact version",
		"npx -y @scope/server@latest":  "exact version",
		"npx server@1":                 "exact version",
		"uvx server":                   "exact version",
		"npx -y":                       "names no package",
		"a\nb":                         "one line",
	} {
		err := mcpserver.Server{Name: "m", Command: command}.Check()
		if says == "" {
			is.NoErr(err)
			continue
		}
		is.True(err != nil)
		expect.Contains(t, err.Error(), says)
	}
	for says, s := range map[string]mcpserver.Server{
		"1 to 24 letters":      {Name: "my_server", Command: "x"},
		"no name of a vari":    {Name: "m", Command: "x", Environment: []string{"a b"}},
		"no name of a header":  {Name: "m", URL: "https://example.org/mcp", Environment: []string{"A_B"}},
		"not both":             {Name: "m", Command: "x", URL: "https://example.org/mcp"},
		"http://":              {Name: "m", URL: "ftp://example.org/mcp"},
		"no user name":         {Name: "m", URL: "https://a:b@example.org/mcp"},
		"reaches only its":     {Name: "m", URL: "https://example.org/mcp", Hosts: []string{"api.example.org"}},
		"by its IP address":    {Name: "m", Command: "x", Hosts: []string{"api.example.org", "localhost:80"}},
		"a * stands before":    {Name: "m", Command: "x", Hosts: []string{"*.com"}},
		"is not a port":        {Name: "m", Command: "x", Hosts: []string{"api.example.org:0"}},
		"at most 64 hosts":     {Name: "m", Command: "x", Hosts: make([]string, 65)},
		`"" is no host`:        {Name: "m", Command: "x", Hosts: []string{""}},
		`"*" is no host`:       {Name: "m", Command: "x", Hosts: []string{"*"}},
		"server has no limits": {Name: "m", URL: "https://example.org/mcp", Limits: mcpserver.Limits{Processes: 9}},
		`512MiB, not "0"`:      {Name: "m", Command: "x", Limits: mcpserver.Limits{Memory: "0"}},
		"memory must be":       {Name: "m", Command: "x", Limits: mcpserver.Limits{Memory: "a lot"}},
		"processes must be":    {Name: "m", Command: "x", Limits: mcpserver.Limits{Processes: -1}},
		`30m, not "9"`:         {Name: "m", Command: "x", Limits: mcpserver.Limits{CPUTime: "9"}},
	} {
		err := s.Check()
		is.True(err != nil)
		expect.Contains(t, err.Error(), says)
	}
}

func TestHostsAreWrittenAsInNetworkRules(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	s := mcpserver.Server{Name: "m", Command: "x", Hosts: []string{"api.example.org", "*.example.com",
		"git.example.org:22", "127.0.0.1:8080", "[fd00::1]:80"}}
	is.NoErr(s.Check())
	other := s
	other.Hosts = append([]string{"a.example.org"}, s.Hosts[1:]...)
	other.Command = "y"
	is.True(s.Hash() != other.Hash())
	is.Equal(s.Changes(other), "- command: x\n+ command: y\n- host: api.example.org\n+ host: a.example.org")
	is.Equal(s.Changes(s), "")
}

func TestTheLimitsOfAServerArePinned(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	s := mcpserver.Server{Name: "m", Command: "x",
		Limits: mcpserver.Limits{Memory: "512MiB", Processes: 64, CPUTime: "1m"}}
	is.NoErr(s.Check())
	limits, err := s.Limits.Parse()
	is.NoErr(err)
	is.Equal(limits, wire.Limits{Memory: 512 << 20, Processes: 64, CPUTimeMS: 60_000})
	higher := s
	higher.Limits = mcpserver.Limits{Memory: "1GiB", Processes: 64}
	is.True(s.Hash() != higher.Hash())
	is.Equal(s.Changes(higher), "- limit: memory 512MiB\n- limit: cpu-time 1m\n+ limit: memory 1GiB")
	is.True(json.Unmarshal([]byte(`{"limits":{"mem":"1GiB"}}`), &s) != nil) // it would bound nothing
}

func TestToolsThatCannotBeOfferedAreRefusedWithASentence(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	s := mcpserver.Server{Name: "lab", Status: mcpserver.Approved, Command: "x"}
	s = s.Apply(mcpserver.Report{Tools: []mcpserver.Tool{
		tool("echo", "", `{"type":"object"}`), tool("a.b", "", `{}`), tool("a/b", "", `{}`),
		tool(strings.Repeat("x", 50), "", `{}`), tool("mine", "", `{"properties":{"caller":{}}}`),
	}})
	offered, refused := s.Offered()
	is.Equal(len(offered), 2)
	is.Equal(offered["mcp_lab_echo"].Name, "echo")
	is.Equal(offered["mcp_lab_a_b"].Name, "a.b")
	is.Equal(len(refused), 3)
	all := strings.Join(refused, "\n")
	is.Equal(s.NotOffered, all)
	for _, says := range []string{`"a.b" and "a/b" would have the same name`, "is too long", "argument caller"} {
		expect.Contains(t, all, says)
	}
	is.Equal([]string{s.State(), s.Problem}, []string{"active", ""})
	s.Status = mcpserver.Revoked
	offered, _ = s.Offered()
	is.Equal(len(offered), 0)

	none := mcpserver.Server{Name: "lab", Status: mcpserver.Approved, Command: "x"}.Apply(mcpserver.Report{
		Tools: []mcpserver.Tool{tool("mine", "", `{"properties":{"caller":{}}}`)}})
	is.Equal([]string{none.State(), none.Problem}, []string{"approved", "none of its tools can be offered to the model"})
}
