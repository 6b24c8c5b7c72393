package projections

import (
	"context"
	"fmt"
	"strings"

	"github.com/pocketbase/dbx"

	"pocketcoder/events"
)

// Config is a record that people or agents keep, of any collection: ai_agents, tool_permissions, ssh_keys, …
type Config struct {
	Record            // the id is collection/record
	Collection string `db:"collection" json:"collection"`
	RecordID   string `db:"record" json:"record"` // the record's id in its collection
	Fields     JSON   `db:"fields" json:"fields"` // object
}

type config struct{}

func (config) Name() string        { return "config" }
func (config) Schema() string      { return schema("config") }
func (config) Scope() events.Scope { return events.ScopeConfig }

func (config) Apply(tx *Tx, e events.Event, body any) error {
	c, found := tx.config.get(e.Subject.Collection + "/" + e.Subject.ID)
	switch b := body.(type) {
	case events.Saved:
		fields := compactObject(b.Fields)
		if !strings.HasPrefix(string(fields), "{") {
			return fmt.Errorf("the fields of %s are not an object", c.ID)
		}
		if c.Removed { // what is saved after its end is a new record
			c.Record = Record{ID: c.ID, Updated: c.Updated}
		}
		c.Collection, c.RecordID, c.Fields = e.Subject.Collection, e.Subject.ID, fields
		tx.config.put(c)
	case events.Deleted:
		if !found {
			return fmt.Errorf("%s was never saved", c.ID)
		}
		c.Removed = true
		tx.config.put(c)
	}
	return nil
}

// Config lists the records of a collection, oldest first.
func (m *Model) Config(ctx context.Context, collection string) ([]Config, error) {
	return list[Config](ctx, m, "config records", "SELECT * FROM config WHERE collection={:collection} AND NOT removed ORDER BY first_seq", dbx.Params{"collection": collection})
}
