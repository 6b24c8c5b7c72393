package client

import (
	"encoding/json"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/matryer/is"

	"pocketcoder/bridge/opencode/opencodetest"
)

func TestIDsAscendAndAreOpenCodes(t *testing.T) {
	is := is.New(t)
	now := time.Now()
	form := regexp.MustCompile(`^msg_[0-9a-f]{12}[0-9A-Za-z]{14}$`)
	last := ""
	for i := range 10_000 {
		id := NewID("msg", now.Add(time.Duration(-i)*time.Second)) // a clock that goes back
		is.True(form.MatchString(id))
		is.True(id > last)
		last = id
	}
}

func TestAnIDIsFoundByItsName(t *testing.T) {
	is := is.New(t)
	now := time.Now()
	id, again := NewIDOf("msg", "m1", now), NewIDOf("msg", "m1", now)
	is.True(regexp.MustCompile(`^msg_[0-9a-f]{12}[0-9A-Za-z]{14}$`).MatchString(id))
	is.True(id < again)
	is.True(strings.HasSuffix(id, TailOf("m1")) && strings.HasSuffix(again, TailOf("m1")))
	is.True(TailOf("m1") != TailOf("m2"))
}

// The hex digits of a recorded message id are those NewID makes of the time the message was created.
func TestIDsMatchRecordedOnes(t *testing.T) {
	is := is.New(t)
	compared := 0
	for _, name := range opencodetest.RecordingNames(t) {
		for _, data := range opencodetest.RecordedEvents(t, name) {
			e, ok, err := ParseEvent(data)
			is.NoErr(err)
			if !ok || e.Type != "message.updated" {
				continue
			}
			var p struct {
				Info struct {
					ID   string
					Time struct{ Created int64 }
				}
			}
			is.NoErr(json.Unmarshal(e.Properties, &p))
			want, err := strconv.ParseUint(p.Info.ID[4:16], 16, 64)
			is.NoErr(err)
			lastID.n = 0
			made, err := strconv.ParseUint(NewID("msg", time.UnixMilli(p.Info.Time.Created))[4:16], 16, 64)
			is.NoErr(err)
			apart := int64(want>>12) - int64(made>>12) // ms between making the id and taking the time
			is.True(-1000 < apart && apart < 1000)
			compared++
		}
	}
	is.True(compared > 10)
}
