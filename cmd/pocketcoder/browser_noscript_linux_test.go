package main

import (
	"context"
	"testing"

	"github.com/chromedp/cdproto/cdp"
	"github.com/chromedp/cdproto/emulation"
	"github.com/chromedp/chromedp"
	"github.com/matryer/is"

	"pocketcoder/expect"
)

// Without script, links and forms do everything, and a person loads the page again to see what is new.
func TestCommandIsApprovedWithoutScript(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	p := sharedSystem(t)
	b := p.newBrowser(t, phoneScreen)
	b.do(chromedp.Func(func(ctx context.Context, target *chromedp.Target) error {
		_, err := cdp.Call(ctx, target, emulation.SetScriptExecutionDisabled,
			emulation.SetScriptExecutionDisabledParams{Value: true})
		return err
	}))
	press := func(selector string) { b.load(chromedp.Click(chromedp.CSS(selector))) }
	reloadUntil := func(what, condition string) {
		t.Helper()
		expect.Eventually(t, what, func() bool {
			b.load(chromedp.Reload())
			return evaluate[bool](b, condition)
		})
	}

	b.visit("/")
	b.fill("#email", adminEmail)
	b.fill("#password", adminPassword)
	press("main button")
	b.fill("#text", "Say hello.\n"+bash("echo hello without script"))
	press(".new button")
	reloadUntil("the request", `document.querySelector(".card.draft .decide") !== null`)
	b.awaitText("echo hello without script")
	is.Equal(evaluate[string](b, "typeof parser"), "undefined") // app.js defines it
	b.screenshot("no-script-request")
	press(".card.draft .decide button[value=authorized]")
	b.awaitText("approved by " + adminEmail)
	reloadUntil("the answer", `document.querySelector("#log").textContent.includes("Assistantdone")`)
	is.True(evaluate[bool](b, `document.querySelector(".no-script").checkVisibility()`))
	b.screenshot("no-script-answer")

	b.visit("/account")
	press(`form[action$="/logout"] button`)
	b.awaitCondition("the login", `document.querySelector("#password") !== null`)
	b.checkNoFaults()
}
