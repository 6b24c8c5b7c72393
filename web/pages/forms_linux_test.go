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
	evaluate := func(expression string) string {
		t.Helper()
		return chromiumtest.Evaluate(t, ctx, expression)
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
	is.Equal(evaluate(`still !== 0`), "true")
	chromiumtest.Await(t, ctx, "the group is gone", `document.querySelectorAll(".card").length === 2`)
	is.Equal(evaluate(`first.isConnected`), "false") // its button has not become that of the other group, with the focus
	is.Equal(evaluate(`document.activeElement.closest(".group")`), "null")
	is.Equal(status("per_3"), "draft")
}

func TestAnApprovalNeverDropsAnEdit(t *testing.T) {
	expect.Long(t, "starts Chromium")
	t.Parallel()
	is := is.New(t)
	s := webtest.NewSystem(t)
	_, token := s.User(t, "ada", "admin")
	chat := s.ChatWithAnswer(t, token)
	submitMessage(t, s, chat, "msg_1", written("Hello."))
	ids := []string{needed(t, s, chat, "per_1", "make all"), needed(t, s, chat, "per_2", "make all")}
	ctx := openPage(t, s, "/chats/"+chat)
	evaluate := func(expression string) string {
		t.Helper()
		return chromiumtest.Evaluate(t, ctx, expression)
	}
	is.NoErr(chromedp.Do(ctx, chromedp.EmulateViewport(360, 640)))
	const shown = `[...document.querySelectorAll("main button")].filter((b) => b.closest(".card, .group") && b.checkVisibility()).map((b) => b.textContent)`
	for _, place := range []struct{ path, all string }{
		{"/chats/" + chat, "Approve,Deny and stop,Approve,Deny and stop"},
		{"/requests", "Approve all 2,Deny all 2 and stop,Approve,Deny and stop,Approve,Deny and stop"},
	} {
		chromiumtest.Load(t, ctx, chromedp.Navigate(evaluate("location.origin")+place.path))
		is.NoErr(chromedp.Do(ctx, chromedp.WaitReady(chromedp.CSS("#edit-"+ids[0]))))
		is.Equal(evaluate(shown), place.all)
		evaluate(`document.querySelector("#deny-` + ids[0] + `").open = true`)
		is.Equal(evaluate(shown), "Deny and explain,Approve,Deny and stop")
		evaluate(`document.querySelector("#deny-` + ids[0] + `").open = false`)
		is.Equal(evaluate(shown), place.all)
	}

	// the key that approves does not press a hidden button
	evaluate(`document.querySelector("#edit-` + ids[0] + `").open = true`)
	evaluate(`document.querySelector("#edit-` + ids[0] + `").closest(".card").focus()`)
	is.NoErr(chromedp.Do(ctx, chromedp.KeyEvent("a")))
	_, request := s.Call(t, token, "GET", webtest.RecordsPath("permissions")+"/"+ids[0], nil)
	is.Equal(request["status"], "draft")

	chromiumtest.Load(t, ctx, chromedp.Navigate(evaluate("location.origin")+"/chats/"+chat))
	is.NoErr(chromedp.Do(ctx, chromedp.WaitReady(chromedp.CSS("#edit-"+ids[0]))))
	is.NoErr(chromedp.Do(ctx, chromedp.Click(chromedp.CSS("#edit-"+ids[0]+" summary"))))
	is.Equal(evaluate(shown), "Approve the edited command,Approve,Deny and stop")
	// a finger reaches its button
	chromiumtest.Await(t, ctx, "the button is seen",
		`((b = document.querySelector("#edit-`+ids[0]+` button"), at = b.getBoundingClientRect()) =>
			document.elementFromPoint(at.left + at.width / 2, at.top + at.height / 2) === b)()`)
	is.NoErr(chromedp.Do(ctx, chromedp.SetValue(chromedp.CSS("#edited-"+ids[0]), "make less"),
		chromedp.Click(chromedp.CSS("#edit-"+ids[0]+" button"))))
	expect.Eventually(t, "the edited command is approved", func() bool {
		_, request := s.Call(t, token, "GET", webtest.RecordsPath("permissions")+"/"+ids[0], nil)
		return request["status"] == "authorized" && request["edited"] == "make less"
	})
}
