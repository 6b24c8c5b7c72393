package wire

import (
	"errors"
	"fmt"
	"path"
)

// Quarantined is a protected name that appeared in the top directory of the workspace while a command ran, and that
// the worker has moved out of the workspace. Keep moves it back, and Dismiss deletes it.
type Quarantined struct {
	ID    string         `json:"id"`   // one token; Request.Item of Keep and Dismiss
	Name  string         `json:"name"` // in the top directory, such as .envrc
	Kind  QuarantineKind `json:"kind"`
	Bytes int64          `json:"bytes"` // of a file, or of all files of a folder
	Files int            `json:"files"` // of a folder, at any depth
	// first bytes of a text file, the target of a link, or the files of a folder with their sizes, one a line. At most
	// MaxQuarantineText bytes. Empty if the file is no text
	Text string `json:"text,omitempty"`
	Cut  bool   `json:"cut,omitempty"` // there is more than Text holds
}

type QuarantineKind string

const (
	FileKind   QuarantineKind = "file"
	FolderKind QuarantineKind = "folder"
	LinkKind   QuarantineKind = "link" // a symbolic link
)

// Limits of Result.Quarantined. All texts of one Result fit into a message of NATS.
const (
	MaxQuarantineText  = 16 << 10
	MaxQuarantineTexts = 128 << 10 // bytes of all texts of a Result; JSON can take six times as many
	maxQuarantined     = 256
)

func validateQuarantined(list []Quarantined) error {
	if len(list) > maxQuarantined {
		return errors.New("too many names are quarantined")
	}
	texts := 0
	for _, q := range list {
		switch q.Kind {
		case FileKind, FolderKind, LinkKind:
		default:
			return fmt.Errorf("kind %q of a quarantined name is unknown", q.Kind)
		}
		texts += len(q.Text)
		switch {
		case !IsToken(q.ID):
			return errors.New("id of a quarantined name is not a token")
		case !isName(q.Name):
			return errors.New("a quarantined name is not the name of a file")
		case q.Bytes < 0 || q.Files < 0:
			return fmt.Errorf("size of %s is negative", q.Name)
		case len(q.Text) > MaxQuarantineText || texts > MaxQuarantineTexts || !isText(q.Text):
			return fmt.Errorf("text of %s is not a text of at most %d bytes", q.Name, MaxQuarantineText)
		}
	}
	return nil
}

// isName reports whether s is the name of a file in a directory, on one line.
func isName(s string) bool {
	return s != ".." && len(s) <= 255 && path.Base(s) == s && isPrintable(s) && s != "." && s != "/"
}
