package projections

import (
	"bytes"
	"encoding/json"

	"pocketcoder/events"
	"pocketcoder/projections/store"
)

func encoded(v any) store.JSON { return store.JSON(events.MustEncode(v)) }

// encodedList returns a list as JSON. A nil list is an empty one.
func encodedList(list []string) store.JSON {
	if list == nil {
		return "[]"
	}
	return encoded(list)
}

// compactObject returns an object without insignificant space. A missing object is an empty one.
func compactObject(j json.RawMessage) store.JSON {
	var b bytes.Buffer
	if json.Compact(&b, j) != nil || b.String() == "null" {
		return "{}"
	}
	return store.JSON(b.String())
}
