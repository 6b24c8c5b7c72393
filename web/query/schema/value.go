package schema

import (
	"encoding/json"
	"fmt"
	"net/mail"
	"slices"
	"strings"
	"time"
	"unicode/utf8"

	"pocketcoder/events"
)

// maxValue limits the value of a field in bytes.
const maxValue = 1 << 20

// CodeTooLarge is the code of an Invalid whose value is larger than the limit.
const CodeTooLarge = "validation_json_size_limit"

func tooLarge(what string, size int) string {
	return fmt.Sprintf("%s has %d bytes. The limit is %d bytes.", what, size, maxValue)
}

// Normalize returns a value of the field as it is stored. null becomes the empty value of the kind, but a number stays
// null, because the temperature of a model can be 0. Errors are Invalid.
func (f Field) Normalize(value json.RawMessage) (json.RawMessage, error) {
	null := string(value) == "null"
	switch f.Kind {
	case JSON:
		if len(value) > maxValue {
			return nil, Invalid{f.Name, CodeTooLarge, tooLarge("The value", len(value))}
		}
		if levels := events.Levels(value); levels > events.MaxLevels {
			return nil, NewInvalid(f.Name, "validation_json_levels_limit",
				"The value nests %d levels; at most %d are accepted.", levels, events.MaxLevels)
		}
		return value, nil
	case Bool:
		var v bool
		if !null && json.Unmarshal(value, &v) != nil {
			return nil, Invalid{f.Name, "validation_invalid_type", "Must be true or false."}
		}
		return json.Marshal(v)
	case Number:
		var v *float64
		if json.Unmarshal(value, &v) != nil {
			return nil, Invalid{f.Name, "validation_not_a_number", "Must be a number."}
		}
		return json.Marshal(v)
	}
	var v string
	if !null && json.Unmarshal(value, &v) != nil {
		return nil, Invalid{f.Name, "validation_invalid_type", "Must be a text."}
	}
	return f.normalizeText(v)
}

func (f Field) normalizeText(v string) (json.RawMessage, error) {
	if len(v) > maxValue {
		return nil, Invalid{f.Name, CodeTooLarge, tooLarge("The text", len(v))}
	}
	if !utf8.ValidString(v) || strings.ContainsRune(v, 0) {
		return nil, Invalid{f.Name, "validation_max_text_constraint", "Must be UTF-8 without NUL."}
	}
	if v == "" {
		return json.Marshal(v)
	}
	switch f.Kind {
	case Select:
		if !slices.Contains(f.Values, v) {
			return nil, Invalid{f.Name, "validation_invalid_value", "Must be one of " + strings.Join(f.Values, ", ") + "."}
		}
	case Email:
		if a, err := mail.ParseAddress(v); err != nil || a.Address != v {
			return nil, Invalid{f.Name, "validation_is_email", "Must be a valid email address."}
		}
	case Date:
		at, ok := ParseTime(v)
		if !ok {
			return nil, Invalid{f.Name, "validation_invalid_date", "Must be a valid date."}
		}
		return json.Marshal(at.UTC().Format(events.TimeFormat))
	}
	return json.Marshal(v)
}

// timeFormats are those clients send: PocketBase's, RFC 3339, and Dart's local time without a zone, taken as UTC.
var timeFormats = []string{events.TimeFormat, "2006-01-02 15:04:05Z07:00", time.RFC3339Nano, "2006-01-02T15:04:05",
	"2006-01-02 15:04:05", time.DateOnly}

// ParseTime reads a time in any of the formats that clients send.
func ParseTime(v string) (time.Time, bool) {
	for _, format := range timeFormats {
		if at, err := time.Parse(format, v); err == nil && at.Year() >= 0 && at.Year() <= 9999 {
			return at, true
		}
	}
	return time.Time{}, false
}
