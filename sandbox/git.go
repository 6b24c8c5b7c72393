package sandbox

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"
)

// gitIdentity makes a directory with the file that git reads in commands instead of one in HOME: who the person is, and
// nothing else. HOME is written by commands and shared by those of all chats, and what a git configuration says there would
// be run by the next `git status`, which nobody is asked about. The name is the person's own where git knows it.
func gitIdentity() (dir string, err error) {
	name, email := gitValue("user.name"), gitValue("user.email")
	if name == "" {
		name = userName()
	}
	if email == "" {
		email = userName() + "@localhost"
	}
	dir, err = os.MkdirTemp("", "pocketcoder-git-")
	if err != nil {
		return "", fmt.Errorf("make git configuration: %w", err)
	}
	quote := strings.NewReplacer(`\`, `\\`, `"`, `\"`, "\n", " ")
	text := fmt.Sprintf("[user]\n\tname = \"%s\"\n\temail = \"%s\"\n", quote.Replace(name), quote.Replace(email))
	if err := os.WriteFile(gitConfig(dir), []byte(text), 0o644); err != nil {
		os.RemoveAll(dir)
		return "", fmt.Errorf("make git configuration: %w", err)
	}
	return dir, nil
}

func gitConfig(dir string) string { return filepath.Join(dir, "config") }

// gitValue asks the person's git, where no repository has a say. Without git or an answer it is empty.
func gitValue(key string) string {
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Second)
	defer cancel()
	cmd := exec.CommandContext(ctx, "git", "config", "--global", "--get", key)
	cmd.Dir = "/"
	out, err := cmd.Output()
	if err != nil {
		return ""
	}
	return strings.TrimSpace(string(out))
}
