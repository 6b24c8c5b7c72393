package pages_test

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/chromedp/chromedp"

	"pocketcoder/ops/expect"
	"pocketcoder/web/webtest"
)

// BenchmarkPainted measures how long a fragment of an answer takes from its append until Chromium has painted it, and
// how many bytes the stream of an answer of 200 fragments has.
func BenchmarkPainted(b *testing.B) {
	s := webtest.NewSystem(b)
	_, token := s.User(b, "ada", "user")
	chat := s.ChatWithAnswer(b, token)
	s.Assistant(b, chat, "msg_1", "")
	s.TextPart(b, chat, "msg_1", "prt_1", "", "")
	page := openPage(b, s, "/chats/"+chat).ctx
	const painted = `new Promise((done) => {
		const times = [];
		new MutationObserver(() => {
			const sent = Number(document.querySelector(".writing").textContent.trim().split(" ").at(-1));
			requestAnimationFrame(() => setTimeout(() => {
				times.push(Date.now() - sent);
				if (times.length === 200) done(JSON.stringify(times));
			}));
		}).observe(document.querySelector(".writing"), { childList: true, characterData: true, subtree: true });
		document.body.dataset.watching = "true";
	})`
	for b.Loop() {
		result := make(chan string, 1)
		go func() {
			times, err := chromedp.Run(page, chromedp.Evaluate[string](painted, chromedp.EvalAwaitPromise))
			if err != nil {
				times = err.Error()
			}
			result <- times
		}()
		expect.Eventually(b, "the page watches", func() bool {
			watching, err := chromedp.Run(page, chromedp.Evaluate[bool](`document.body.dataset.watching === "true"`))
			return err == nil && watching
		})
		for range 220 { // some may be painted together
			s.Fragment(b, chat, "msg_1", "prt_1", strconv.FormatInt(time.Now().UnixMilli(), 10)+" ")
			time.Sleep(20 * time.Millisecond) // the pace of a model
		}
		var times []float64
		text := <-result
		if err := json.Unmarshal([]byte(text), &times); err != nil {
			b.Fatalf("%v: %s", err, text)
		}
		slices.Sort(times)
		b.ReportMetric(times[len(times)/2], "p50-ms")
		b.ReportMetric(times[len(times)*99/100], "p99-ms")
	}
}

// BenchmarkOpenPages measures what 200 open pages of a chat cost while an answer of 400 fragments is written in 10 s:
// the processor time of the server and of these clients together, what the process has in memory, and the bytes of the
// answer in one stream.
func BenchmarkOpenPages(b *testing.B) {
	s := webtest.NewSystem(b)
	s.Web.Site.LivePages = 400 // those of the iteration before may not have ended
	_, token := s.User(b, "ada", "user")
	chat := s.ChatWithAnswer(b, token)
	s.Assistant(b, chat, "msg_1", "")
	s.TextPart(b, chat, "msg_1", "prt_1", "", "")
	browser := loggedIn(b, s, "ada")
	page := browser.visit(b, "/chats/"+chat)
	_, live, _ := strings.Cut(page.body, `data-live="`)
	live, _, _ = strings.Cut(live, `"`)
	live = strings.ReplaceAll(live, "&amp;", "&")
	for b.Loop() {
		ctx, cancel := context.WithCancel(b.Context())
		var streams sync.WaitGroup
		var bytes atomic.Int64
		for range 200 {
			r, err := http.NewRequestWithContext(ctx, "GET", browser.url+live, nil)
			webtest.Check(b, err)
			resp, err := browser.Client.Do(r)
			webtest.Check(b, err)
			streams.Go(func() {
				defer resp.Body.Close()
				n, _ := io.Copy(io.Discard, resp.Body) // it ends when the client goes away
				bytes.Add(n)
			})
		}
		before := processorTime(b)
		for i := range 400 {
			s.Fragment(b, chat, "msg_1", "prt_1", fmt.Sprintf("word%d ", i))
			time.Sleep(25 * time.Millisecond) // the pace of a model
		}
		b.ReportMetric(float64(processorTime(b)-before)/float64(10*time.Second)*100, "cpu-percent")
		b.ReportMetric(residentMiB(b), "resident-MiB")
		cancel()
		streams.Wait()
		b.ReportMetric(float64(bytes.Load())/200/1024, "stream-KiB")
	}
}

// processorTime is what this process has used.
func processorTime(b *testing.B) time.Duration {
	var u syscall.Rusage
	webtest.Check(b, syscall.Getrusage(syscall.RUSAGE_SELF, &u))
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

// residentMiB is what this process has in memory.
func residentMiB(b *testing.B) float64 {
	status := expect.ReadFile(b, "/proc/self/status")
	_, rest, _ := strings.Cut(status, "VmRSS:")
	kib, err := strconv.ParseFloat(strings.Fields(rest)[0], 64)
	webtest.Check(b, err)
	return kib / 1024
}
