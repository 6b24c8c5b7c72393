package client

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/matryer/is"
)

func TestHistoryIsInOrderOfArrival(t *testing.T) {
	is := is.New(t)
	// OpenCode sorts by sequence number alone, whatever the session.
	c := answering(t, 200, `[
		{"id":"evt_1","aggregate_id":"ses_a","seq":0,"type":"session.created.1","data":{"n":1}},
		{"id":"evt_4","aggregate_id":"ses_b","seq":0,"type":"session.created.1","data":{}},
		{"id":"evt_2","aggregate_id":"ses_a","seq":1,"type":"message.updated.1","data":{}},
		{"id":"evt_3","aggregate_id":"ses_a","seq":2,"type":"message.part.updated.12","data":{}},
		{"id":"evt_0","aggregate_id":"ses_b","seq":1,"type":"session.updated.1","data":{}}]`)
	got, err := c.History(t.Context(), nil)
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

func TestAHistoryOfManySessionsStaysWithinTheServersLimit(t *testing.T) {
	is := is.New(t)
	var named map[string]int64
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		json.NewDecoder(r.Body).Decode(&named)
		w.Write([]byte(`[{"id":"evt_1","aggregate_id":"ses_1","seq":1,"type":"x.1","data":{}},
			{"id":"evt_2","aggregate_id":"ses_1","seq":2,"type":"x.1","data":{}}]`))
	}))
	defer s.Close()
	known := map[string]int64{}
	for i := range int64(3000) {
		known[fmt.Sprintf("ses_%d", i)] = i
	}
	got, err := New(s.URL, "").History(t.Context(), known)
	is.NoErr(err)
	is.Equal(len(named), historyNames)
	is.Equal(named["ses_2999"], int64(2999)) // the longest are named
	is.Equal(len(got), 1)                    // ses_1 was not, and what is held of it is left out here
	is.Equal(got[0].Seq, int64(2))
	is.Equal(len(known), 3000)
}

func TestAHistoryThatIsNoneIsAnError(t *testing.T) {
	is := is.New(t)
	for _, body := range []string{`{}`, ``, `[{"id":1}]`, `[{"id":"evt_1"}`} {
		_, err := answering(t, 200, body).History(t.Context(), nil)
		is.True(err != nil)
	}
}
