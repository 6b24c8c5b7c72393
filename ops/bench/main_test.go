package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func TestEveryBenchmarkIsInItsPackage(t *testing.T) {
	t.Parallel()
	for _, r := range runs {
		files, _ := filepath.Glob(filepath.Join("../..", r.pkg, "*_test.go"))
		found := false
		for _, file := range files {
			text, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			found = found || strings.Contains(string(text), "\nfunc Benchmark"+r.bench+"(")
		}
		if !found {
			t.Errorf("%s has no Benchmark%s", r.pkg, r.bench)
		}
	}
}
