package mcpserver

import (
	"errors"
	"io/fs"
	"path/filepath"
	"strings"
)

// maxNames limits the files and folders of a workspace whose names are compared with a secret.
const maxNames = 50_000

// checkNames returns an error if a secret is part of the path of a file or folder of the workspace, as far as maxNames
// reach. The path is in the texts of chats, which would be stored without it. An empty workspace has no names.
func checkNames(workspace, secret string) error {
	if workspace == "" {
		return nil
	}
	seen := 0
	return filepath.WalkDir(workspace, func(path string, _ fs.DirEntry, err error) error {
		if seen++; seen > maxNames {
			return fs.SkipAll
		}
		if strings.Contains(path, secret) {
			return errNamed
		}
		return nil // a folder that cannot be read has no names
	})
}

var errNamed = errors.New("is part of the path of a file of the workspace")
