package pages_test

import (
	"testing"

	"github.com/chromedp/chromedp"
	"github.com/matryer/is"

	"pocketcoder/expect"
	"pocketcoder/web/chromiumtest"
	"pocketcoder/web/webtest"
)

func TestEarlierMessagesComeWhenAPersonScrollsUp(t *testing.T) {
	expect.Long(t, "starts Chromium")
	t.Parallel()
	is := is.New(t)
	s := webtest.NewSystem(t)
	_, token := s.User(t, "ada", "user")
	chat := s.ChatWithAnswer(t, token)
	submitMessages(t, s, chat, 450, "number %d.")
	ctx := openPage(t, s, "/chats/"+chat)
	evaluate := func(expression string) string {
		t.Helper()
		return chromiumtest.Evaluate(t, ctx, expression)
	}
	const count = `document.querySelectorAll("#entries article").length`
	scrollsUpToAll := func() {
		t.Helper()
		expect.Eventually(t, "all messages are there", func() bool {
			evaluate(`document.querySelector("#earlier-messages")?.scrollIntoView()`)
			return evaluate(count) == "450"
		})
		is.Equal(evaluate(`document.querySelector("#earlier-messages") === null`), "true")
		is.Equal(evaluate(`[...document.querySelectorAll("#entries article")].every((a, i, all) => i === 0 || all[i - 1].dataset.order < a.dataset.order)`), "true")
	}
	scrollsUpToAll()

	// the messages scroll, not the page
	is.Equal(evaluate(`document.documentElement.scrollHeight <= innerHeight`), "true")

	// the view stays when a message above it grows, also in a browser that does not keep it there itself
	is.Equal(evaluate(`(() => {
		log.style.overflowAnchor = "none";
		const [first, , third] = document.querySelectorAll("#entries article");
		third.scrollIntoView();
		const top = third.getBoundingClientRect().top;
		update(first.outerHTML.replace("number 0.", "number 0, ".repeat(500)));
		return [first.offsetHeight > log.clientHeight, Math.abs(third.getBoundingClientRect().top - top) < 1];
	})()`), "true,true")

	// those of a moment of the replay
	chromiumtest.Load(t, ctx, chromedp.Navigate(evaluate("location.href")+"/replay"))
	scrollsUpToAll()
	evaluate(`(toEnd(), go(byID("earlier")))`) // the text of the last message is not there yet
	chromiumtest.Await(t, ctx, "the last messages of the moment before", count+` === 200`)
	scrollsUpToAll()
	evaluate(`go(byID("first"))`)
	chromiumtest.Await(t, ctx, "no messages", count+` === 0`)
	is.Equal(evaluate(`document.querySelector("#earlier-messages") === null`), "true")
}
