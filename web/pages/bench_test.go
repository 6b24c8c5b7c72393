package pages_test

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
	"time"

	"pocketcoder/web/webtest"
)

// BenchmarkLongChat measures the first view of a chat of 3,000 messages: how long the server takes, and how many bytes
// it sends.
func BenchmarkLongChat(b *testing.B) {
	s := webtest.NewSystem(b)
	_, token := s.User(b, "ada", "user")
	chat := s.ChatWithAnswer(b, token)
	for i := range 1500 {
		id := fmt.Sprintf("msg_%05d", 2*i)
		s.AppendOpenCode(b, chat, "message.updated", `{"sessionID":"ses_own","info":{"id":"`+id+
			`","sessionID":"ses_own","role":"user","time":{"created":1}}}`)
		s.TextPart(b, chat, id, "prt_"+id, fmt.Sprintf("Please look at file %d, and say what it does.", i), "")
		answer := fmt.Sprintf("msg_%05d", 2*i+1)
		s.AppendOpenCode(b, chat, "message.updated", `{"sessionID":"ses_own","info":{"id":"`+answer+
			`","sessionID":"ses_own","role":"assistant","parentID":"`+id+
			`","time":{"created":1,"completed":2},"finish":"stop"}}`)
		text := fmt.Sprintf("File %d has **%d** functions.\n\n```go\nfunc f%d() int { return %d } // %s\n```\n", i, i%7, i,
			i*i, strings.Repeat("words ", i%20))
		s.TextPart(b, chat, answer, "prt_"+answer, text, `,"time":{"start":1,"end":2}`)
	}
	handler := s.Web.Handler()
	var took []time.Duration
	size := 0
	for b.Loop() {
		r := httptest.NewRequest("GET", "/chats/"+chat, nil)
		r.Host = "localhost"
		r.Header.Set("Accept-Encoding", "gzip")
		r.AddCookie(&http.Cookie{Name: "pocketcoder", Value: token})
		w := httptest.NewRecorder()
		begun := time.Now()
		handler.ServeHTTP(w, r)
		took = append(took, time.Since(begun))
		if size = w.Body.Len(); w.Code != http.StatusOK || size < 2000 {
			b.Fatalf("%d, %d bytes", w.Code, size)
		}
	}
	slices.Sort(took)
	b.ReportMetric(float64(took[len(took)/2])/float64(time.Millisecond), "p50-ms")
	b.ReportMetric(float64(size)/1024, "KiB")
}
