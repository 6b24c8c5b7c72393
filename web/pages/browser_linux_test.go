package pages_test

import (
	"fmt"
	"testing"

	"github.com/chromedp/chromedp"
	"github.com/matryer/is"

	"pocketcoder/expect"
	"pocketcoder/web/webtest"
)

func TestEarlierMessagesComeWhenAPersonScrollsUp(t *testing.T) {
	expect.Long(t, "starts Chromium")
	t.Parallel()
	is := is.New(t)
	s := webtest.NewSystem(t)
	_, token := s.User(t, "ada", "user")
	chat := s.Talking(t, token)
	for i := range 450 {
		says(t, s, chat, fmt.Sprintf("msg_%04d", i), written(fmt.Sprintf("number %d.", i)))
	}
	ctx := openPage(t, s, "/chats/"+chat)
	evaluate := func(expression string) (value string) {
		value, err := chromedp.Run(ctx, chromedp.Evaluate[string]("String("+expression+")"))
		is.NoErr(err)
		return value
	}
	for _, first := range []string{"number 250.", "number 50.", "number 0."} {
		expect.Eventually(t, "the first message is "+first, func() bool {
			return evaluate(`document.querySelector("#entries article .markdown")?.textContent.trim()`) == first
		})
		evaluate(`document.querySelector("#earlier")?.scrollIntoView()`)
	}
	is.Equal(evaluate(`document.querySelector("#earlier") === null`), "true")
	is.Equal(evaluate(`document.querySelectorAll("#entries article").length`), "450")
	is.Equal(evaluate(`[...document.querySelectorAll("#entries article")].every((a, i, all) => i === 0 || all[i - 1].dataset.order < a.dataset.order)`), "true")
}
