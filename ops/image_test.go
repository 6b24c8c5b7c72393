package ops

import (
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/matryer/is"

	"pocketcoder/bridge/opencode/install"
	"pocketcoder/ops/expect"
	"pocketcoder/sandbox/isolation"
	"pocketcoder/sandbox/wire"
)

// A container that had another OpenCode than the bridge knows would install the right one at every start.
func TestTheImageInstallsTheVersionsTheBridgeKnows(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	text, err := os.ReadFile("Dockerfile")
	is.NoErr(err)
	for _, want := range []string{"opencode-ai@" + install.OpenCodeVersion, "@vscode/ripgrep@" + install.RipgrepVersion} {
		if !strings.Contains(string(text), want) {
			t.Errorf("Dockerfile does not install %s", want)
		}
	}
}

// installed are the packages an image gets with apt-get.
func installed(t *testing.T, dockerfile string) []string {
	t.Helper()
	text, err := os.ReadFile(dockerfile)
	is.New(t).NoErr(err)
	_, rest, _ := strings.Cut(string(text), "--no-install-recommends ")
	line, _, _ := strings.Cut(rest, "\n")
	return strings.Fields(line)
}

// What a node cannot do without its image having the program it runs.
func TestImagesHaveWhatIsolatesAndWhatShows(t *testing.T) {
	t.Parallel()
	for dockerfile, packages := range map[string][]string{
		"Dockerfile": {"bubblewrap", "tmux", "openssh-server"}, "Dockerfile.sandbox": {"bubblewrap"},
	} {
		for _, name := range packages {
			if !slices.Contains(installed(t, dockerfile), name) {
				t.Errorf("%s does not install %s", dockerfile, name)
			}
		}
	}
}

func TestEveryImageRunsAsSomebodyWithoutRights(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	for _, dockerfile := range []string{"Dockerfile", "Dockerfile.sandbox"} {
		text, err := os.ReadFile(dockerfile)
		is.NoErr(err)
		_, last, found := strings.Cut(string(text)[strings.LastIndex(string(text), "\nFROM "):], "\nUSER ")
		is.True(found)                            // it names a user
		is.True(!strings.HasPrefix(last, "root")) // and that is not root
	}
	text, err := os.ReadFile("Dockerfile.sandbox")
	is.NoErr(err)
	expect.Contains(t, string(text), isolation.ContainerMark+"=") // so that the container counts as one
}

// service is the text of one service of a compose file, without comments.
func service(t *testing.T, file, name string) string {
	t.Helper()
	is := is.New(t)
	text, err := os.ReadFile(file)
	is.NoErr(err)
	_, rest, found := strings.Cut(string(text), "\n  "+name+":\n")
	is.True(found) // the service is there
	var lines []string
	for line := range strings.Lines(rest) {
		if !strings.HasPrefix(line, "   ") && strings.TrimSpace(line) != "" {
			break
		}
		line, _, _ = strings.Cut(line, " #")
		lines = append(lines, strings.TrimRight(line, " \n"))
	}
	return strings.Join(lines, "\n")
}

func TestWorkersContainerIsAWall(t *testing.T) {
	t.Parallel()
	worker := service(t, "compose.cluster.yaml", "worker")
	for _, want := range []string{"read_only: true", "cap_drop: [ALL]", "no-new-privileges:true", "networks: [sandbox]",
		"tmpfs:", "worker:/worker:ro"} {
		if !strings.Contains(worker, want) {
			t.Errorf("the worker has no %q", want)
		}
	}
	for _, never := range []string{"docker.sock", "privileged", "data:/data", "network_mode", "core"} {
		if strings.Contains(worker, never) {
			t.Errorf("the worker has %q", never)
		}
	}
	if networks := service(t, "compose.cluster.yaml", "sandbox"); !strings.Contains(networks, "internal: true") {
		t.Error("the workers' network leads out")
	}
}

// A worker that stops lets running commands go on. A worker that is killed first loses them.
func TestWorkersContainerLivesUntilTheWorkerHasDrained(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	command, err := os.ReadFile("../cmd/cli/worker.go")
	is.NoErr(err)
	const drain = 3 * time.Minute
	expect.Contains(t, string(command), "sandboxDrain = 3 * time.Minute\n")
	_, rest, _ := strings.Cut(service(t, "compose.cluster.yaml", "worker"), "stop_grace_period: ")
	grace, err := time.ParseDuration(strings.Fields(rest)[0])
	is.NoErr(err)
	is.True(grace > drain+wire.StopTimeout)
}

// Workers share a network with the node. What it serves to people must not listen there.
func TestNodeListensForWorkersWithTheEgressProxyAlone(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	for _, name := range []string{"pocketcoder", "pocketcoder2"} {
		node := service(t, "compose.cluster.yaml", name)
		address := func(before, after string) string {
			_, rest, found := strings.Cut(node, before)
			is.True(found)
			value, _, _ := strings.Cut(rest, after)
			return value
		}
		core, sandbox := address("core: { ipv4_address: ", " "), address("sandbox: { ipv4_address: ", " ")
		is.True(core != sandbox)
		is.Equal(address("POCKETCODER_HTTP: ", ":"), core)
		is.Equal(address("POCKETCODER_SSH: ", ":"), core)
		is.Equal(address("POCKETCODER_EGRESS: ", ":"), sandbox)
		expect.Contains(t, node, "<<: *serve")
	}
	text, err := os.ReadFile("compose.cluster.yaml")
	is.NoErr(err)
	expect.Contains(t, string(text), `command: [serve, --replicas, "3"]`) // each of the three servers holds the log
}

func TestDashboardsOnlyReadAndListenOnThisMachine(t *testing.T) {
	t.Parallel()
	dashboards := service(t, "../compose.yaml", "sqlpage")
	for _, want := range []string{"profiles: [sqlpage]", "volume: {subpath: readmodels}", "?mode=ro",
		`"127.0.0.1:8080:8080"`, "read_only: true", "cap_drop: [ALL]", "no-new-privileges:true"} {
		expect.Contains(t, dashboards, want)
	}
}

func TestOnlyItsProxyReachesTheDockerSocket(t *testing.T) {
	t.Parallel()
	const file = "compose.mcp.yaml"
	proxy := service(t, file, "docker-socket")
	for _, want := range []string{"docker.sock:ro", "networks: [docker]", "image: tecnativa/docker-socket-proxy:0."} {
		expect.Contains(t, proxy, want)
	}
	for _, never := range []string{"EXEC", "VOLUMES", "SECRETS", "ports:"} {
		expect.Lacks(t, proxy, never)
	}
	gateway := service(t, file, "mcp-gateway")
	for _, want := range []string{"image: docker/mcp-gateway:v0.", "tcp://docker-socket:2375", "AUTH_TOKEN:?"} {
		expect.Contains(t, gateway, want)
	}
	expect.Contains(t, service(t, file, "pocketcoder"), "networks: [default, tools]")
	for _, name := range []string{"pocketcoder", "mcp-gateway"} {
		expect.Lacks(t, service(t, file, name), "docker.sock")
	}
}
