package main

import "testing"

func TestAnOperatorSeesTheSystemAndChangesItsSettings(t *testing.T) {
	t.Parallel()
	p := sharedSystem(t)
	for _, size := range []screen{phoneScreen, desktopScreen} {
		t.Run(size.name, func(t *testing.T) {
			b := p.openBrowser(t, size)
			b.visit("/account")
			b.click(`a[href="/operations"]`)
			b.sees("the streams and a worker", `document.querySelectorAll(".operations td").length > 8 && document.querySelector(".operations").textContent.includes("isolation")`)
			b.shot("operations")
			b.fine()
			b.visit("/settings")
			b.shot("settings")
			b.fine()
			b.click(`a[href="/settings/ai_prompts"]`)
			b.sees("the form", `document.querySelector(".record.create summary") !== null`)
			b.click(".record.create summary")
			b.click(".record.create button")
			b.sees("why it was refused", `document.querySelector(".record.create .problem") !== null`)
			b.fill("#new-name", "prompt of "+size.name)
			b.fill("#new-body", "Be brief.")
			b.shot("settings-form")
			b.fine()
			b.click(".record.create button")
			b.sees("the new record", `[...document.querySelectorAll(".record .name")].some((e) => e.textContent === "prompt of `+size.name+`")`)
			b.fine()
		})
	}
}
