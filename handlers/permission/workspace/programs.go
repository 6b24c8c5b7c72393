package workspace

import (
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"pocketcoder/events"
)

// maxPrograms is how many files of a command are looked at.
const maxPrograms = 500

// entryFiles are the files of a folder that an interpreter runs if a command names the folder.
var entryFiles = []string{"package.json", "index.js", "index.mjs", "index.ts", "__main__.py", "__init__.py"}

// maxCommandFiles is how many files of a command an approval depends on.
const maxCommandFiles = 64

// defaultFiles are the files that programs run without being told their names. A program uses the first that exists,
// so all names count.
var defaultFiles = map[string][]string{
	"make": {"GNUmakefile", "makefile", "Makefile"}, "gmake": {"GNUmakefile", "makefile", "Makefile"},
	"npm": {"package.json"}, "npx": {"package.json"}, "pnpm": {"package.json"}, "yarn": {"package.json"},
	"bun": {"package.json"}, "bunx": {"package.json"}, "deno": {"deno.json", "deno.jsonc", "package.json"},
	"just": {"justfile", "Justfile", ".justfile"}, "rake": {"rakefile", "Rakefile", "rakefile.rb", "Rakefile.rb"},
	"task":    {"Taskfile.yml", "taskfile.yml", "Taskfile.yaml", "taskfile.yaml"},
	"cargo":   {"Cargo.toml", "build.rs"},
	"gradle":  {"build.gradle", "build.gradle.kts", "settings.gradle", "settings.gradle.kts"},
	"gradlew": {"build.gradle", "build.gradle.kts", "settings.gradle", "settings.gradle.kts"},
	"mvn":     {"pom.xml"}, "mvnw": {"pom.xml"}, "ant": {"build.xml"}, "ninja": {"build.ninja"},
	"cmake": {"CMakeLists.txt"}, "tox": {"tox.ini", "setup.cfg", "pyproject.toml"}, "nox": {"noxfile.py"},
	"pytest": {"conftest.py", "pytest.ini", "pyproject.toml", "tox.ini", "setup.cfg"},
	"pip":    {"setup.py", "pyproject.toml"}, "pip3": {"setup.py", "pyproject.toml"},
	"docker": {"Dockerfile", "compose.yaml", "compose.yml", "docker-compose.yml", "docker-compose.yaml"},
}

// CommandFingerprints returns the fingerprints of the files that a command names and that lie below the workspace or
// below the directory in which the command runs. It reads the same words as Programs.
func CommandFingerprints(command, workspace, cwd string) []events.FileFingerprint {
	paths := namedFiles(command, workspace, cwd)
	return fingerprints(paths[:min(len(paths), maxCommandFiles)])
}

// Programs returns the files of the workspace that a command line names, each with its path and its fingerprint: those
// may be its program. It reads words, not the syntax of a shell, so a file that is only an argument counts too. A file
// that a program loads by itself is not known.
func Programs(command, workspace string) (lines []string) {
	for _, f := range fingerprints(namedFiles(command, workspace, workspace)) {
		name := fromRoot(workspace, f.Path)
		if f.Target != "" {
			name += " → " + f.Target
		}
		state := "sha256:" + f.SHA256
		if f.SHA256 == "" {
			state = fmt.Sprintf("%d bytes, modified %d", f.Size, f.ModifiedNS)
		}
		lines = append(lines, name+" "+state)
	}
	return lines
}

// separators are the characters between the words of a command, also within its arguments: --config=FILE.
const separators = " \t\n\r;|&()<>'\"`$={}:,\\"

// NamesOneOf returns the index of the first command line whose program a request may change. A request may change a
// file if it edits the file, or if its command names it. The index is -1 if there is none.
func NamesOneOf(commands []string, a events.PermissionRequest, workspace, cwd string) int {
	about := a.About()
	touched := append(about.Patched(), about.Filepath)
	if a.Permission == events.KindBash {
		touched = append(namedFiles(about.Command, workspace, workspace), namedFiles(about.Command, cwd, cwd)...)
	} else if a.Permission != events.KindEdit {
		return -1
	}
	is := map[string]bool{}
	for _, path := range touched {
		if real, ok := RealPath(path); ok {
			is[real] = true
		}
	}
	return slices.IndexFunc(commands, func(command string) bool {
		return slices.ContainsFunc(namedFiles(command, workspace, workspace), func(path string) bool {
			real, ok := RealPath(path)
			return ok && is[real]
		})
	})
}

// namedFiles returns the absolute paths of the regular files that the words of a command name, relative to cwd and to
// the folders that it names. They lie below the workspace or below cwd.
func namedFiles(command, workspace, cwd string) (paths []string) {
	root, ok := RealPath(workspace)
	here, known := RealPath(cwd)
	if !ok || !known {
		return nil
	}
	isInside := func(path string) bool { return strings.HasPrefix(path, root+"/") || strings.HasPrefix(path, here+"/") }
	words := strings.FieldsFunc(command, func(r rune) bool { return strings.ContainsRune(separators, r) })
	var byDefault []string
	for _, word := range words {
		byDefault = append(byDefault, defaultFiles[filepath.Base(word)]...)
	}
	if len(words) > 0 && slices.Contains([]string{"npx", "bunx", "npm", "pnpm", "yarn"}, words[0]) {
		words = append(words, packageFiles(words, here)...)
	}
	folders := []string{here}
	add := func(path string) {
		real, ok := RealPath(path)
		if !ok || len(paths) >= maxPrograms || slices.Contains(paths, path) || !isInside(real) && !isInside(path) {
			return
		}
		switch info, err := os.Stat(real); {
		case err != nil:
		case info.Mode().IsRegular():
			paths = append(paths, path)
		case info.IsDir() && real != here && !slices.Contains(folders, path):
			folders = append(folders, path)
		}
	}
	for at := 0; at < len(folders) && at < 16; at++ {
		for _, name := range byDefault {
			add(filepath.Join(folders[at], name))
		}
		for _, word := range words {
			if filepath.IsAbs(word) {
				add(word)
			} else {
				add(filepath.Join(folders[at], word))
			}
		}
		if at > 0 {
			for _, name := range entryFiles {
				add(filepath.Join(folders[at], name))
			}
		}
	}
	return paths
}

// packageFiles returns the files of the npm packages that words name and that are installed in the workspace.
func packageFiles(words []string, root string) (files []string) {
	for _, word := range words {
		name := word
		if i := strings.LastIndex(name, "@"); i > 0 {
			name = name[:i]
		}
		folder := filepath.Join(root, "node_modules", name)
		if name == "" || name == "." || !strings.HasPrefix(folder, filepath.Join(root, "node_modules")+"/") {
			continue
		}
		_ = filepath.WalkDir(folder, func(path string, d fs.DirEntry, err error) error {
			if err != nil || len(files) >= maxPrograms {
				return filepath.SkipAll
			}
			if d.Type().IsRegular() {
				files = append(files, path)
			}
			return nil
		})
		files = append(files, filepath.Join(root, "node_modules", ".bin", filepath.Base(name)))
	}
	return files
}
