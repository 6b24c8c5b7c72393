package client

import (
	"fmt"
	"testing"

	"github.com/matryer/is"
)

func TestHistoryIsInOrderOfArrival(t *testing.T) {
	is := is.New(t)
	// The plugin returns the events session by session.
	c := answering(t, 200, `[
		{"id":"evt_1","aggregate_id":"ses_a","seq":0,"type":"session.created.1","data":{"n":1}},
		{"id":"evt_4","aggregate_id":"ses_b","seq":0,"type":"session.created.1","data":{}},
		{"id":"evt_2","aggregate_id":"ses_a","seq":1,"type":"message.updated.1","data":{}},
		{"id":"evt_3","aggregate_id":"ses_a","seq":2,"type":"message.part.updated.12","data":{}},
		{"id":"evt_0","aggregate_id":"ses_b","seq":1,"type":"session.updated.1","data":{}}]`)
	got, err := c.historyPage(t.Context(), nil, nil)
	is.NoErr(err)
	var order []string
	for _, e := range got {
		order = append(order, fmt.Sprint(e.ID, " ", e.Session, " ", e.Seq, " ", e.Type))
	}
	is.Equal(order, []string{
		"evt_1 ses_a 0 session.created", "evt_2 ses_a 1 message.updated", "evt_3 ses_a 2 message.part.updated",
		"evt_4 ses_b 0 session.created", "evt_0 ses_b 1 session.updated", // the clock went back: behind those it follows
	})
	is.Equal(string(got[0].Properties), `{"n":1}`)
}

func TestAHistoryThatIsNoneIsAnError(t *testing.T) {
	is := is.New(t)
	for _, body := range []string{`{}`, ``, `[{"id":1}]`, `[{"id":"evt_1"}`} {
		_, err := answering(t, 200, body).historyPage(t.Context(), nil, nil)
		is.True(err != nil)
	}
}
