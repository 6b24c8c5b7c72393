package pages_test

import (
	"net/http"
	"testing"

	"github.com/chromedp/chromedp"
	"github.com/matryer/is"

	"pocketcoder/ops/expect"
	"pocketcoder/web/webtest"
)

func TestAFormReachesItsPathAndASecondTapReachesNoOtherRequest(t *testing.T) {
	expect.Slow(t, "starts Chromium")
	t.Parallel()
	is := is.New(t)
	s := webtest.NewSystem(t)
	_, token := s.User(t, "ada", "admin")
	chat := s.ChatWithAnswer(t, token)
	submitMessage(t, s, chat, "msg_1", written("Hello."))
	d := openPage(t, s, "/settings/tool_permissions")
	d.click(".create summary")
	d.click(".create form > button")
	d.sees("why an empty form is refused", `document.querySelector(".create .problem") !== null`)
	// #new-action is a field whose name hides the property of the form
	d.set("#new-tool", "bash")
	d.set("#new-pattern", "git diff")
	d.set("#new-action", "allow")
	d.click(".create form > button")
	d.sees("the rule", `document.querySelector("[id^=record-]") !== null`)
	_, rules := s.Call(t, token, "GET", webtest.RecordsPath("tool_permissions"), nil)
	is.Equal(rules["totalItems"], 1.0)
	d.checkNoFaults()

	needed(t, s, chat, "per_1", "make all")
	needed(t, s, chat, "per_2", "make all")
	needed(t, s, chat, "per_3", "rm -rf build")
	needed(t, s, chat, "per_4", "rm -rf build")
	d.visit("/requests")
	d.screenshot("requests-grouped")
	d.evaluate(`window.first = document.querySelector(".group"), first.querySelector("[value=authorized]").focus(), first.querySelector("[value=authorized]").click()`)
	status := func(request string) string {
		_, requests := s.Call(t, token, "GET", webtest.RecordsPath("permissions")+
			"?filter="+`ai_engine_permission_id%3D"`+request+`"`, nil)
		return requests["items"].([]any)[0].(map[string]any)["status"].(string)
	}
	expect.Eventually(t, "the first group is approved", func() bool {
		return status("per_1") == "authorized" && status("per_2") == "authorized"
	})
	// what moves up is not under the finger at once
	is.Equal(d.evaluate(`still !== 0`), "true")
	d.sees("the group is gone", `document.querySelectorAll(".card").length === 2`)
	is.Equal(d.evaluate(`first.isConnected`), "false") // its button has not become that of the other group, with the focus
	is.Equal(d.evaluate(`document.activeElement.closest(".group")`), "null")
	is.Equal(status("per_3"), "draft")

	// a key decides the card that has the focus
	d.evaluate(`document.querySelector(".card").focus()`)
	d.do(chromedp.KeyEvent("d"))
	d.sees("that the card is gone", `document.querySelectorAll(".card").length === 1`)
	is.Equal(status("per_3"), "denied")
	is.Equal(status("per_4"), "draft")

	// a rule approves, too
	referred(t, s, chat, "per_5", "touch notes.txt")
	card := "#r-" + referred(t, s, chat, "per_6", "touch always.txt")
	d.visit("/chats/" + chat)
	d.click(card + " .more a")
	d.sees("the rule", `document.querySelector(".always section button") !== null`)
	d.set("#pattern", "touch *")
	d.click(".rule button")
	d.sees("what the rule would have allowed", `document.querySelectorAll(".tried li").length >= 2`)
	d.screenshot("always")
	d.checkNoFaults()
	d.click(".always section button")
	d.sees("the decision", `document.querySelector(`+"`"+card+".authorized`"+`) !== null`)
	is.Equal(status("per_6"), "authorized")
	d.checkNoFaults()
}

func TestAnApprovalNeverDropsAnEdit(t *testing.T) {
	expect.Slow(t, "starts Chromium")
	t.Parallel()
	is := is.New(t)
	s := webtest.NewSystem(t)
	_, token := s.User(t, "ada", "admin")
	chat := s.ChatWithAnswer(t, token)
	submitMessage(t, s, chat, "msg_1", written("Hello."))
	ids := []string{needed(t, s, chat, "per_1", "make all"), needed(t, s, chat, "per_2", "make all")}
	d := openPage(t, s, "/requests")
	const shown = `[...document.querySelectorAll("main button")].filter((b) => b.closest(".card, .group") && b.checkVisibility()).map((b) => b.textContent)`
	check := func(all string) {
		t.Helper()
		is.Equal(d.evaluate(shown), all)
		d.evaluate(`document.querySelector("#deny-` + ids[0] + `").open = true`)
		is.Equal(d.evaluate(shown), "Deny and explain,Approve,Deny and stop")
		d.evaluate(`document.querySelector("#deny-` + ids[0] + `").open = false`)
		is.Equal(d.evaluate(shown), all)
	}
	check("Approve all 2,Deny all 2 and stop,Approve,Deny and stop,Approve,Deny and stop")
	// the key that approves does not press a hidden button
	d.evaluate(`document.querySelector("#edit-` + ids[0] + `").open = true`)
	d.evaluate(`document.querySelector("#edit-` + ids[0] + `").closest(".card").focus()`)
	d.do(chromedp.KeyEvent("a"))
	_, request := s.Call(t, token, "GET", webtest.RecordsPath("permissions")+"/"+ids[0], nil)
	is.Equal(request["status"], "draft")

	d.visit("/chats/" + chat)
	check("Approve,Deny and stop,Approve,Deny and stop")
	d.click("#edit-" + ids[0] + " summary")
	is.Equal(d.evaluate(shown), "Approve the edited command,Approve,Deny and stop")
	// a finger reaches its button
	d.sees("the button is seen",
		`((b = document.querySelector("#edit-`+ids[0]+` button"), at = b.getBoundingClientRect()) =>
			document.elementFromPoint(at.left + at.width / 2, at.top + at.height / 2) === b)()`)
	d.set("#edited-"+ids[0], "make less")
	d.click("#edit-" + ids[0] + " button")
	expect.Eventually(t, "the edited command is approved", func() bool {
		_, request := s.Call(t, token, "GET", webtest.RecordsPath("permissions")+"/"+ids[0], nil)
		return request["status"] == "authorized" && request["edited"] == "make less"
	})

	// another device decides the request whose form is open here
	card := "#r-" + ids[1]
	d.click("#deny-" + ids[1] + " summary")
	d.fill(card+" input[name=reason]", "because")
	status, _ := s.Call(t, token, "PATCH", webtest.RecordsPath("permissions")+"/"+ids[1],
		webtest.Object{"status": "authorized"})
	is.Equal(status, http.StatusOK)
	d.sees("the decision", `document.querySelector(`+"`"+card+".authorized .outcome`"+`)?.textContent === "approved by ada@example.org"`)
	is.Equal(d.evaluate(`document.querySelector(`+"`"+card+" form`"+`)`), "null")
	d.checkNoFaults()
}
