package projections

import (
	"cmp"
	"encoding/json"
)

// ErrorOf returns the name and the message of an error payload. OpenCode stores {name, data: {message}}, and
// PocketCoder {name, message}. If the payload has no message, it returns the name as the message.
func ErrorOf(payload string) (name, message string) {
	var e struct {
		Name, Message string
		Data          struct{ Message string }
	}
	_ = json.Unmarshal([]byte(payload), &e)
	return e.Name, cmp.Or(e.Data.Message, e.Message, e.Name)
}
