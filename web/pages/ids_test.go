package pages_test

import (
	"io/fs"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// sharedIDs are the ids of elements that mean the same on several pages. The scripts of all pages find them by these
// ids.
var sharedIDs = []string{"earlier-messages", "email", "entries", "head", "log", "menu", "new", "password", "problem",
	"tags", "text"}

func TestAnIDMeansTheSameOnEveryPage(t *testing.T) {
	t.Parallel()
	attribute := regexp.MustCompile(` id="([^"]+)"`)
	where := map[string]string{}
	templates := 0
	err := fs.WalkDir(os.DirFS("."), ".", func(path string, _ fs.DirEntry, err error) error {
		if err != nil || !strings.HasSuffix(path, ".templ") {
			return err
		}
		templates++
		text, err := os.ReadFile(path)
		for _, id := range attribute.FindAllStringSubmatch(string(text), -1) {
			if before, taken := where[id[1]]; taken && before != path && !slices.Contains(sharedIDs, id[1]) {
				t.Errorf("%s and %s both have an element with the id %q: a script for one would act on the other", before, path,
					id[1])
			}
			where[id[1]] = path
		}
		return err
	})
	if err != nil || templates < 10 {
		t.Fatalf("%d templates: %v", templates, err)
	}
}
