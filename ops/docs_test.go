package ops

import (
	"os"
	"path/filepath"
	"regexp"
	"testing"

	"github.com/matryer/is"
)

// filePath is a path in backticks that names a file below a directory.
var filePath = regexp.MustCompile("`([\\w.-]+/[\\w./-]*\\w\\.(?:go|sql|yaml|service))`")

func TestTheFilesThatAreReferredToExist(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	pages, err := filepath.Glob("../*.md")
	is.NoErr(err)
	decisions, err := filepath.Glob("adr/*.md")
	is.NoErr(err)
	named := 0
	for _, page := range append(pages, decisions...) {
		text, err := os.ReadFile(page)
		is.NoErr(err)
		for _, match := range filePath.FindAllStringSubmatch(string(text), -1) {
			named++
			if _, err := os.Stat(filepath.Join("..", match[1])); err != nil {
				t.Errorf("%s names %s, which does not exist", page, match[1])
			}
		}
	}
	is.True(named > 10) // the pattern finds them
}
