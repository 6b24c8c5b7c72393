package pages_test

import (
	"testing"

	"github.com/chromedp/chromedp"
	"github.com/matryer/is"

	"pocketcoder/expect"
	"pocketcoder/web/chromiumtest"
	"pocketcoder/web/webtest"
)

func TestAFormReachesItsPathAndASecondTapReachesNoOtherRequest(t *testing.T) {
	expect.Long(t, "starts Chromium")
	t.Parallel()
	is := is.New(t)
	s := webtest.NewSystem(t)
	_, token := s.User(t, "ada", "admin")
	chat := s.ChatWithAnswer(t, token)
	submitMessage(t, s, chat, "msg_1", written("Hello."))
	ctx := openPage(t, s, "/chats/"+chat)
	evaluate := func(expression string) (value string) {
		t.Helper()
		value, err := chromedp.Run(ctx, chromedp.Evaluate[string]("String("+expression+")"))
		is.NoErr(err)
		return value
	}
	open := func(path, selector string) {
		t.Helper()
		origin := evaluate("location.origin")
		chromiumtest.Load(t, ctx, chromedp.Navigate(origin+path)) // the page of a sent form may leave itself meanwhile
		is.NoErr(chromedp.Do(ctx, chromedp.WaitReady(chromedp.CSS(selector))))
	}

	open("/settings/tool_permissions", "#new-action") // a field whose name hides the property of the form
	evaluate(`document.querySelector(".create").open = true`)
	is.NoErr(chromedp.Do(ctx, chromedp.SetValue(chromedp.CSS("#new-tool"), "bash"),
		chromedp.SetValue(chromedp.CSS("#new-pattern"), "git diff"), chromedp.SetValue(chromedp.CSS("#new-action"), "allow"),
		chromedp.Click(chromedp.CSS(".create form > button"))))
	expect.Eventually(t, "the rule is stored", func() bool {
		_, rules := s.Call(t, token, "GET", webtest.RecordsPath("tool_permissions"), nil)
		return rules["totalItems"] == 1.0
	})

	needed(t, s, chat, "per_1", "make all")
	needed(t, s, chat, "per_2", "make all")
	needed(t, s, chat, "per_3", "rm -rf build")
	needed(t, s, chat, "per_4", "rm -rf build")
	open("/requests", ".group")
	evaluate(`window.first = document.querySelector(".group"), first.querySelector("[value=authorized]").focus(), first.querySelector("[value=authorized]").click()`)
	status := func(request string) string {
		_, requests := s.Call(t, token, "GET", webtest.RecordsPath("permissions")+
			"?filter="+`ai_engine_permission_id%3D"`+request+`"`, nil)
		return requests["items"].([]any)[0].(map[string]any)["status"].(string)
	}
	expect.Eventually(t, "the first group is approved", func() bool {
		return status("per_1") == "authorized" && status("per_2") == "authorized"
	})
	// what moves up is not under the finger at once
	is.Equal(evaluate(`still > Date.now() - 10000 && still !== 0`), "true")
	expect.Eventually(t, "the group is gone", func() bool {
		return evaluate(`document.querySelectorAll(".card").length`) == "2"
	})
	is.Equal(evaluate(`first.isConnected`), "false") // its button has not become that of the other group, with the focus
	is.Equal(evaluate(`document.activeElement.closest(".group")`), "null")
	is.Equal(status("per_3"), "draft")
}
