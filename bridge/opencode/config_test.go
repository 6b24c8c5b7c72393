package opencode

import (
	"cmp"
	"encoding/json"
	"errors"
	"io/fs"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/matryer/is"

	"pocketcoder/bridge/opencode/client"
	"pocketcoder/bridge/opencode/install"
	"pocketcoder/bridge/opencode/provider"
	"pocketcoder/events"
	"pocketcoder/ops/expect"
)

func TestEnvironmentHasOnlyNeededVariables(t *testing.T) {
	is := is.New(t)
	for name, value := range map[string]string{
		"OPENCODE_PERMISSION": `{"*":"allow"}`, "OPENCODE_CONFIG": "/evil.json", "OPENCODE_CONFIG_DIR": "/evil", "BUN_OPTIONS": "--preload=/evil.js",
		"GIT_DIR": "/evil", "GIT_EXEC_PATH": "/evil", "AWS_SECRET_ACCESS_KEY": "aws-secret", "OPENAI_API_KEY": "not given by the provider", "LANG": "C.UTF-8",
		"NO_PROXY": "example.org",
	} {
		t.Setenv(name, value)
	}
	dir := t.TempDir()
	s := &Supervisor{Tools: install.Tools{Ripgrep: "/tools/rg"}, Dir: dir, Workspace: "/workspace",
		Shell: "/bin/pocketcoder-shell", Isolation: unconfined,
		Provider: provider.Provider{Keys: map[string]string{"XAI_API_KEY": "xai"}, Auth: `{"a":{}}`}}
	list, err := s.environment("the password", nil)
	is.NoErr(err)
	env := map[string]string{}
	for _, e := range list {
		name, value, _ := strings.Cut(e, "=")
		env[name] = value
	}
	is.Equal(len(env), len(list)) // no variable twice
	for name := range env {
		ours := slices.Contains(inheritedVariables, name) || strings.HasPrefix(name, "XDG_") ||
			strings.HasPrefix(name, "OPENCODE_DISABLE_") || engineOptions[name] != "" ||
			strings.HasPrefix(name, "GIT_CONFIG_") || slices.Contains([]string{"PATH", "HOME", "TMPDIR", "NO_PROXY",
			"XAI_API_KEY",
			"GIT_EXEC_PATH", "OPENCODE_CONFIG_CONTENT", "OPENCODE_SERVER_PASSWORD", "OPENCODE_AUTH_CONTENT",
			"OPENCODE_TEST_HOME",
			"OPENCODE_MODELS_PATH", "BUN_INSPECT_PRELOAD"}, name)
		if !ours {
			t.Errorf("OpenCode gets %s", name)
		}
	}
	for _, name := range []string{"HOME", "TMPDIR", "XDG_CONFIG_HOME", "XDG_DATA_HOME", "XDG_STATE_HOME",
		"XDG_CACHE_HOME", "GIT_EXEC_PATH"} {
		is.True(strings.HasPrefix(env[name], dir+"/"))
	}
	is.Equal(env["PATH"], dir+"/git/limited:/tools:"+os.Getenv("PATH"))
	is.Equal(env["LANG"], "C.UTF-8")
	is.Equal(env["NO_PROXY"], "example.org,127.0.0.1,localhost")
	is.Equal(env["OPENCODE_SERVER_PASSWORD"], "the password")
	is.Equal(env["OPENCODE_AUTH_CONTENT"], `{"a":{}}`)
	var config map[string]any
	is.NoErr(json.Unmarshal([]byte(env["OPENCODE_CONFIG_CONTENT"]), &config))
	is.Equal(config["permission"], map[string]any{"*": "ask"})
	is.Equal(config["shell"], "/bin/pocketcoder-shell")
	is.Equal(config["share"], "disabled")
}

func TestInvalidModelIsReportedBeforeTheStart(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	s := &Supervisor{Tools: install.Tools{OpenCode: "/missing"}, Dir: t.TempDir(),
		Provider: provider.Provider{Model: "claude"}, Isolation: unconfined, Logger: slog.New(slog.DiscardHandler)}
	err := s.Run(t.Context())
	is.True(err != nil)
	is.Equal(err.Error(), `start opencode: model "claude": want provider/model`)
}

func TestEachStartRewritesTheConfiguration(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	s := &Supervisor{Dir: t.TempDir(), Isolation: unconfined,
		Provider:     provider.Provider{Keys: map[string]string{"XAI_API_KEY": "xai"}},
		ShellAddress: `unix:/"quoted"`}
	for _, left := range []string{"opencode.json", "plugin/evil.js", "agent/evil.md"} {
		expect.WriteFile(t, filepath.Join(s.configDir(), left), "evil")
	}
	expect.WriteFile(t, s.path("tmp", "library.so"), "left")
	log := s.path("data", "opencode", "log", "opencode.log")
	expect.WriteFile(t, log, "old")
	lock := s.path("data", "opencode", "snapshot", "project", "worktree", "index.lock")
	expect.WriteFile(t, lock, "")
	is.NoErr(s.prepare())
	is.NoErr(s.prepare())
	var files []string
	is.NoErr(filepath.WalkDir(s.configDir(), func(path string, d os.DirEntry, err error) error {
		if err == nil && !d.IsDir() {
			files = append(files, strings.TrimPrefix(path, s.configDir()))
		}
		return err
	}))
	is.Equal(files, []string{"/.gitignore", "/package-lock.json", "/package.json", "/plugin/pocketcoder.js",
		"/pocketcoder.md"})
	left, err := os.ReadDir(s.path("tmp"))
	is.NoErr(err)
	is.Equal(len(left), 0)
	to, err := os.Readlink(log)
	is.NoErr(err)
	is.Equal(to, os.DevNull)
	_, err = os.Lstat(lock)
	is.True(errors.Is(err, fs.ErrNotExist))
	plugin := expect.ReadFile(t, s.pluginFile())
	expect.Contains(t, plugin, `const agent = {"POCKETCODER_SOCKET":"unix:/\"quoted\""}`)
	expect.Contains(t, plugin, `const hidden = ["OPENCODE_SERVER_PASSWORD","OPENCODE_CONFIG_CONTENT","OPENCODE_AUTH_CONTENT","POCKETCODER_MCP_CALLER_KEY","HTTP_PROXY","HTTPS_PROXY","http_proxy","https_proxy","XAI_API_KEY"]`)
	expect.Lacks(t, plugin, `"xai"`)
}

func TestFilesThatOpenCodeCannotReadAreRefused(t *testing.T) {
	t.Parallel()
	write := func(path string) error { return os.WriteFile(path, []byte("{}"), 0o600) }
	large := func(path string) error { return errors.Join(write(path), os.Truncate(path, maxParsed+1)) }
	fifo := func(path string) error { return syscall.Mkfifo(path, 0o600) }
	const command = "workspace/.opencode/commands/below/x.md"
	for name, c := range map[string]struct {
		path    string
		makes   func(path string) error
		refused bool
	}{
		"a command":                      {command, write, false},
		"a large command":                {command, large, true},
		"a command that is a FIFO":       {command, fifo, true},
		"a skill that is a FIFO":         {"workspace/.opencode/skill/x/SKILL.md", fifo, true},
		"a configuration":                {"workspace/opencode.json", write, false},
		"a large configuration":          {"workspace/opencode.jsonc", large, true},
		"a configuration that is a FIFO": {"workspace/opencode.json", fifo, true},
		"a FIFO in .opencode":            {"workspace/.opencode/opencode.json", fifo, true},
		"a FIFO above":                   {"opencode.json", fifo, true},
		"a large index":                  {"workspace/.git/index", large, false},
		"an index that is a FIFO":        {"workspace/.git/index", fifo, true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			is := is.New(t)
			dir := t.TempDir()
			s := &Supervisor{Dir: t.TempDir(), Workspace: filepath.Join(dir, "workspace"), Isolation: unconfined}
			path := filepath.Join(dir, c.path)
			is.NoErr(os.MkdirAll(filepath.Dir(path), 0o700))
			is.NoErr(c.makes(path))
			_, err := s.config()
			is.Equal(err != nil, c.refused)
			if c.refused {
				expect.Contains(t, err.Error(), path)
			}
		})
	}
}

// TestForeignConfigurationIsRefused lets a server answer what OpenCode would say that merged another
// configuration into ours.
func TestForeignConfigurationIsRefused(t *testing.T) {
	t.Parallel()
	s := &Supervisor{Dir: "/data", Workspace: "/workspace", Shell: "/bin/ours", Isolation: unconfined}
	const plugin = `"file:///data/config/opencode/plugin/pocketcoder.js"`
	const good = `{"shell":"/bin/ours","permission":{"*":"ask"},"plugin":[` + plugin + `]}`
	const providers = `{"providers":[{"id":"groq","models":{"m":{"api":{"url":"http://models.example:8080/v1"}}}}]}`
	const asking = `{"permission":"*","pattern":"*","action":"allow"},{"permission":"*","pattern":"*","action":"ask"}`
	for name, c := range map[string]struct{ config, agents, want, project string }{
		"as it should be": {good, `[{"name":"build","permission":[` + asking + `,{"permission":"edit","pattern":"*","action":"deny"},
			{"permission":"external_directory","pattern":"/data/tool-output/*","action":"allow"}]}]`, "", ""},
		"no repository":       {good, `[]`, "", "global"},
		"another repository":  {good, `[]`, `holds "../../evil", which is not a project`, "../../evil"},
		"another shell":       {strings.Replace(good, "/bin/ours", "/bin/sh", 1), `[]`, `the shell "/bin/sh", not ours`, ""},
		"everything allowed":  {strings.Replace(good, `{"*":"ask"}`, `{"*":"allow"}`, 1), `[]`, "permissions map[*:allow]", ""},
		"one tool allowed":    {strings.Replace(good, `"ask"}`, `"ask","bash":"allow"}`, 1), `[]`, "permissions map[*:ask bash:allow]", ""},
		"another plugin":      {strings.Replace(good, `[`, `["file:///workspace/evil.js",`, 1), `[]`, "plugins [file:///workspace/evil.js", ""},
		"another MCP server":  {strings.Replace(good, `{`, `{"mcp":{"pocketcoder":{"url":"http://evil.example"}},`, 1), `[]`, `MCP server pocketcoder at "http://evil.example"`, ""},
		"without our plugin":  {strings.Replace(good, plugin, "", 1), `[]`, "plugins []", ""},
		"an agent may":        {good, `[{"name":"evil","permission":[` + asking + `,{"permission":"bash","pattern":"*","action":"allow"}]}]`, `agent "evil" may use "bash"`, ""},
		"an agent never asks": {good, `[{"name":"evil","permission":[{"permission":"bash","pattern":"*","action":"ask"}]}]`, `agent "evil" may use "*"`, ""},
		"an agent may leave": {good, `[{"name":"evil","permission":[` + asking + `,{"permission":"external_directory","pattern":"/*","action":"allow"}]}]`,
			`may use "external_directory"`, ""},
	} {
		t.Run(name, func(t *testing.T) {
			is := is.New(t)
			server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				if r.URL.Query().Get("directory") != "/workspace" {
					t.Errorf("asks about %q", r.URL)
				}
				w.Write([]byte(map[string]string{"/config": c.config, "/agent": c.agents, "/config/providers": providers,
					"/project/current": `{"id":"` + cmp.Or(c.project, "0a1b") + `"}`}[r.URL.Path]))
			}))
			t.Cleanup(server.Close)
			client := client.New(server.URL, "")
			models, err := s.verify(t.Context(), client)
			if c.want == "" {
				is.NoErr(err)
				is.Equal(models.Addresses, []string{"api.groq.com:443", "models.example:8080"})
				server.Close()
				second, err := client.Models(t.Context(), "/workspace")
				is.NoErr(err) // OpenCode is not asked again
				is.Equal(second, models)
				return
			}
			is.True(err != nil)
			expect.Contains(t, err.Error(), c.want)
		})
	}
}

func TestThePluginNamesToolsAsTheirRequestsAre(t *testing.T) {
	t.Parallel()
	named := regexp.MustCompile(`\btool [!=]== "([^"]*)"`).FindAllStringSubmatch(pluginSource, -1)
	for _, m := range named {
		if _, known := events.RequestKinds[m[1]]; !known && m[1] != "apply_patch" { // it requests KindEdit
			t.Errorf("plugin.js names the tool %q", m[1])
		}
	}
	if len(named) == 0 {
		t.Error("plugin.js names no tool")
	}
}
