package workspace

import (
	"errors"
	"os"
	"path/filepath"
	"regexp"
	"strings"
)

// Git runs programs that the configuration of a repository names, and hooks, also for commands that only read. A
// workspace may come from an archive with its .git. So a git command asks unless every setting of its repository is
// known to run nothing.

// harmlessSettings are the settings of git that make it run nothing, by section. The text in quotes after a section's
// name may be anything.
var harmlessSettings = map[string]string{
	"core": " repositoryformatversion filemode bare logallrefupdates ignorecase precomposeunicode symlinks autocrlf eol safecrlf quotepath abbrev ",
	"user": " name email ", "remote": " url pushurl fetch tagopt prune ", "branch": " remote merge rebase description pushremote ",
	"init": " defaultbranch ", "pull": " rebase ff ", "push": " default followtags autosetupremote ", "fetch": " prune ", "color": " ui ",
	"submodule": " url active ", "merge": " conflictstyle ", "rebase": " autostash autosquash ", "lfs": " repositoryformatversion ",
	"commit": " gpgsign template ", "tag": " gpgsign sort ", "gc": " auto autodetach ", "rerere": " enabled ", "diff": " renames algorithm colormoved ",
	"status": " showuntrackedfiles branch short ", "log": " date decorate ",
}

// The lines of a git configuration that are read. Every other line, such as one that goes on in the next, counts as
// unknown.
var (
	gitSection = regexp.MustCompile(`^\[([A-Za-z]+)(?: "[^"\\]*")?\]\s*$`)
	gitSetting = regexp.MustCompile(`^\s*([A-Za-z][A-Za-z0-9-]*)\s*(?:=[^\\]*)?$`)
	gitNothing = regexp.MustCompile(`^\s*(?:[#;].*)?$`)
)

// isHarmlessConfig reports whether all settings of a git configuration are known to run nothing.
func isHarmlessConfig(body []byte) bool {
	settings := ""
	for _, line := range strings.Split(strings.ReplaceAll(string(body), "\r\n", "\n"), "\n") {
		if section := gitSection.FindStringSubmatch(line); section != nil {
			settings = harmlessSettings[strings.ToLower(section[1])]
			continue
		}
		setting := gitSetting.FindStringSubmatch(line)
		switch {
		case gitNothing.MatchString(line):
		case setting == nil || !strings.Contains(settings, " "+strings.ToLower(setting[1])+" "):
			return false
		}
	}
	return true
}

// runsPrograms reports whether git may run a program that a git directory names. Of the hooks git runs
// post-index-change alone when it only looks.
func runsPrograms(dir string) bool {
	config, ok := readRegular(filepath.Join(dir, "config"), 64<<10)
	if !ok && !isMissing(filepath.Join(dir, "config")) || !isHarmlessConfig(config) {
		return true
	}
	for _, name := range []string{"config.worktree", "hooks/post-index-change"} {
		if !isMissing(filepath.Join(dir, name)) {
			return true
		}
	}
	return false
}

// RepositoryRunsPrograms reports whether git may run a program that the repository of a directory names. It looks for
// the repository in the directory and those above, up to root. Both paths must have their symlinks resolved.
func RepositoryRunsPrograms(root, directory string) bool {
	for ; directory == root || strings.HasPrefix(directory, root+"/"); directory = filepath.Dir(directory) {
		git := filepath.Join(directory, ".git")
		info, err := os.Lstat(git)
		switch {
		case errors.Is(err, os.ErrNotExist):
		case err != nil:
			return true
		case info.IsDir():
			return runsPrograms(git)
		default:
			return fileRunsPrograms(git)
		}
	}
	return false
}

// fileRunsPrograms is runsPrograms for a .git that is a file.
func fileRunsPrograms(file string) bool {
	folder, err := filepath.EvalSymlinks(filepath.Dir(file))
	dir, ok := gitDirectory(file)
	if err != nil || !ok {
		return true
	}
	inside := dir == folder || strings.HasPrefix(dir, folder+"/") // what lies in the workspace is not protected there
	return inside || runsPrograms(dir)
}

// gitDirectory returns the directory with the configuration that git obeys, for a .git that is a file, as those of
// worktrees and submodules are. The file holds the path of the git directory, which may name another one for what
// worktrees share.
func gitDirectory(file string) (dir string, ok bool) {
	dir, ok = pathIn(file, "gitdir: ")
	if ok && !isMissing(filepath.Join(dir, "commondir")) {
		return pathIn(filepath.Join(dir, "commondir"), "")
	}
	return dir, ok
}

// holdsSecrets reports whether the configuration of a .git, which is a folder or a file, may hold a secret.
func holdsSecrets(git string, folder bool) bool {
	if ok := true; !folder {
		if git, ok = gitDirectory(git); !ok {
			return true
		}
	}
	config := filepath.Join(git, "config")
	return !isMissing(config) && !plainGitConfig(config)
}

// pathIn returns where the path in a file of git leads, from the file's folder. ok is false for a path that leads
// through /proc, where another process may find something else.
func pathIn(file, prefix string) (real string, ok bool) {
	body, ok := readRegular(file, 4<<10)
	text, found := strings.CutPrefix(strings.TrimRight(string(body), "\r\n"), prefix)
	if !ok || !found {
		return "", false
	}
	if !filepath.IsAbs(text) {
		text = filepath.Join(filepath.Dir(file), text)
	}
	return RealPath(text)
}

// isMissing reports whether there is nothing at a path.
func isMissing(path string) bool {
	_, err := os.Lstat(path)
	return errors.Is(err, os.ErrNotExist)
}
