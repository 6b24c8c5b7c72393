package pages_test

import (
	"context"
	"testing"

	"github.com/chromedp/cdproto/cdp"
	"github.com/chromedp/cdproto/emulation"
	"github.com/chromedp/chromedp"
	"github.com/matryer/is"

	"pocketcoder/ops/expect"
	"pocketcoder/web/webtest"
)

// Without script, links and forms do everything, and a person loads the page again to see what is new.
func TestACommandIsApprovedWithoutScript(t *testing.T) {
	expect.Slow(t, "starts Chromium")
	t.Parallel()
	is := is.New(t)
	s := webtest.NewSystem(t)
	_, token := s.User(t, "ada", "user")
	d := newDevice(t, newBrowser(t, s).url)
	d.do(chromedp.Func(func(ctx context.Context, target *chromedp.Target) error {
		_, err := cdp.Call(ctx, target, emulation.SetScriptExecutionDisabled,
			emulation.SetScriptExecutionDisabledParams{Value: true})
		return err
	}))
	press := func(selector string) { t.Helper(); d.load(chromedp.Click(chromedp.CSS(selector))) }
	d.visit("/")
	d.fill("#email", "ada@example.org")
	d.fill("#password", webtest.Password)
	press("main button")
	d.fill("#text", "Say hello.")
	press(".new button")
	d.reads("Say hello.")
	_, list := s.Call(t, token, "GET", webtest.RecordsPath("chats"), nil)
	chat := list["items"].([]any)[0].(webtest.Object)["id"].(string)
	request := needed(t, s, chat, "per_1", "echo hello without script")
	d.load(chromedp.Reload())
	d.reads("echo hello without script")
	is.Equal(d.evaluate("typeof parser"), "undefined") // app.js defines it
	d.screenshot("no-script-request")
	press(".card.draft .decide button[value=authorized]")
	d.reads("approved by ada@example.org")
	_, decided := s.Call(t, token, "GET", webtest.RecordsPath("permissions")+"/"+request, nil)
	is.Equal(decided["status"], "authorized")
	is.Equal(d.evaluate(`document.querySelector(".no-script").checkVisibility()`), "true")

	d.visit("/account")
	press(`form[action$="/logout"] button`)
	d.sees("the login", `document.querySelector("#password") !== null`)
	d.checkNoFaults()
}
