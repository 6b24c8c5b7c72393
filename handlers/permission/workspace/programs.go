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

// Programs returns the files of the workspace that a command line names, each with its path and its fingerprint: those
// may be its program. It reads words, not the syntax of a shell, so a file that is only an argument counts too. A file
// that a program loads by itself is not known.
func Programs(command, workspace string) (lines []string) {
	for _, f := range fingerprints(namedFiles(command, workspace)) {
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
func NamesOneOf(commands []string, a events.PermissionAsk, workspace, cwd string) int {
	about := a.About()
	touched := append(about.Patched(), about.Filepath)
	if a.Permission == "bash" {
		touched = append(namedFiles(about.Command, workspace), namedFiles(about.Command, cwd)...)
	} else if a.Permission != "edit" {
		return -1
	}
	is := map[string]bool{}
	for _, path := range touched {
		if real, ok := RealPath(path); ok {
			is[real] = true
		}
	}
	return slices.IndexFunc(commands, func(command string) bool {
		return slices.ContainsFunc(namedFiles(command, workspace), func(path string) bool {
			real, ok := RealPath(path)
			return ok && is[real]
		})
	})
}

// namedFiles returns the absolute paths of the regular files below the workspace that the words of a command name, also
// relative to the folders that it names.
func namedFiles(command, workspace string) (paths []string) {
	root, ok := RealPath(workspace)
	if !ok {
		return nil
	}
	words := strings.FieldsFunc(command, func(r rune) bool { return strings.ContainsRune(separators, r) })
	if len(words) > 0 && slices.Contains([]string{"npx", "bunx", "npm", "pnpm", "yarn"}, words[0]) {
		words = append(words, packageFiles(words, root)...)
	}
	folders := []string{root}
	add := func(path string) {
		real, ok := RealPath(path)
		if !ok || len(paths) >= maxPrograms || slices.Contains(paths, path) || !strings.HasPrefix(real+"/", root+"/") &&
			!strings.HasPrefix(path, root+"/") {
			return
		}
		switch info, err := os.Stat(real); {
		case err != nil:
		case info.Mode().IsRegular():
			paths = append(paths, path)
		case info.IsDir() && real != root && !slices.Contains(folders, path):
			folders = append(folders, path)
		}
	}
	for at := 0; at < len(folders) && at < 16; at++ {
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
