package ops

import (
	"os"
	"path/filepath"
	"regexp"
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
