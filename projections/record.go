package projections

import (
	"bytes"
	"crypto/sha256"
	"encoding/json"
	"math/big"
	"strings"
	"time"
)

// TimeFormat is how every time of a row is written: UTC, to the millisecond, sorting as text. It is PocketBase's.
const TimeFormat = "2006-01-02 15:04:05.000Z"

// Record is what every row has. What came after a sequence is told by First and Last: rows with a Last above it changed,
// and of those the ones with a First above it are new and the Removed ones are gone.
type Record struct {
	ID      string `db:"id" json:"id"`
	Created string `db:"created" json:"created"`
	Updated string `db:"updated" json:"updated"`
	First   int64  `db:"first_seq" json:"-"` // sequence of the event that made the row
	Last    int64  `db:"last_seq" json:"-"`  // and of the one that last changed what clients see of it
	Removed bool   `db:"removed" json:"-"`   // the row is not shown any more; it stays so that its end can be told
}

func (r *Record) record() *Record { return r }

// stamp notes the event at seq as the row's last. It moves updated forward to at, and always forward: clients tell a new
// version of a row from an old one by it.
func (r *Record) stamp(at string, seq int64) {
	if at <= r.Updated {
		last, _ := time.Parse(TimeFormat, r.Updated) // written by this function
		at = last.Add(time.Millisecond).Format(TimeFormat)
	}
	r.Updated, r.Last = at, seq
	if r.Created == "" {
		r.Created, r.First = at, seq
	}
}

// JSON is a column that holds JSON text; empty is null.
type JSON string

// MarshalJSON gives the text itself.
func (j JSON) MarshalJSON() ([]byte, error) {
	if j == "" {
		return []byte("null"), nil
	}
	return []byte(j), nil
}

// encoded gives v as JSON without HTML escapes.
func encoded(v any) JSON {
	var b bytes.Buffer
	enc := json.NewEncoder(&b)
	enc.SetEscapeHTML(false)
	if err := enc.Encode(v); err != nil {
		panic(err) // v is made of strings, numbers and lists of them
	}
	return JSON(strings.TrimSuffix(b.String(), "\n"))
}

// RecordID is the id of the row that mirrors an object of OpenCode's: 15 characters of [a-z0-9] out of the SHA-256 of its
// id, the same in every replay.
func RecordID(engineID string) string {
	sum := sha256.Sum256([]byte(engineID))
	const length = 15
	text := new(big.Int).SetBytes(sum[:]).Text(36)
	return text[len(text)-length:]
}

// encodedList gives a list as JSON, one that is missing as an empty one.
func encodedList(list []string) JSON {
	if list == nil {
		return "[]"
	}
	return encoded(list)
}

// compactObject gives an object without the insignificant space, one that is missing as an empty one.
func compactObject(j json.RawMessage) JSON {
	var b bytes.Buffer
	if json.Compact(&b, j) != nil || b.String() == "null" {
		return "{}"
	}
	return JSON(b.String())
}
