package main

import (
	"cmp"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/matryer/is"

	"pocketcoder/ops/expect"
)

func TestUpReportsWhyItCannotStart(t *testing.T) {
	expect.Slow(t, "starts the program often")
	t.Parallel()
	for name, c := range map[string]struct {
		prepare func(t *testing.T, dir string) (args []string, env map[string]string)
		want    string // DIR is the test's directory
		code    int
	}{
		"port in use":          {portInUse, "address already in use; choose another with --http", 1},
		"other version":        {otherVersion, `DIR/data: a newer pocketcoder has stored data of version 99`, 1},
		"no workspace":         {with("--workspace", "DIR/missing"), "--workspace: stat DIR/missing: no such file", 1},
		"workspace is a file":  {workspaceIsFile, "--workspace DIR/file is not a directory", 1},
		"data among programs":  {with("--data", "/opt/pocketcoder-data"), "--data /opt/pocketcoder-data can be read in the sandbox", 1},
		"data behind a link":   {dataBehindLink, "lies in --workspace DIR/workspace", 1},
		"data in workspace":    {with("--data", "DIR/workspace/data"), "--data DIR/workspace/data lies in --workspace DIR/workspace", 1},
		"address of everybody": {with("--http", "0.0.0.0:0"), "--http 0.0.0.0:0 is not a loopback address", 2},
		"address without port": {with("--http", "localhost"), `--http "localhost": address localhost: missing port`, 2},
		"no such network":      {with("--network", "on"), `--network "on": want off, ask or allow`, 2},
		"a way out for all":    {with("--egress", "0.0.0.0:3128"), `--egress "0.0.0.0:3128": want one address of this machine`, 2},
		"no such isolation":    {with("--isolation", "steel"), `--isolation: there is no isolation "steel": choose auto, bwrap, landlock, container or none`, 2},
		"no such variable":     {isolationVariable, `there is no isolation "steel"`, 2},
		"no network to ask":    {landlock("--network", "ask"), "commands have no network at --isolation landlock, and --network ask needs one; use --isolation bwrap", 2},
		"no network to allow":  {landlock("--network", "allow"), "no network at --isolation landlock, and --network allow needs one", 2},
		"no host to allow":     {landlock("--allow", "network: example.org"), "and --allow 'network: example.org' needs one", 2},
		"no host to ask for":   {landlock("--allow", "ask network: example.org"), "and --allow 'ask network: example.org' needs one", 2},
		"denied host":          {landlock("--allow", "deny network: example.org", "--workspace", "DIR/missing"), "--workspace: stat DIR/missing: no such file", 1},
		"no such number":       {with("--processes", "-3"), "limit processes of -3 is negative", 2},
		"no such time":         {with("--timeout", "-5s"), "--timeout -5s: want a duration, or 0 for no limit", 2},
		"memory of nothing":    {with("--memory", "100"), "limit memory of 100 is out of range", 2},
		"broken variable":      {memoryVariable, `POCKETCODER_MEMORY: size "plenty"`, 2},
		"keys of one's own":    {ownKeys, "--authorized-keys: leave DIR/authorized_keys alone: PocketCoder did not write it, and would overwrite its keys; name a file of its own", 1},
		"keys nowhere":         {with("--authorized-keys", "/nowhere/keys"), "--authorized-keys: make its directory first: stat /nowhere", 1},
		"SSH without port":     {with("--ssh", "nonsense"), `--ssh "nonsense": address nonsense: missing port`, 2},
		"broken host":          {with("--allow", "network: *"), "want a host such as api.example.org", 2},
		"broken rule":          {with("--allow", "bash: git 'status"), `parse rule "bash: git 'status": column 11`, 2},
		"rule for everything":  {with("--allow", "*: *"), `only a rule that denies or asks is for every permission`, 2},
		"no URL of a model":    {with("--model-url", "localhost:11434", "--model", "x"), "want a base URL such as http://127.0.0.1:11434/v1", 2},
		"no price":             {with("--model-price", "much"), "want a price such as 0.5, or input/output", 2},
		"a model's context":    {with("--model-context", "4096"), "are for a model at --model-url", 2},
		"no provider":          {with("--model", "claude"), `--model "claude": want provider/model`, 2},
		"no such OpenCode":     {with("--opencode", "DIR/nowhere"), `use opencode: exec: "DIR/nowhere": stat DIR/nowhere: no such file`, 1},
		"data is a file":       {dataIsFile, "open data directory DIR/file", 1},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			is := is.New(t)
			dir := t.TempDir()
			is.NoErr(os.Mkdir(filepath.Join(dir, "workspace"), 0o755))
			args, env := c.prepare(t, dir)
			up := []string{"up", "--demo", "--data", filepath.Join(dir, "data"), "--workspace", filepath.Join(dir, "workspace"),
				"--http", "127.0.0.1:0"}
			getenv := func(name string) string { return cmp.Or(env[name], os.Getenv(name)) }
			_, stderr, code := runCommand(t, getenv, "", append(up, args...)...)
			t.Log(stderr)
			expect.Contains(t, stderr, strings.ReplaceAll(c.want, "DIR", dir))
			is.Equal(code, c.code)
			_, err := os.Stat(filepath.Join(dir, "data", "running.json"))
			is.True(os.IsNotExist(err)) // no file announces a running system
		})
	}
}

// with sets flags.
func with(words ...string) func(*testing.T, string) ([]string, map[string]string) {
	return func(_ *testing.T, dir string) (args []string, env map[string]string) {
		for _, word := range words {
			args = append(args, strings.ReplaceAll(word, "DIR", dir))
		}
		return args, nil
	}
}

// landlock sets flags at that level.
func landlock(words ...string) func(*testing.T, string) ([]string, map[string]string) {
	return with(append(words, "--isolation", "landlock")...)
}

func isolationVariable(*testing.T, string) (args []string, env map[string]string) {
	return nil, map[string]string{"POCKETCODER_ISOLATION": "steel"}
}

func memoryVariable(*testing.T, string) (args []string, env map[string]string) {
	return nil, map[string]string{"POCKETCODER_MEMORY": "plenty"}
}

func portInUse(t *testing.T, _ string) (args []string, env map[string]string) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	return []string{"--http", l.Addr().String()}, nil
}

func ownKeys(t *testing.T, dir string) (args []string, env map[string]string) {
	file := filepath.Join(dir, "authorized_keys")
	expect.WriteFile(t, file, "ssh-ed25519 AAAA me\n")
	return []string{"--authorized-keys", file}, nil
}

func otherVersion(t *testing.T, dir string) (args []string, env map[string]string) {
	expect.WriteFile(t, filepath.Join(dir, "data", "version"), "99\n")
	return nil, nil
}

func workspaceIsFile(t *testing.T, dir string) (args []string, env map[string]string) {
	expect.WriteFile(t, filepath.Join(dir, "file"), "")
	return []string{"--workspace", filepath.Join(dir, "file")}, nil
}

func dataBehindLink(t *testing.T, dir string) (args []string, env map[string]string) {
	link := filepath.Join(dir, "link")
	if err := os.Symlink(filepath.Join(dir, "workspace"), link); err != nil {
		t.Fatal(err)
	}
	return []string{"--data", filepath.Join(link, "data")}, nil
}

func dataIsFile(t *testing.T, dir string) (args []string, env map[string]string) {
	expect.WriteFile(t, filepath.Join(dir, "file"), "")
	return []string{"--data", filepath.Join(dir, "file")}, nil
}

func TestDataDirectoryHasOneUser(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	p := sharedSystem(t)
	_, stderr, code := runProgram(t, nil, "", "up", "--demo", "--http", "127.0.0.1:0", "--data", string(p.data),
		"--workspace", p.workspace)
	is.Equal(code, 1)
	expect.Contains(t, stderr, "in use by pid "+strconv.Itoa(p.pid()))
	is.Equal(p.health(t).code, 200) // and the one goes on
}
