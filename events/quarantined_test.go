package events_test

import (
	"testing"

	"github.com/matryer/is"

	"pocketcoder/events"
)

func TestQuarantinedNameIsDescribed(t *testing.T) {
	for want, q := range map[string]events.Quarantined{
		"file, 1 byte":                   {Kind: "file", Bytes: 1},
		"folder with 1 file, 12 bytes":   {Kind: "folder", Files: 1, Bytes: 12},
		"symbolic link":                  {Kind: "link"},
		"folder with 0 files, 0 bytes":   {Kind: "folder"},
		"folder with 20 files, 12 bytes": {Kind: "folder", Files: 20, Bytes: 12},
	} {
		is.New(t).Equal(q.Describe(), want)
	}
}
