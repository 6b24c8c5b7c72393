package main

import (
	"fmt"
	"strings"
	"testing"

	"github.com/chromedp/chromedp"
	"github.com/matryer/is"
)

// queue waits until the queue of a chat has these messages.
func (b *tab) queue(texts ...string) {
	b.t.Helper()
	b.awaitCondition(fmt.Sprintf("the queue %q", texts),
		fmt.Sprintf(`[...document.querySelectorAll("#queue li > a, #queue .said")].map((e) => e.textContent.trim()).join("|") === %q`,
			strings.Join(texts, "|")))
}

func TestQueueIsChangedInABrowser(t *testing.T) {
	t.Parallel()
	p := sharedSystem(t)
	admin := p.admin(t)
	for _, size := range []screen{phoneScreen, desktopScreen} {
		t.Run(size.name, func(t *testing.T) {
			is := is.New(t)
			chat := admin.create(t, "chats", record{"title": "queue"})
			b := p.openBrowser(t, size)
			b.visit("/chats/" + chat)
			evaluate[string](b, fmt.Sprintf(`document.querySelector("#text").value = %q`, bash("echo the queue waits")))
			b.click("#send button") // the button keeps the focus, and its text must still change
			request := admin.awaitRequest(t, chat)
			b.awaitCondition("that a message would wait", `document.querySelector("#send button").textContent === "Queue"`)
			for _, text := range []string{"@@say one", "@@say two",
				"@@say three, which is so long that it does not fit on the line of a phone, nor on two"} {
				b.fill("#text", text)
				b.click("#send button")
			}
			b.queue("@@say one", "@@say two", "@@say three, which is so long that it does not fit on the line of a phone, nor on two")
			b.screenshot("queue-waits")

			b.click("#queue li:nth-child(3) summary")
			evaluate[string](b, `document.querySelector("#queue li:nth-child(3) textarea").value = ""`)
			b.fill("#queue li:nth-child(3) textarea", "@@say 3")
			b.screenshot("queue-edit")
			b.click("#queue li:nth-child(3) .edit button")
			b.queue("@@say one", "@@say two", "@@say 3")
			b.awaitCondition("that the editor is closed", `document.querySelector("#queue .edit[open]") === null`)

			evaluate[bool](b, `(document.querySelector("#queue li:nth-child(3) [aria-label='Move up']").focus(), true)`)
			b.do(chromedp.KeyEvent("\r"))
			b.queue("@@say one", "@@say 3", "@@say two")
			b.awaitCondition("that the focus has moved along",
				`document.activeElement.ariaLabel === "Move up" && document.activeElement.closest("li").textContent.includes("@@say 3")`)
			b.click("#queue li:nth-child(1) [aria-label='Move down']")
			b.queue("@@say 3", "@@say one", "@@say two")
			b.awaitCondition("the same order in the conversation",
				`/say 3.*say one.*say two/s.test(document.querySelector("#entries").textContent)`)
			b.click("#queue li:nth-child(2) [name=delete]")
			b.queue("@@say 3", "@@say two")

			b.fill("#text", "@@say at once")
			b.click("#send [value=steer]")
			const next = "The assistant reads it after its current step." // the message itself is in the conversation
			b.queue(next, "@@say 3", "@@say two")
			b.screenshot("queue-steers")
			b.checkEqualsFreshLoad()
			b.click("#queue li:nth-child(3) [name=delivery]")
			b.queue(next, "@@say two", "@@say 3")

			admin.authorize(t, request)
			b.awaitText("Assistant3")
			b.awaitCondition("that nothing waits", `document.querySelector("#queue") === null && document.querySelector("#send button").textContent === "Send"`)
			is.True(!evaluate[bool](b, `document.querySelector("#entries").textContent.includes("say one")`))
			b.screenshot("queue-empty")
			b.checkEqualsFreshLoad()
			b.checkNoFaults()
		})
	}
}
