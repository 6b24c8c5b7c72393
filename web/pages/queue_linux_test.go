package pages_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/chromedp/chromedp"
	"github.com/matryer/is"

	"pocketcoder/ops/expect"
	"pocketcoder/web/chromiumtest"
	"pocketcoder/web/webtest"
)

func TestAPersonChangesTheQueueOnAPhone(t *testing.T) {
	expect.Slow(t, "starts Chromium")
	t.Parallel()
	is := is.New(t)
	s := webtest.NewSystem(t)
	_, token := s.User(t, "ada", "admin")
	chat := s.ChatWithAnswer(t, token)
	submitMessage(t, s, chat, "msg_1", written("Hello."))
	d := openPage(t, s, "/chats/"+chat)
	queue := func(texts ...string) {
		t.Helper()
		d.sees(fmt.Sprintf("the queue %q", texts),
			fmt.Sprintf(`[...document.querySelectorAll("#queue .said")].map((e) => e.textContent.trim()).join("|") === %q`,
				strings.Join(texts, "|")))
	}
	d.fill("#text", "one")
	d.click("#send button") // the button keeps the focus, and its text must still change
	queue("one")
	const long = "three, which is so long that it does not fit on the line of a phone, nor on two"
	shown := `[...document.querySelectorAll(".message.user, .waiting")].filter((e) => e.checkVisibility() && e.textContent.includes("one")).map((e) => e.className).join()`
	is.Equal(d.evaluate(shown), "waiting") // once
	s.AppendOpenCode(t, chat, "session.status", `{"sessionID":"ses_own","status":{"type":"busy"}}`)
	d.sees("that a message would wait", `document.querySelector("#send button").textContent === "Queue"`)
	d.fill("#text", "two\r"+long+"\r") // Enter sends, and a second message does not wait for the first
	queue("one", "two", long)
	is.Equal(d.evaluate(`document.querySelector("#text").value.trim()`), "")
	is.Equal(d.evaluate(framed+`("#queue")`), "true")
	d.screenshot("queue-waits")

	d.click("#queue li:nth-child(3) summary")
	d.evaluate(`document.querySelector("#queue li:nth-child(3) textarea").value = ""`)
	d.fill("#queue li:nth-child(3) textarea", "3")
	d.screenshot("queue-edit")
	d.click("#queue li:nth-child(3) .edit button")
	queue("one", "two", "3")
	d.sees("that the editor is closed", `document.querySelector("#queue .edit[open]") === null`)

	d.evaluate(`document.querySelector("#queue li:nth-child(3) [aria-label='Move up']").focus()`)
	d.do(chromedp.KeyEvent("\r"))
	queue("one", "3", "two")
	d.sees("that the focus has moved along",
		`document.activeElement.ariaLabel === "Move up" && document.activeElement.closest("li").textContent.includes("3")`)
	d.click("#queue li:nth-child(1) [aria-label='Move down']")
	queue("3", "one", "two")
	d.sees("the same order in the conversation",
		`/3.*one.*two/s.test(document.querySelector("#entries").textContent)`)
	d.click("#queue li:nth-child(2) [name=delete]")
	queue("3", "two")
	d.fill("#text", "at once")
	d.click("#send [value=steer]")
	queue("at once", "3", "two")
	d.screenshot("queue-steers")
	d.click("#queue li:nth-child(3) [name=delivery]")
	queue("at once", "two", "3")
	chromiumtest.AwaitFreshPage(t, d.ctx)
	d.checkNoFaults()
}
