package render

import (
	"fmt"
	"testing"

	"github.com/matryer/is"

	"pocketcoder/cmd/cmdtest"
	"pocketcoder/events"
)

func TestARefusalNamesTheCommandThatLeavesFilesOut(t *testing.T) {
	const hint = "(if a file is the cause, /omit leaves it out of the next message)\n"
	for status, about := range map[int]string{400: hint, 401: ""} {
		is := is.New(t)
		failed, err := events.NewOpenCode("chat1", "local", "evt_1", -1, events.OpenCode{Type: "session.error",
			Properties: fmt.Appendf(nil, `{"sessionID":"ses_1","error":{"name":"APIError","data":{"message":"no picture","statusCode":%d}}}`, status)})
		is.NoErr(err)
		got := rendered([]events.Event{
			cmdtest.Own(t, 1, "user:u", events.ChatCreated{Title: "a"}),
			cmdtest.Own(t, 2, "engine:local", events.SessionBound{Session: "ses_1"}),
			cmdtest.Numbered(failed, 3),
			cmdtest.Own(t, 4, "user:u", events.OmissionRequested{Files: []events.OmittedFile{{Name: "a\x1b.png"}, {Name: "b.png"}}}),
		})
		is.Equal(got, "chat chat1: a\nerror: no picture\n"+about+"left out: a␛.png\nleft out: b.png\n")
	}
}
