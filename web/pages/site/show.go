package site

import (
	"slices"
	"time"

	"pocketcoder/events"
	"pocketcoder/web/pages/visible"
)

func ChatTitle(title string) string {
	if line := visible.Line(title); line != "" {
		return line
	}
	return "Untitled"
}

// machineTime returns the time of a row as HTML wants it, "" for none.
func machineTime(at string) string {
	t, err := time.Parse(events.TimeFormat, at)
	if err != nil {
		return ""
	}
	return t.UTC().Format(time.RFC3339)
}

// humanTime returns the time of a row to the minute, in UTC.
func humanTime(at string) string {
	t, err := time.Parse(events.TimeFormat, at)
	if err != nil {
		return ""
	}
	return t.UTC().Format("2006-01-02 15:04") + " UTC"
}

// Option is a value that a person can select.
type Option struct{ Value, Text string }

func contains(all []Option, value string) bool {
	return slices.ContainsFunc(all, func(o Option) bool { return o.Value == value })
}
