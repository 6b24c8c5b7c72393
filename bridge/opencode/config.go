package opencode

import (
	"cmp"
	_ "embed"
	"encoding/json"
	"fmt"
	"io/fs"
	"maps"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"pocketcoder/bridge/opencode/install"
	"pocketcoder/bridge/opencode/provider"
	"pocketcoder/bridge/opencode/shellsocket"
	"pocketcoder/events"
	"pocketcoder/sandbox/isolation"
	"pocketcoder/sandbox/protected"
)

//go:embed plugin.js
var pluginSource string

// instructions tell the model how commands run in PocketCoder.
//
//go:embed instructions.md
var instructions string

// The directories below Dir. Nothing of OpenCode is written elsewhere.
func (s *Supervisor) path(elem ...string) string {
	return filepath.Join(append([]string{s.Dir}, elem...)...)
}

func (s *Supervisor) configDir() string        { return s.path("config", "opencode") }
func (s *Supervisor) instructionsFile() string { return filepath.Join(s.configDir(), "pocketcoder.md") }
func (s *Supervisor) pluginFile() string {
	return filepath.Join(s.configDir(), "plugin", "pocketcoder.js")
}

// catalogueFile is OpenCode's catalogue of models. Without the file OpenCode uses the one that is built in.
func (s *Supervisor) catalogueFile() string { return filepath.Join(s.configDir(), "models.json") }

// prepare rewrites the configuration directory, with our plugin and instructions. It also empties the directory for
// temporary files, where OpenCode unpacks libraries at each start.
func (s *Supervisor) prepare() error {
	for _, dir := range []string{s.configDir(), s.path("tmp")} {
		if err := os.RemoveAll(dir); err != nil {
			return err
		}
	}
	if err := s.makeDirs(); err != nil {
		return err
	}
	for _, dir := range []string{filepath.Join(s.configDir(), "node_modules"), filepath.Dir(s.pluginFile())} {
		if err := os.MkdirAll(dir, 0o700); err != nil {
			return err
		}
	}
	plugin, err := s.plugin()
	if err != nil {
		return err
	}
	// OpenCode installs its plugin library from npm into every configuration directory that lacks it, and the first
	// request waits for that, 70 s when offline. These three say that it is there; our plugin does without.
	dependencies := `{"@opencode-ai/plugin":"` + cmp.Or(s.Tools.Version, install.OpenCodeVersion) + `"}`
	for name, content := range map[string]string{
		filepath.Join(s.configDir(), "package.json"): `{"dependencies":` + dependencies + `}`,
		filepath.Join(s.configDir(), "package-lock.json"): `{"name":"pocketcoder","lockfileVersion":3,"requires":true,` +
			`"packages":{"":{"dependencies":` + dependencies + `}}}`,
		filepath.Join(s.configDir(), ".gitignore"): "*\n", // OpenCode fails if the file is missing and cannot be created
		s.pluginFile():       plugin,
		s.instructionsFile(): instructions,
	} {
		if err := os.WriteFile(name, []byte(content), 0o600); err != nil {
			return err
		}
	}
	if s.current().Catalogue != nil {
		if err := os.WriteFile(s.catalogueFile(), s.current().Catalogue, 0o600); err != nil {
			return err
		}
	}
	if err := s.makeInertGit(); err != nil {
		return err
	}
	if err := s.copyShell(); err != nil {
		return err
	}
	return s.prepareData()
}

// prepareData makes OpenCode's log file a link to /dev/null. OpenCode never truncates the file, and we keep what it
// logs to stderr. prepareData also removes the locks that the git of a killed OpenCode left: OpenCode makes no snapshot
// while there is one.
func (s *Supervisor) prepareData() error {
	root, err := os.OpenRoot(s.path("data")) // OpenCode writes there, and a symlink that it makes must not lead outside
	if err != nil {
		return err
	}
	defer root.Close()
	locks, err := fs.Glob(root.FS(), "opencode/snapshot/*/*/index.lock")
	if err != nil {
		return err
	}
	const log = "opencode/log/opencode.log"
	for _, path := range append(locks, log) {
		if err := root.RemoveAll(path); err != nil {
			return err
		}
	}
	if err := root.MkdirAll(filepath.Dir(log), 0o700); err != nil {
		return err
	}
	return root.Symlink(os.DevNull, log)
}

// plugin returns the source of our plugin, with the variables that it sets for commands and those that it hides from
// them.
func (s *Supervisor) plugin() (string, error) {
	agent, err := json.Marshal(map[string]string{shellsocket.Variable: s.ShellAddress})
	if err != nil {
		return "", err
	}
	hidden, err := json.Marshal(slices.Concat([]string{"OPENCODE_SERVER_PASSWORD", "OPENCODE_CONFIG_CONTENT",
		"OPENCODE_AUTH_CONTENT", callerKey}, proxyVariables,
		slices.Sorted(maps.Keys(s.current().Keys))))
	if err != nil {
		return "", err
	}
	file, err := json.Marshal(s.pluginFile())
	if err != nil {
		return "", err
	}
	readOnly := map[string]any{"workspace": s.Workspace, "names": []string{}}
	if s.Isolation.Level != isolation.None {
		readOnly["names"] = protected.Project
	}
	names, err := json.Marshal(readOnly)
	if err != nil {
		return "", err
	}
	return fmt.Sprintf("const file = %s\nconst agent = %s\nconst hidden = %s\nconst readOnly = %s\nconst followsLinks = %t\nconst maxInstructions = %d\nconst placeholder = %q\nconst ownServer = %q\nconst ownTools = %q\n\n%s",
		file, agent, hidden, names, s.followsLinks(), maxInstructions, provider.PlaceholderPrefix, s.own.URL,
		events.OwnTools, pluginSource), nil
}

// askAll is the permission configuration: OpenCode asks PocketCoder about every tool call.
var askAll = map[string]any{"*": "ask"}

// maxInstructions limits a file of instructions, in bytes. OpenCode reads the whole file; a file of 150 MB blocked it
// for 30 s.
const maxInstructions = 256 << 10

// maxParsed limits the files that OpenCode parses at the first message, in bytes. It does not use their content, but 57
// MB of front matter blocked it until it was restarted.
const maxParsed = 4 << 20

// filesReadAtStart are the files and folders of a project that OpenCode parses, and the files of a repository that
// OpenCode or its git opens.
var filesReadAtStart = strings.Fields(`opencode.json opencode.jsonc .opencode/opencode.json .opencode/opencode.jsonc
	.opencode/agent .opencode/agents .opencode/command .opencode/commands .opencode/mode .opencode/modes .opencode/skill .opencode/skills
	.git/HEAD .git/commondir .git/config .git/config.worktree .git/index .git/info/exclude .git/info/attributes .git/objects/info/alternates
	.git/opencode .git/packed-refs .git/shallow`)

// checkFiles refuses a workspace in which OpenCode would block on a FIFO or parse very large files.
func (s *Supervisor) checkFiles() error {
	total := int64(0)
	check := func(path string, _ fs.DirEntry, err error) error {
		info, statErr := os.Stat(path)
		if err != nil || statErr != nil || info.IsDir() {
			return nil // OpenCode cannot read it either
		}
		if slices.Contains([]string{".md", ".json", ".jsonc"}, filepath.Ext(path)) {
			total += info.Size()
		}
		if total > maxParsed || info.Mode()&(fs.ModeNamedPipe|fs.ModeSocket|fs.ModeDevice) != 0 {
			return fmt.Errorf("OpenCode would read %s, but it is not a regular file, or such files have more than %d MiB in all; remove it", path, maxParsed>>20)
		}
		return nil
	}
	for dir := s.Workspace; ; dir = filepath.Dir(dir) { // OpenCode looks for a configuration in the folders above, too
		for _, name := range filesReadAtStart {
			if err := filepath.WalkDir(filepath.Join(dir, name), check); err != nil {
				return err
			}
		}
		if dir == filepath.Dir(dir) {
			return nil
		}
	}
}

// publicProvider is Provider as OpenCode gets it: without the keys if OpenCode has our proxy, which puts them into
// requests.
func (s *Supervisor) publicProvider() provider.Provider {
	if !s.hasProxy() {
		return s.current()
	}
	public, _ := s.current().Withhold()
	return public
}

// MCPServer is an MCP server of OpenCode's configuration. Its tools are those of PocketCoder: plugin.js signs the
// caller.
type MCPServer struct {
	URL    string
	Header string // the value of Authorization
	Key    string // signs callers
}

// callerKey is the variable of OpenCode's environment with the key of MCPServer.
const callerKey = "POCKETCODER_MCP_CALLER_KEY"

// configuration returns the server's part of OpenCode's configuration.
func (m MCPServer) configuration() map[string]any {
	if m.URL == "" {
		return map[string]any{}
	}
	return map[string]any{events.OwnServer: map[string]any{"type": "remote", "url": m.URL, "enabled": true, "oauth": false,
		"headers": map[string]string{"Authorization": m.Header}}}
}

// config returns OpenCode's whole configuration. It disables formatters and language servers, because the workspace
// names these programs, and OpenCode would run them without an approval.
func (s *Supervisor) config() (string, error) {
	if err := s.checkFiles(); err != nil {
		return "", err
	}
	config, err := s.publicProvider().Config()
	if err != nil {
		return "", err
	}
	instructions := []string{s.instructionsFile()}
	// Without the workspace's configuration OpenCode would not read this either. It is text for the model, no authority.
	path := filepath.Join(s.Workspace, "AGENTS.md")
	switch info, err := os.Lstat(path); {
	case err == nil && (!info.Mode().IsRegular() || info.Size() > maxInstructions):
		s.Logger.Warn("OpenCode does not read AGENTS.md: it is no regular file or too large", "path", path, "most_bytes",
			maxInstructions)
	default: // also before the file exists
		instructions = append(instructions, path)
	}
	maps.Copy(config, map[string]any{
		"shell": s.shell(), "permission": askAll, "autoupdate": false, "share": "disabled", "formatter": false, "lsp": false,
		"instructions": instructions, "mcp": s.own.configuration(),
	})
	b, err := json.Marshal(config)
	return string(b), err
}

// followsLinks reports whether OpenCode can follow symbolic links of the workspace.
func (s *Supervisor) followsLinks() bool {
	return s.Isolation.Level == isolation.None || s.confinement == nil || s.confinement.NoSymlinksError() != nil
}

// inheritedVariables are the variables of our environment that OpenCode inherits.
var inheritedVariables = []string{
	"LANG", "LC_ALL", "LC_CTYPE", "TZ", "USER", "LOGNAME", "SSL_CERT_FILE", "SSL_CERT_DIR", "NODE_EXTRA_CA_CERTS",
}

// proxyVariables name the proxy of a program. OpenCode gets our proxy; with isolation it inherits none of these
// variables.
var proxyVariables = []string{"HTTP_PROXY", "HTTPS_PROXY", "http_proxy", "https_proxy"}

// engineOptions are options of JavaScriptCore, the engine in Bun. At its start, OpenCode runs most code only a few
// times. With the engine's defaults, a third of the processor time goes into compiling that code and collecting its
// garbage. With these, it compiles code that runs often, and collects garbage after 256 MiB. A start with
// four turns takes 2.3 instead of 3.3 s of processor time. After 80 turns OpenCode has used 520 MiB of memory at most,
// and 620 MiB without these options.
var engineOptions = map[string]string{
	"BUN_JSC_thresholdForJITAfterWarmUp":          "2000",
	"BUN_JSC_thresholdForOptimizeAfterWarmUp":     "20000",
	"BUN_JSC_thresholdForOptimizeAfterLongWarmUp": "20000",
	"BUN_JSC_thresholdForOptimizeSoon":            "20000",
	"BUN_JSC_largeHeapSize":                       "268435456",
}

func (s *Supervisor) environment(password string, proxy *url.URL) ([]string, error) {
	config, err := s.config()
	if err != nil {
		return nil, err
	}
	env := map[string]string{
		"PATH":                          strings.Join([]string{s.limitedGitDir(), filepath.Dir(s.Tools.Ripgrep), s.searchPath()}, string(os.PathListSeparator)),
		"HOME":                          s.path("home"),
		"TMPDIR":                        s.path("tmp"),
		"XDG_CONFIG_HOME":               s.path("config"),
		"XDG_DATA_HOME":                 s.path("data"),
		"XDG_STATE_HOME":                s.path("state"),
		"XDG_CACHE_HOME":                s.path("cache"),
		"OPENCODE_CONFIG_CONTENT":       config,
		"OPENCODE_SERVER_PASSWORD":      password,
		"OPENCODE_DISABLE_AUTOUPDATE":   "1",
		"OPENCODE_DISABLE_MODELS_FETCH": "1",
		"OPENCODE_DISABLE_LSP_DOWNLOAD": "1",
		// otherwise the workspace could allow its own tools, set a shell and load plugins
		"OPENCODE_DISABLE_PROJECT_CONFIG": "1",

		// Files that OpenCode can write must not configure its next start. It looks for .opencode in the first directory,
		// for its catalogue of models (which has hosts) in the second, and for logins in the third.
		"OPENCODE_TEST_HOME":    s.path("config"),
		"OPENCODE_MODELS_PATH":  s.catalogueFile(),
		"OPENCODE_AUTH_CONTENT": "{}",

		"OPENCODE_DISABLE_EXTERNAL_SKILLS": "1",            // in .agents and .claude of the workspace
		"BUN_INSPECT_PRELOAD":              s.pluginFile(), // read by Bun, which OpenCode is built with
	}
	if s.own.Key != "" {
		env[callerKey] = s.own.Key
	}
	maps.Copy(env, engineOptions)
	maps.Copy(env, s.gitVariables())
	for _, name := range inheritedVariables {
		if value := os.Getenv(name); value != "" {
			env[name] = value
		}
	}
	for _, name := range proxyVariables {
		if proxy != nil {
			env[name] = proxy.String()
		} else if value := os.Getenv(name); value != "" {
			env[name] = value
		}
	}
	if proxy == nil {
		env["NO_PROXY"] = strings.TrimPrefix(os.Getenv("NO_PROXY")+",127.0.0.1,localhost", ",")
	}
	public := s.publicProvider()
	maps.Copy(env, public.Keys)
	if public.Auth != "" {
		env["OPENCODE_AUTH_CONTENT"] = public.Auth
	}
	var list []string
	for name, value := range env {
		list = append(list, name+"="+value)
	}
	return list, nil
}
