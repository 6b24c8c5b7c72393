package pages_test

import (
	"fmt"
	"testing"

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
	for i := range 450 {
		submitMessage(t, s, chat, fmt.Sprintf("msg_%04d", i), written(fmt.Sprintf("number %d.", i)))
	}
	ctx := openPage(t, s, "/chats/"+chat)
	evaluate := func(expression string) string {
		t.Helper()
		return chromiumtest.Evaluate(t, ctx, expression)
	}
	expect.Eventually(t, "all messages are there", func() bool {
		evaluate(`document.querySelector("#earlier-messages")?.scrollIntoView()`)
		return evaluate(`document.querySelectorAll("#entries article").length`) == "450"
	})
	is.Equal(evaluate(`document.querySelector("#earlier-messages") === null`), "true")
	is.Equal(evaluate(`[...document.querySelectorAll("#entries article")].every((a, i, all) => i === 0 || all[i - 1].dataset.order < a.dataset.order)`), "true")

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
}

func TestEarlierMessagesOfAMomentComeWhenAPersonScrollsUp(t *testing.T) {
	expect.Long(t, "starts Chromium")
	t.Parallel()
	is := is.New(t)
	s := webtest.NewSystem(t)
	_, token := s.User(t, "ada", "user")
	chat := s.ChatWithAnswer(t, token)
	for i := range 450 {
		submitMessage(t, s, chat, fmt.Sprintf("msg_%04d", i), written(fmt.Sprintf("number %d.", i)))
	}
	ctx := openPage(t, s, "/chats/"+chat+"/replay")
	evaluate := func(expression string) string {
		t.Helper()
		return chromiumtest.Evaluate(t, ctx, expression)
	}
	const count = `document.querySelectorAll("#entries article").length`
	scrollsUpTo := func(n string) {
		t.Helper()
		expect.Eventually(t, n+" messages are there", func() bool {
			evaluate(`document.querySelector("#earlier-messages")?.scrollIntoView()`)
			return evaluate(count) == n
		})
		is.Equal(evaluate(`document.querySelector("#earlier-messages") === null`), "true")
		is.Equal(evaluate(`[...document.querySelectorAll("#entries article")].every((a, i, all) => i === 0 || all[i - 1].dataset.order < a.dataset.order)`), "true")
	}
	scrollsUpTo("450")
	evaluate(`(toEnd(), go(byID("earlier")))`) // the text of the last message is not there yet
	chromiumtest.Await(t, ctx, "the last messages of the moment before", count+` === 200`)
	scrollsUpTo("450")
	evaluate(`go(byID("first"))`)
	chromiumtest.Await(t, ctx, "no messages", count+` === 0`)
	is.Equal(evaluate(`document.querySelector("#earlier-messages") === null`), "true")
}
