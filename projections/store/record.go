package store

import (
	"crypto/sha256"
	"math/big"
	"time"

	"pocketcoder/events"
)

// Record holds the columns that every row has. A reader that knows the rows up to a sequence finds the changes since
// then by First and Last: rows with a greater Last changed, and of those, rows with a greater First are new.
type Record struct {
	ID      string `db:"id" json:"id"`
	Created string `db:"created" json:"created"`
	Updated string `db:"updated" json:"updated"`
	First   int64  `db:"first_seq" json:"-"` // sequence of the event that created the row
	// sequence of the event that last changed the row, or a part that clients see in it
	Last    int64 `db:"last_seq" json:"-"`
	Removed bool  `db:"removed" json:"-"` // the row is hidden, and kept so that readers learn of the removal
}

func (r *Record) record() *Record { return r }

// stamp sets the time and sequence of the row's last change. Updated always moves forward, at least to at, because
// clients compare it to find the newer version of a row.
func (r *Record) stamp(at string, seq int64) {
	if at <= r.Updated {
		last, _ := time.Parse(events.TimeFormat, r.Updated) // stamp wrote it
		at = events.FormatTime(last.Add(time.Millisecond))
	}
	r.Updated, r.Last = at, seq
	if r.Created == "" {
		r.Created, r.First = at, seq
	}
}

// JSON is a column that holds JSON text; "" is null.
type JSON string

func (j JSON) MarshalJSON() ([]byte, error) {
	if j == "" {
		return []byte("null"), nil
	}
	return []byte(j), nil
}

func (j *JSON) UnmarshalJSON(b []byte) error {
	*j = JSON(b)
	return nil
}

// RecordID returns the id of the row that mirrors an object of OpenCode: 15 characters of [a-z0-9] from the SHA-256 of
// the object's id. It is the same in every replay.
func RecordID(engineID string) string {
	sum := sha256.Sum256([]byte(engineID))
	const length = 15
	text := new(big.Int).SetBytes(sum[:]).Text(36)
	return text[len(text)-length:]
}
