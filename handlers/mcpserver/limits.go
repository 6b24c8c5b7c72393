package mcpserver

import (
	"bytes"
	"encoding/json"
	"fmt"
	"time"

	"pocketcoder/handlers/record"
	"pocketcoder/sandbox/limit"
	"pocketcoder/sandbox/wire"
)

// Limits bound the command of a server where they are lower than the limits of every command. An empty field is the
// limit of every command.
type Limits struct {
	Memory    string `json:"memory,omitempty"`    // such as 512MiB
	Processes int64  `json:"processes,omitempty"` // including threads
	CPUTime   string `json:"cpu_time,omitempty"`  // processor time, such as 30m
}

// UnmarshalJSON refuses other fields, because a person would believe that they bound something.
func (l *Limits) UnmarshalJSON(body []byte) error {
	type plain Limits
	d := json.NewDecoder(bytes.NewReader(body))
	d.DisallowUnknownFields()
	return d.Decode((*plain)(l))
}

// Lines returns one text for each limit.
func (l Limits) Lines() (lines []string) {
	if l.Memory != "" {
		lines = append(lines, "memory "+l.Memory)
	}
	if l.Processes != 0 {
		lines = append(lines, fmt.Sprint("processes ", l.Processes))
	}
	if l.CPUTime != "" {
		lines = append(lines, "cpu-time "+l.CPUTime)
	}
	return lines
}

// Parse returns the limits for the sandbox.
func (l Limits) Parse() (parsed wire.Limits, err error) {
	parsed.Processes = l.Processes
	if l.Processes < 0 {
		return parsed, record.Invalid("limits", "The limit processes must be a number above 0.")
	}
	if l.Memory != "" {
		size, err := limit.ParseSize(l.Memory)
		if err != nil || (limit.Limits{Memory: size}).Validate() != nil || size == 0 {
			return parsed, record.Invalid("limits", "The limit memory must be at least 1MiB, such as 512MiB, not %q.", l.Memory)
		}
		parsed.Memory = int64(size)
	}
	if l.CPUTime != "" {
		d, err := time.ParseDuration(l.CPUTime)
		if err != nil || d < time.Second {
			return parsed, record.Invalid("limits", "The limit cpu_time must be at least 1s, such as 30m, not %q.", l.CPUTime)
		}
		parsed.CPUTimeMS = d.Milliseconds()
	}
	return parsed, nil
}
