package mcpserver

import (
	"errors"
	"io/fs"
	"path/filepath"
	"strings"
)

// maxNames limits the files and folders of the directories whose names are compared with a secret.
const maxNames = 50_000

// checkNames returns an error if a secret is part of the path of a file or folder of the directories, as far as
// maxNames reach in each. The path is in the texts of chats, which would be stored without it.
func checkNames(directories []string, secret string) error {
	for _, directory := range directories {
		seen := 0
		err := filepath.WalkDir(directory, func(path string, _ fs.DirEntry, _ error) error {
			if seen++; seen > maxNames {
				return fs.SkipAll
			}
			if strings.Contains(path, secret) {
				return errNamed
			}
			return nil // a folder that cannot be read has no names
		})
		if err != nil {
			return err
		}
	}
	return nil
}

var errNamed = errors.New("is part of the path of a file of a project")
