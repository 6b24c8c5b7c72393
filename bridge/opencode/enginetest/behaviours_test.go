package main

import (
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/matryer/is"

	"pocketcoder/ops/expect"
)

const root = "../../.."

func TestEachBehaviourHasATestOrSaysWhyNot(t *testing.T) {
	t.Parallel()
	ids := map[string]bool{}
	for _, b := range behaviours {
		if ids[b.id] || b.sentence == "" || len(b.usedBy) == 0 || (len(b.tests) == 0) != (b.untested != "") {
			t.Errorf("the row %q is not whole, or its id is used twice", b.id)
		}
		ids[b.id] = true
		for _, one := range b.tests {
			if !exists(t, one) {
				t.Errorf("the row %s names the test %s of %s, which does not exist", b.id, one.path(), one.pkg)
			}
		}
		for _, path := range b.usedBy {
			if _, err := os.Stat(filepath.Join(root, path)); err != nil {
				t.Errorf("the row %s: %v", b.id, err)
			}
		}
	}
}

// exists reports whether a package has a test. The name of its part must stand in the same package.
func exists(t *testing.T, one test) bool {
	t.Helper()
	is := is.New(t)
	paths, err := filepath.Glob(filepath.Join(root, one.pkg, "*_test.go"))
	is.NoErr(err)
	hasTest, hasPart := false, one.part == ""
	for _, path := range paths {
		file, err := parser.ParseFile(token.NewFileSet(), path, nil, 0)
		is.NoErr(err)
		ast.Inspect(file, func(n ast.Node) bool {
			switch n := n.(type) {
			case *ast.FuncDecl:
				hasTest = hasTest || n.Name.Name == one.name
			case *ast.BasicLit:
				hasPart = hasPart || n.Kind == token.STRING && n.Value == strconv.Quote(one.part)
			}
			return true
		})
	}
	return hasTest && hasPart
}

// named matches where a comment names rows of the list.
var named = regexp.MustCompile(`\(behaviours? ([a-z0-9, -]+)\)`)

func TestCommentsNameBehavioursOfTheList(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	found := 0
	check := func(path, text string) {
		if strings.HasPrefix(path, "bridge/opencode/") && strings.Contains(text, "(measured") {
			t.Errorf("%s says that OpenCode was measured; name a behaviour instead", path)
		}
		for _, match := range named.FindAllStringSubmatch(text, -1) {
			for _, id := range strings.Split(match[1], ", ") {
				found++
				i := slices.IndexFunc(behaviours, func(b behaviour) bool { return b.id == id })
				if i < 0 || !strings.HasSuffix(path, "_test.go") && !slices.Contains(behaviours[i].usedBy, path) {
					t.Errorf("%s names the behaviour %s, which is not in the list, or there without this file", path, id)
				}
			}
		}
	}
	for _, dir := range []string{"bridge", "events", "handlers", "ops/adr"} {
		is.NoErr(filepath.WalkDir(filepath.Join(root, dir), func(path string, d fs.DirEntry, err error) error {
			if err != nil || d.IsDir() || !slices.Contains([]string{".go", ".js", ".sh", ".md"}, filepath.Ext(path)) {
				return err
			}
			relative, err := filepath.Rel(root, path)
			if err == nil && filepath.Dir(relative) != own {
				check(relative, expect.ReadFile(t, path))
			}
			return err
		}))
	}
	is.True(found > 20)
}

func TestThePageHasEachBehaviour(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	text := expect.ReadFile(t, filepath.Join(root, page))
	list, err := table(text, listHead)
	is.NoErr(err)
	results, err := table(text, resultsHead)
	is.NoErr(err)
	for _, row := range listTable() {
		if !slices.Contains(list, row) {
			t.Errorf("%s lacks the row below; run task engine -- -write\n%s", page, row)
		}
	}
	is.Equal(len(list), len(listTable()))
	is.Equal(len(results), len(behaviours)+2)
	for i, b := range behaviours {
		is.Equal(cells(results[i+2])[0], "`"+b.id+"`")
	}
}

func TestResultsOfAVersionBecomeAColumn(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	text := "above\n" + listHead + "\n|---|\n\n| behaviour | 1.9.0 | 1.18.3 |\n|---|---|---|\n| `stop` | no | yes |\nbelow\n"
	stop := behaviours[slices.IndexFunc(behaviours, func(b behaviour) bool { return b.id == "stop" })]
	got, err := withResults(text, "1.18.1", map[string]outcome{stop.tests[0].String(): {ended: "fail"}})
	is.NoErr(err)
	rows, err := table(got, resultsHead)
	is.NoErr(err)
	is.Equal(rows[0], "| behaviour | 1.9.0 | 1.18.1 | 1.18.3 |")
	is.Equal(len(rows), len(behaviours)+2)
	is.True(slices.Contains(rows, "| `stop` | no | no | yes |"))
	is.True(slices.Contains(rows, "| `kill` | – | – | – |"))
	is.True(strings.HasPrefix(got, "above\n"))
	is.True(strings.HasSuffix(got, "\nbelow\n"))
	_, err = withResults("no tables", "1.18.1", nil)
	is.True(err != nil)
}

func TestABehaviourHoldsIfAllItsTestsPass(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	ended, err := read(strings.NewReader(strings.Join([]string{
		`{"Action":"output","Test":"A","Output":"    a_test.go:1: logged\n"}`,
		`{"Action":"output","Test":"A","Output":"    a_test.go:9: it is wrong\n"}`,
		`{"Action":"fail","Test":"A"}`, `{"Action":"pass","Test":"B"}`, `{"Action":"skip","Test":"C"}`, "", "no JSON", ""}, "\n")))
	is.NoErr(err)
	is.Equal(ended["A"], outcome{"fail", "a_test.go:9: it is wrong"})
	of := func(names ...string) string { return behaviour{tests: in("p", names...)}.outcome(ended).String() }
	is.Equal(of("B"), "yes")
	is.Equal(of("B", "C"), "–")
	is.Equal(of("C", "A"), "no")
	is.Equal(of("D"), "–")
	is.Equal(of(), "–")
}
