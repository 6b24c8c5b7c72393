package main

import "testing"

func TestOperationsAndSettingsPages(t *testing.T) {
	t.Parallel()
	p := sharedSystem(t)
	for _, size := range []screen{phoneScreen, desktopScreen} {
		t.Run(size.name, func(t *testing.T) {
			b := p.openBrowser(t, size)
			b.visit("/account")
			b.click(`a[href="/operations"]`)
			b.awaitCondition("the streams and a worker",
				`document.querySelectorAll(".operations td").length > 8 && document.querySelector(".operations").textContent.includes("isolation")`)
			b.screenshot("operations")
			b.checkNoFaults()
			b.visit("/settings")
			b.screenshot("settings")
			b.checkNoFaults()
			b.click(`a[href="/settings/ai_prompts"]`)
			b.awaitCondition("the form", `document.querySelector(".record.create summary") !== null`)
			b.click(".record.create summary")
			b.click(".record.create button")
			b.awaitCondition("why it was refused", `document.querySelector(".record.create .problem") !== null`)
			b.fill("#new-name", "prompt of "+size.name)
			b.fill("#new-body", "Be brief.")
			b.screenshot("settings-form")
			b.checkNoFaults()
			b.click(".record.create button")
			b.awaitCondition("the new record", `[...document.querySelectorAll(".record .name")].some((e) => e.textContent === "prompt of `+size.name+`")`)
			b.checkNoFaults()
		})
	}
}
