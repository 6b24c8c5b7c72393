package projections

import (
	"bytes"
	"encoding/json"
	"strings"

	"pocketcoder/projections/store"
)

// encoded returns v as JSON without HTML escapes.
func encoded(v any) store.JSON {
	var b bytes.Buffer
	enc := json.NewEncoder(&b)
	enc.SetEscapeHTML(false)
	if err := enc.Encode(v); err != nil {
		panic(err) // v consists of strings, numbers and lists of them
	}
	return store.JSON(strings.TrimSuffix(b.String(), "\n"))
}

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
