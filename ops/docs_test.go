package ops

import (
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/matryer/is"
)

// filePath is a path in backticks that names a file below a directory.
var filePath = regexp.MustCompile("`([\\w.-]+/[\\w./-]*\\w\\.(?:go|sql|json|yaml|service))`")

// link is a link to another page of the repository.
var link = regexp.MustCompile(`\]\(([\w./-]+)(?:#[\w-]+)?\)`)

func TestTheFilesThatAreReferredToExist(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	var pages []string
	for _, pattern := range []string{"../*.md", "../docs/*.md", "adr/*.md"} {
		found, err := filepath.Glob(pattern)
		is.NoErr(err)
		pages = append(pages, found...)
	}
	named, linked := 0, 0
	for _, page := range pages {
		text, err := os.ReadFile(page)
		is.NoErr(err)
		for _, match := range filePath.FindAllStringSubmatch(string(text), -1) {
			named++
			if _, err := os.Stat(filepath.Join("..", match[1])); err != nil {
				t.Errorf("%s names %s, which does not exist", page, match[1])
			}
		}
		for _, match := range link.FindAllStringSubmatch(string(text), -1) {
			linked++
			if _, err := os.Stat(filepath.Join(filepath.Dir(page), match[1])); err != nil {
				t.Errorf("%s has a link to %s, which does not exist", page, match[1])
			}
		}
	}
	is.True(named > 10) // the patterns find them
	is.True(linked > 10)
}

// faultRow is a row of docs/faults.md: how often, what was seen, and the test.
var faultRow = regexp.MustCompile(`(?m)^\|.*\| (\d+) \| (.*) \| ` + "`" + `(\./[\w/]+) -run '\^(\w+)\$'` + "`" + ` \|$`)

func TestEachFaultWasTried(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	text, err := os.ReadFile("../docs/faults.md")
	is.NoErr(err)
	rows := faultRow.FindAllStringSubmatch(string(text), -1)
	is.True(len(rows) > 10)
	is.Equal(len(rows), strings.Count(string(text), " -run '^")-1) // one is the example
	for _, row := range rows {
		times, seen, dir, name := row[1], row[2], row[3], row[4]
		if times == "0" || seen == "" {
			t.Errorf("run %s with -faults.write", name)
		}
		files, err := filepath.Glob(filepath.Join("..", dir, "*_test.go"))
		is.NoErr(err)
		found := slices.ContainsFunc(files, func(path string) bool {
			body, err := os.ReadFile(path)
			is.NoErr(err)
			_, test, found := strings.Cut(string(body), "func "+name+"(t *testing.T) {")
			test, _, _ = strings.Cut(test, "\n}\n")
			return found && strings.Contains(test, "expect.CountFault(t, ")
		})
		if !found {
			t.Errorf("%s has no test %s that counts a fault", dir, name)
		}
	}
}
