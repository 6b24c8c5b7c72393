package cli

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
)

// Edit opens a text in $VISUAL or $EDITOR, as a file with a name, and returns the text that the person saved. It keeps
// the file at path, so that the text is not lost if it is refused. The caller removes the directory of path.
func Edit(ctx context.Context, env Environment, name, text string) (edited, path string, err error) {
	editor := cmp.Or(env.Getenv("VISUAL"), env.Getenv("EDITOR"), "vi")
	dir, err := os.MkdirTemp("", "pocketcoder-edit-")
	if err != nil {
		return "", "", err
	}
	path = filepath.Join(dir, name)
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		return "", "", err
	}
	cmd := exec.CommandContext(ctx, "sh", "-c", editor+` "$1"`, "sh", path)
	cmd.Stdin, cmd.Stdout, cmd.Stderr = env.Stdin, env.Stdout, env.Stderr
	if err := cmd.Run(); err != nil {
		return "", "", errors.Join(fmt.Errorf("run the editor %q: %w", editor, err), os.RemoveAll(dir))
	}
	body, err := os.ReadFile(path)
	return string(body), path, err
}
