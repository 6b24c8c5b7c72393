package projections

import (
	"context"
	"fmt"
	"strings"

	"github.com/pocketbase/dbx"

	"pocketcoder/events"
	"pocketcoder/projections/store"
)

// Config is a configuration record of any collection: ai_agents, tool_permissions, ssh_keys, …
type Config struct {
	store.Record            // the id is collection/record
	Collection   string     `db:"collection" json:"collection"`
	RecordID     string     `db:"record" json:"record"` // the record's id in its collection
	Fields       store.JSON `db:"fields" json:"fields"` // object
}

// maxLevels is how many levels of arrays and objects SQLite's JSON functions accept. They fail on a whole object with
// more, and with it fails each query over its collection.
const maxLevels = 1000

func updateConfig(t *tables, e events.Event, body any) error {
	c, found := t.config.Get(e.Subject.Collection + "/" + e.Subject.ID)
	switch b := body.(type) {
	case events.Saved:
		fields := compactObject(b.Fields)
		if !strings.HasPrefix(string(fields), "{") {
			return fmt.Errorf("the fields of %s are not an object", c.ID)
		}
		if c.Removed { // what is saved after its end is a new record
			c.Record = store.Record{ID: c.ID, Updated: c.Updated}
		}
		c.Collection, c.RecordID, c.Fields = e.Subject.Collection, e.Subject.ID,
			store.JSON(events.LimitLevels([]byte(fields), maxLevels,
				"The value nests more than 1,000 levels. Only the log holds it."))
		t.config.Put(c)
	case events.Deleted:
		if !found {
			return fmt.Errorf("%s was never saved", c.ID)
		}
		c.Removed = true
		t.config.Put(c)
	case events.ScheduleFired, events.ScheduleSkipped:
		addScheduleRun(t.scheduleRuns, e, body, t.tx.EventTime())
		t.config.Touch(c.ID) // its record shows the last run
	}
	return nil
}

// Config lists the records of a collection, oldest first.
func (m *Model) Config(ctx context.Context, collection string) ([]Config, error) {
	return store.List[Config](ctx, m.Model, "config records",
		"SELECT * FROM config WHERE collection={:collection} AND NOT removed ORDER BY first_seq",
		dbx.Params{"collection": collection})
}

// ConfigRecord returns a record, and whether it exists.
func (m *Model) ConfigRecord(ctx context.Context, collection, id string) (Config, bool, error) {
	return store.First[Config](ctx, m.Model, "config record "+id,
		"SELECT * FROM config WHERE collection={:collection} AND record={:record} AND NOT removed",
		dbx.Params{"collection": collection, "record": id})
}
