package ops

import (
	"bytes"
	"encoding/json"
	"go/ast"
	"go/parser"
	"go/token"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"unicode/utf8"

	"github.com/matryer/is"
)

const module = "pocketcoder"

// border is a border between packages: what lies on one side of it must not import what lies on the other. Names are
// relative to the module. A name that ends in /... stands for a package and all below it, and "..." for all packages.
type border struct {
	from, to string   // names, with blanks between them
	except   []string // imports that are right all the same: "from to"
	because  string
}

var borders = []border{
	{from: "events events/atomicfile events/log/sleep sandbox/realdir", to: "...", because: "everything else is built on it"},
	{from: "events/...", to: "projections/... handlers/... sandbox/... bridge/... web/... ops/... cmd/...",
		because: "an auditor must be able to read the log without what decides about it or shows it"},
	{from: "projections/...", to: "handlers/... sandbox/... bridge/... web/... ops/... cmd/...",
		because: "a read model follows from the log alone"},
	{from: "handlers/...", to: "projections/...",
		because: "a decision follows from the log: a read model can be behind it"},
	{from: "handlers/...", to: "bridge/... web/... ops/... cmd/...",
		because: "the same decisions serve the API, the terminal and the tools of the model"},
	{from: "handlers/record",
		to: "handlers/agent handlers/budget handlers/channel handlers/chat handlers/exec handlers/mcpserver " +
			"handlers/model handlers/network handlers/permission/... handlers/policy/... handlers/proposal " +
			"handlers/recordtype handlers/rule handlers/schedule handlers/sshkey handlers/delegate",
		because: "a type of records stands beside the decisions that use it, and is passed to record.Open"},
	{from: "handlers/policy/...",
		to:      "events/log/... handlers handlers/account/... handlers/chat/... handlers/permission/... handlers/record/...",
		because: "rules are evaluated without I/O, so they can be tried on any command"},
	{from: "sandbox/...", to: "events/... projections/... handlers/... bridge/... web/... ops/... cmd/...",
		because: "a worker may run on a machine that has no log, and runs what strangers wrote"},
	{from: "sandbox/wire sandbox/netrelay sandbox/proc sandbox/protected", to: "...",
		because: "processes inside the sandbox and callers outside it have it in common"},
	{from: "bridge/...", to: "web/... ops/... cmd/...", because: "it knows one outside system, and not who asks"},
	{from: "bridge/opencode/client bridge/opencode/demo bridge/opencode/shellsocket", to: "...",
		except:  []string{"bridge/opencode/demo events/log/sleep"},
		because: "it is the protocol of another program, and nothing of ours"},
	{from: "web/...", to: "bridge/... ops/... cmd/...",
		because: "pages and API show the log; what reaches outside follows from events"},
	{from: "web/api web/query web/records web/routes web/realtime/... web/stream web/ports", to: "web/pages/...",
		because: "the API does not depend on how pages show it"},
	{from: "web/api web/query", to: "web/records web/routes web/realtime/... web/stream web/ports web/export",
		because: "routes are built on it"},
	{from: "cmd/console/...", to: "cmd/app/... cmd/cli/...",
		because: "the terminal talks to a running system, whoever started it"},
	{from: "cmd/pocketcoder-shell", to: "...", except: []string{"cmd/pocketcoder-shell bridge/opencode/shellsocket"},
		because: "it starts with each command of the model, so it must be small"},
}

// forTests are the packages that only tests import. They may import what they need.
var forTests = regexp.MustCompile(`(^|/)expect(/|$)|test$`)

// meaningless are package names that say nothing about what is inside.
var meaningless = []string{"common", "helpers", "internal", "models", "pkg", "types", "util", "utils"}

// packageFiles is a package as `go list` sees it. The ignored files are those of other operating systems.
type packageFiles struct {
	ImportPath, Dir                   string
	GoFiles, CgoFiles, IgnoredGoFiles []string
	TestGoFiles, XTestGoFiles         []string
}

func (p packageFiles) name() string {
	if p.ImportPath == module {
		return "."
	}
	return strings.TrimPrefix(p.ImportPath, module+"/")
}

// files are the paths of all files of the package but its tests, on every operating system.
func (p packageFiles) files() (paths []string) {
	for _, f := range slices.Concat(p.GoFiles, p.CgoFiles, p.IgnoredGoFiles) {
		if !strings.HasSuffix(f, "_test.go") {
			paths = append(paths, filepath.Join(p.Dir, f))
		}
	}
	return paths
}

// within reports whether one of several names stands for a package.
func within(name, names string) bool {
	return slices.ContainsFunc(strings.Fields(names), func(n string) bool {
		above, all := strings.CutSuffix(n, "...")
		above = strings.TrimSuffix(above, "/")
		return name == above || all && (above == "" || strings.HasPrefix(name, above+"/"))
	})
}

func TestNoImportCrossesABorder(t *testing.T) {
	t.Parallel()
	crossed := map[string]bool{} // exceptions that are needed
	for _, p := range packages(t) {
		if forTests.MatchString(p.name()) {
			continue
		}
		for _, path := range p.files() {
			for _, imported := range imports(t, path) {
				if forTests.MatchString(imported) {
					t.Errorf("%s imports %s, which is for tests", p.name(), imported)
				}
				checkBorders(t, p.name(), imported, crossed)
			}
		}
	}
	for _, b := range borders {
		for _, arrow := range b.except {
			if !crossed[arrow] {
				t.Errorf("the exception %q is not needed", arrow)
			}
		}
	}
}

func checkBorders(t *testing.T, from, to string, crossed map[string]bool) {
	for _, b := range borders {
		switch arrow := from + " " + to; {
		case !within(from, b.from) || !within(to, b.to):
		case slices.Contains(b.except, arrow):
			crossed[arrow] = true
		default:
			t.Errorf("%s must not import %s: %s", from, to, b.because)
		}
	}
}

func TestBordersNamePackagesThatExist(t *testing.T) {
	t.Parallel()
	all := packages(t)
	for _, b := range borders {
		for _, n := range strings.Fields(b.from + " " + b.to) {
			if !slices.ContainsFunc(all, func(p packageFiles) bool { return within(p.name(), n) }) {
				t.Errorf("%s stands for no package", n)
			}
		}
	}
}

// atRandom matches in a test that tries something at random.
var atRandom = regexp.MustCompile(`\bexpect\.(Property|Rand)\(`)

// Tests try the same at random in each run, so only "task fuzz" finds what is new.
func TestFuzzTriesSomethingNewInEachPackageWithRandomTests(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	tasks, err := os.ReadFile("../Taskfile.yml")
	is.NoErr(err)
	var lines []string
	for line := range strings.Lines(string(tasks)) {
		if strings.Contains(line, "-random.seed=0") {
			lines = append(lines, strings.Fields(line)...)
		}
	}
	found := 0
	for _, p := range packages(t) {
		for _, f := range slices.Concat(p.TestGoFiles, p.XTestGoFiles) {
			text, err := os.ReadFile(filepath.Join(p.Dir, f))
			is.NoErr(err)
			if atRandom.Match(text) {
				found++
				if !slices.Contains(lines, "./"+p.name()) {
					t.Errorf("no line of the task fuzz with -random.seed=0 names ./%s", p.name())
				}
			}
		}
	}
	is.True(found > 0)
}

func TestEveryPackageSaysOnceWhatItIs(t *testing.T) {
	t.Parallel()
	for _, p := range packages(t) {
		var comments []string
		for _, path := range p.files() {
			if parse(t, path).Doc != nil {
				comments = append(comments, filepath.Base(path))
			}
		}
		if len(comments) != 1 {
			t.Errorf("%s has a package comment in %q, want exactly one", p.name(), comments)
		}
	}
}

// columns is the width of a line. Longer are only rows of a table, and lines with a text that is not broken.
const columns = 120

var (
	tableRow = regexp.MustCompile(`^(\{|"|` + "`" + `|//\t|//go:|case |[\w.]+: )|\},$`)
	longText = regexp.MustCompile(`"(?:[^"\\]|\\.){48,}"|` + "`[^`]{48,}`" + ``)
)

func TestLinesFitTheWindow(t *testing.T) {
	t.Parallel()
	for _, p := range packages(t) {
		paths, err := filepath.Glob(filepath.Join(p.Dir, "*.go"))
		if err != nil {
			t.Fatal(err)
		}
		for _, path := range paths {
			if strings.HasSuffix(path, "_templ.go") { // generated
				continue
			}
			text, err := os.ReadFile(path)
			if err != nil {
				t.Fatal(err)
			}
			checkColumns(t, path, string(text))
		}
	}
}

// checkColumns reports the lines of a file that are too long, outside of texts of several lines.
func checkColumns(t *testing.T, path, text string) {
	inText := false
	for i, line := range strings.Split(text, "\n") {
		within := inText
		if strings.Count(line, "`")%2 == 1 {
			inText = !inText
			within = true
		}
		if !within && utf8.RuneCountInString(line) > columns && !tableRow.MatchString(strings.TrimSpace(line)) &&
			!longText.MatchString(line) {
			t.Errorf("%s:%d has more than %d columns", path, i+1, columns)
		}
	}
}

func TestPackageNamesMeanSomething(t *testing.T) {
	t.Parallel()
	for _, p := range packages(t) {
		for _, word := range strings.Split(p.name(), "/") {
			if slices.Contains(meaningless, word) {
				t.Errorf("%s: %q says nothing about what is inside", p.name(), word)
			}
		}
	}
}

// The shell starts once per command, and each large package that it links makes the start slower.
func TestTheShellLinksOnlyItsProtocolAndALittleOfTheStandardLibrary(t *testing.T) {
	t.Parallel()
	out := goList(t, "-deps", "-f", "{{if or .Module (eq .ImportPath \"fmt\" \"net\" \"reflect\")}}{{.ImportPath}}{{end}}", "./cmd/pocketcoder-shell")
	is.New(t).Equal(strings.Fields(string(out)), []string{module + "/bridge/opencode/shellsocket",
		module + "/cmd/pocketcoder-shell"})
}

// listed holds the packages once one test has listed them: go list takes half a second.
var listed struct {
	sync.Mutex
	packages []packageFiles
}

// packages are all packages of the module.
func packages(t *testing.T) []packageFiles {
	t.Helper()
	listed.Lock()
	defer listed.Unlock()
	if listed.packages != nil {
		return listed.packages
	}
	is := is.New(t)
	var list []packageFiles
	found := json.NewDecoder(bytes.NewReader(goList(t, "-json=ImportPath,Dir,GoFiles,CgoFiles,IgnoredGoFiles,TestGoFiles,XTestGoFiles", "./...")))
	for {
		var p packageFiles
		err := found.Decode(&p)
		if err == io.EOF {
			break
		}
		is.NoErr(err)
		list = append(list, p)
	}
	is.True(len(list) > 1) // go list sees the module
	listed.packages = list
	return list
}

// goList runs go list in the root of the module.
func goList(t *testing.T, args ...string) []byte {
	t.Helper()
	var stderr bytes.Buffer
	cmd := exec.CommandContext(t.Context(), "go", append([]string{"list"}, args...)...)
	cmd.Dir, cmd.Stderr = "..", &stderr
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("go list: %v\n%s", err, &stderr)
	}
	return out
}

func parse(t *testing.T, path string) *ast.File {
	t.Helper()
	f, err := parser.ParseFile(token.NewFileSet(), path, nil, parser.ImportsOnly|parser.ParseComments)
	if err != nil {
		t.Fatal(err)
	}
	return f
}

// imports are the packages of ours that a file imports, relative to the module.
func imports(t *testing.T, path string) (list []string) {
	t.Helper()
	for _, spec := range parse(t, path).Imports {
		imported, err := strconv.Unquote(spec.Path.Value)
		if err != nil {
			t.Fatal(err)
		}
		if imported == module {
			list = append(list, ".")
		}
		if name, ours := strings.CutPrefix(imported, module+"/"); ours {
			list = append(list, name)
		}
	}
	return list
}
