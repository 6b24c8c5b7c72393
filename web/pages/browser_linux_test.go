package pages_test

import (
	"testing"

	"github.com/matryer/is"

	"pocketcoder/ops/expect"
	"pocketcoder/web/webtest"
)

func TestEarlierMessagesComeWhenAPersonScrollsUp(t *testing.T) {
	expect.Slow(t, "starts Chromium")
	t.Parallel()
	is := is.New(t)
	s := webtest.NewSystem(t)
	_, token := s.User(t, "ada", "user")
	chat := s.ChatWithAnswer(t, token)
	submitMessages(t, s, chat, 450, "number n%04d.")
	d := openPage(t, s, "/chats/"+chat)
	const count = `document.querySelectorAll("#entries article").length`
	scrollsUpToAll := func() {
		t.Helper()
		expect.Eventually(t, "all messages are there", func() bool {
			d.evaluate(`document.querySelector("#earlier-messages")?.scrollIntoView()`)
			return d.evaluate(count) == "450"
		})
		is.Equal(d.evaluate(`document.querySelector("#earlier-messages") === null`), "true")
		is.Equal(d.evaluate(`[...document.querySelectorAll("#entries article")].every((a, i, all) => i === 0 || all[i - 1].dataset.order < a.dataset.order)`), "true")
	}
	scrollsUpToAll()

	// the messages scroll, not the page
	is.Equal(d.evaluate(`document.documentElement.scrollHeight <= innerHeight`), "true")

	// the view stays when a message above it grows, also in a browser that does not keep it there itself
	is.Equal(d.evaluate(`(() => {
		log.style.overflowAnchor = "none";
		const [first, , third] = document.querySelectorAll("#entries article");
		third.scrollIntoView();
		const top = third.getBoundingClientRect().top;
		update(first.outerHTML.replace("number n0000.", "number 0, ".repeat(500)));
		return [first.offsetHeight > log.clientHeight, Math.abs(third.getBoundingClientRect().top - top) < 1];
	})()`), "true,true")

	// a search leads to a message in the middle
	d.visit("/search?q=n0100")
	d.click(".hits a[href*=around]")
	d.sees("the message", `document.querySelector(".message:target")?.textContent.includes("number n0100.") &&
		(({ top }) => top > 0 && top < innerHeight)(document.querySelector(".message:target").getBoundingClientRect())`)

	// those of a moment of the replay
	d.visit("/chats/" + chat + "/replay")
	scrollsUpToAll()
	d.evaluate(`(toEnd(), go(byID("earlier")))`) // the text of the last message is not there yet
	d.sees("the last messages of the moment before", count+` === 200`)
	scrollsUpToAll()
	d.evaluate(`go(byID("first"))`)
	d.sees("no messages", count+` === 0`)
	is.Equal(d.evaluate(`document.querySelector("#earlier-messages") === null`), "true")
}
