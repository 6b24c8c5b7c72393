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

func TestNoteSaysWhatOfTheContentIsNotShown(t *testing.T) {
	for want, k := range map[string]events.KeepMetadata{
		"":                               {Text: "x", Quarantined: events.Quarantined{Kind: "file", Bytes: 1}},
		"Only its beginning is shown.":   {Text: "x", Cut: true, Quarantined: events.Quarantined{Kind: "file", Bytes: 99}},
		"Its content is not shown here.": {Cut: true, Quarantined: events.Quarantined{Kind: "file", Bytes: 1}}, // a text
		"Its content is not text, and is not shown.": {Quarantined: events.Quarantined{Kind: "file", Bytes: 1}},
		"The contents of its files are in the quarantine.": {Text: "a 1\n",
			Quarantined: events.Quarantined{Kind: "folder", Bytes: 1, Files: 1}},
		"Only its beginning is shown. The contents of its files are in the quarantine.": {Text: "a 1\n", Cut: true,
			Quarantined: events.Quarantined{Kind: "folder", Bytes: 2, Files: 2}},
	} {
		is.New(t).Equal(k.Note(), want)
	}
	is.New(t).Equal(events.KeepMetadata{Quarantined: events.Quarantined{Kind: "folder"}}.Note(), "")
}
