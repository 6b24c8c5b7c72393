package main

import (
	"testing"

	"github.com/matryer/is"

	"pocketcoder/bridge/channel/telegramtest"
)

// choose selects a value in a form.
func (b *tab) choose(selector, value string) {
	b.t.Helper()
	set := `((s) => (s.value = "` + value + `", s.value))(document.querySelector("` + selector + `"))`
	if got := evaluate[string](b, set); got != value {
		b.t.Fatalf("%s has no value %q", selector, value)
	}
}

func TestScheduleIsPlannedInABrowser(t *testing.T) {
	t.Parallel()
	p := sharedSystem(t)
	for _, size := range []screen{phoneScreen, desktopScreen} {
		t.Run(size.name, func(t *testing.T) {
			is := is.New(t)
			b := p.openBrowser(t, size)
			b.visit("/schedules")
			b.click(".create > summary")
			b.fill("#schedule-name", "Report on a "+size.name)
			b.fill("#schedule-prompt", "@@say The "+size.name+" reports.")
			b.fill("#schedule-every", "1h")
			b.choose("#schedule-model", "demo/demo")
			b.choose("#schedule-overlap", "queue")
			b.screenshot("schedule-form")
			b.checkNoFaults()
			b.click(".create form > button")
			b.awaitCondition("the next runs", `document.querySelectorAll("main ol > li").length === 5`)
			b.screenshot("schedule-preview")
			b.checkNoFaults()
			is.Equal(evaluate[string](b, `document.querySelector("#schedule-overlap").value`), "queue")
			b.click(`button[formaction="/schedules"]`)
			b.awaitCondition("the schedule", `document.querySelector("h1")?.textContent === "Report on a `+size.name+`"`)
			b.click(`form[action$="/pause"] button`)
			b.awaitCondition("that it is paused", `document.querySelector('form[action$="/resume"]') !== null &&
				document.querySelector("main ol > li") === null`)
			b.click(`form[action$="/resume"] button`)
			b.awaitCondition("that it goes on", `document.querySelectorAll("main ol > li").length === 5`)
			page := evaluate[string](b, `location.pathname`)
			b.click(`form[action$="/run"] button`)
			b.awaitText("The " + size.name + " reports.")
			b.visit(page)
			b.awaitCondition("the run", `document.querySelector('main li a[href^="/chats/"]') !== null`)
			b.screenshot("schedule")
			b.checkNoFaults()
			b.visit("/schedules")
			b.screenshot("schedules")
			b.checkNoFaults()
		})
	}
}

func TestMessengerIsPairedInABrowser(t *testing.T) {
	t.Parallel()
	p := openSystem.system(t)
	admin := p.admin(t)
	for _, size := range []screen{phoneScreen, desktopScreen} {
		t.Run(size.name, func(t *testing.T) {
			bot := telegramtest.New(t)
			id := admin.create(t, "channels", record{"name": "Telegram on a " + size.name, "kind": "telegram",
				"server": bot.URL, "token": telegramtest.Token, "enabled": true})
			b := p.openBrowser(t, size)
			b.visit("/account")
			b.click(`a[href="/messengers"]`)
			b.awaitCondition("the channel", `document.querySelector('button[value="`+id+`"]') !== null`)
			b.screenshot("messengers")
			b.checkNoFaults()
			b.click(`button[value="` + id + `"]`)
			b.awaitCondition("the code", `document.querySelector("#pairing-code pre") !== null`)
			b.screenshot("messengers-code")
			b.checkNoFaults()
			bot.Say(person, person, evaluate[string](b, `document.querySelector("#pairing-code pre").textContent`))
			bot.AwaitText(t, "You are paired")
			b.visit("/messengers")
			row := `[...document.querySelectorAll(".logins li")].find((e) => e.textContent.includes("Telegram on a ` +
				size.name + `"))`
			b.awaitCondition("the pairing", row+` !== undefined`)
			b.screenshot("messengers-paired")
			b.checkNoFaults()
			b.click(`#` + evaluate[string](b, row+`.id`) + ` button`)
			b.awaitCondition("that the pairing is gone", `location.pathname === "/messengers" && `+row+` === undefined`)
			b.checkNoFaults()
		})
	}
}
