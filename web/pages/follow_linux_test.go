package pages_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/chromedp/chromedp"
	"github.com/matryer/is"

	"pocketcoder/events"
	"pocketcoder/events/log"
	"pocketcoder/ops/expect"
	"pocketcoder/web/chromiumtest"
	"pocketcoder/web/webtest"
)

func TestAPageFollowsItsChat(t *testing.T) {
	expect.Slow(t, "starts Chromium")
	t.Parallel()
	is := is.New(t)
	s := webtest.NewSystem(t)
	_, token := s.User(t, "ada", "user")
	chat := s.ChatWithAnswer(t, token)
	s.AppendOpenCode(t, chat, "session.status", `{"sessionID":"ses_own","status":{"type":"busy"}}`)
	s.Assistant(t, chat, "msg_1", "")
	s.TextPart(t, chat, "msg_1", "prt_1", "", "")
	n := newNetwork(t, newBrowser(t, s).url)
	d := newDevice(t, n.URL)
	chromiumtest.LogIn(t, d.ctx, d.url, s.Login(t, "ada"))
	d.visit("/chats/" + chat)

	// the text of a person survives what is written meanwhile
	text := ""
	write := func(from, to int) {
		t.Helper()
		for i := from; i < to; i++ {
			text += fmt.Sprintf("t%d ", i)
			s.Fragment(t, chat, "msg_1", "prt_1", fmt.Sprintf("t%d ", i))
		}
	}
	write(0, 10)
	d.reads("t9 ")
	d.fill("#text", "my own words")
	d.evaluate(`document.querySelector("#text").setSelectionRange(3, 6)`)
	write(10, 500)
	d.reads("t499 ")
	is.Equal(d.evaluate(`((t) => [t === document.activeElement, t.value, t.selectionStart, t.selectionEnd].join("|"))(document.querySelector("#text"))`), "true|my own words|3|6")
	is.Equal(d.evaluate(`document.querySelector(".writing").textContent`), text)

	// a turn that shows nothing new says for how long
	const silence = `document.querySelector("#head .turn.running").dataset.silence`
	d.sees("that the turn runs", silence+` === ""`)
	d.evaluate(`lastNew -= 60000`)
	d.sees("that nothing is new", silence+`.startsWith(", nothing new for ")`)
	write(500, 501)
	d.sees("that something is new", silence+` === ""`)

	// the page catches up
	for i, c := range []struct {
		name string
		away func(bool)
	}{{"cut", n.set}, {"silent", n.silence}, {"hidden", d.hide}} {
		c.away(true)
		if c.name == "silent" {
			d.evaluate(`heard -= 60000`) // as after a minute
		}
		if c.name != "hidden" {
			d.sees("that the page says that it is out of date", `!document.querySelector("#offline").hidden &&
				document.querySelector("#offline").textContent.includes("out of date")`)
			d.screenshot("out-of-date-" + c.name)
		}
		write(1000*(i+1), 1000*(i+1)+1)
		missed := "while it was " + c.name
		submitMessage(t, s, chat, fmt.Sprint("msg_2", i), written(missed))
		is.Equal(d.evaluate(fmt.Sprintf(`document.querySelector("#log").textContent.includes(%q)`, missed)), "false")
		c.away(false)
		d.reads(missed)
		d.sees("all of the text", fmt.Sprintf(`document.querySelector(".writing").textContent === %q`, text))
		d.sees("that the page is connected", `document.querySelector("#offline").hidden`)
	}
	s.TextPart(t, chat, "msg_1", "prt_1", text, `,"time":{"end":2}`)
	s.Assistant(t, chat, "msg_1", webtest.Ended)
	s.AppendOpenCode(t, chat, "session.status", `{"sessionID":"ses_own","status":{"type":"idle"}}`)
	d.sees("that the turn is over", `document.querySelector("#head form") === null && document.querySelector(".writing") === null`)
	chromiumtest.AwaitFreshPage(t, d.ctx)
	d.checkNoFaults()
}

func TestAPageShowsWhatACommandPrintsWhileItRuns(t *testing.T) {
	expect.Slow(t, "starts Chromium")
	t.Parallel()
	is := is.New(t)
	s := webtest.NewSystem(t)
	_, token := s.User(t, "ada", "user")
	chat := s.ChatWithAnswer(t, token)
	print := func(exec, text string) {
		t.Helper()
		webtest.Check(t, s.Log.PublishDelta(log.Delta{Subject: events.ExecDeltaSubject(chat, exec), Type: log.ExecOutput,
			Stream: "stdout", Data: []byte(text)}))
	}
	finished := func(exec, text string) {
		t.Helper()
		s.Append(t, chat, events.ExecFinished{Exec: exec, Stdout: events.Output{Bytes: int64(len(text)), Text: text}})
	}
	tool := func(status, more string) {
		s.AppendOpenCode(t, chat, "message.part.updated", `{"sessionID":"ses_own","part":{"id":"prt_1","messageID":"msg_1","sessionID":"ses_own","type":"tool","tool":"bash","callID":"x1","state":{"status":"`+status+`","input":{"command":"make"}`+more+`}}}`)
	}
	d := openPage(t, s, "/chats/"+chat)
	s.Assistant(t, chat, "msg_1", "")
	tool("running", "")
	s.AppendExecution(t, chat, "x1", nil)
	print("x1", "line 1\n")
	print("x1", "line 2\n")
	d.sees("the output so far", `document.querySelector("pre.output")?.textContent === "line 1\nline 2\n"`)
	d.screenshot("live-output")
	finished("x1", "line 1\nline 2\n")
	tool("completed", `,"output":"line 1\nline 2\n"`)
	d.sees("that the command has ended",
		`document.querySelector("pre.output") === null && document.querySelector(".tool .mark.completed") !== null`)

	d.visit("/chats/" + chat + "/terminal")
	s.AppendExecution(t, chat, "x2", nil)
	print("x2", "serving at port 8123\n")
	d.sees("the output so far", `document.querySelector(".execution.executing pre.output")?.textContent === "serving at port 8123\n"`)
	const printed = "serving at port 8123\n\x1b[1;32mPASS\x1b[0m\n"
	finished("x2", printed)
	d.sees("the end of the command, in colours", `document.querySelector(".execution.executing") === null && document.querySelector(".stdout .bold.green")?.textContent === "PASS"`)
	d.screenshot("terminal")
	d.checkNoFaults()
	const entries = `document.querySelector("#entries").innerHTML`
	shown := d.evaluate(entries)
	d.load(chromedp.Reload())
	is.Equal(d.evaluate(entries), shown)
	is.True(strings.Contains(shown, "line 2"))
}
