package main

import (
	"testing"

	"pocketcoder/expect"
)

func TestNextStartRecoversFromACrash(t *testing.T) {
	t.Parallel()
	p := prepare(t, t.TempDir(), "--push-allow-private", "--http", expect.Address(t))
	p.env = []string{"POCKETCODER_ADMIN_EMAIL=", "POCKETCODER_ADMIN_PASSWORD="}
	p.runForTest()
	var administrator login
	var repeated repeatedMessages
	var calls callsThatWait
	runStages(t, p, stage{"the setup link makes one administrator", func(t *testing.T, p *process) {
		administrator = setupLinkMakesOneAdministrator(t, p)
	}}, stage{"clients go on", func(t *testing.T, p *process) {
		repeated = repeatedMessages{process: p, chat: p.create(t, "crashes")}
		causeAndCheck(t, p, func(t *testing.T, p *process) { clientsGoOn(t, p, &repeated) },
			incidentCheck{"calls that wait survive", calls.surviveIncident})
		setUpStays(t, administrator)
	}}, stage{"crashes during the start", killDuringStart},
		stage{"nothing is resumed again", func(t *testing.T, p *process) { calls.half.checkNotResumedAgain(t, p) }},
		stage{"a command is approved on a notification", func(t *testing.T, p *process) {
			causeAndCheck(t, p, func(t *testing.T, p *process) { approvedOnANotification(t, p, &repeated) },
				incidentCheck{"a page continues", func(t *testing.T, p *process) (after func(*testing.T, *process)) {
					return pageContinues(t, p, &repeated)
				}})
		}},
		stage{"messages between crashes", func(t *testing.T, p *process) { repeated.checkAnswered(t) }})
}

// pageContinues shows a page while an answer is written, and checks that it follows the chat again after the next
// crash.
func pageContinues(t *testing.T, p *process, crashes *repeatedMessages) (after func(*testing.T, *process)) {
	b := p.openBrowser(t, phoneScreen)
	b.visit("/")
	b.fill("#text", "@@text n=4000 delay=50")
	b.click(".new button")
	b.awaitText("t5 ")
	b.screenshot("writing")
	crashes.whileDown = func() {
		b.awaitCondition("that the page is not connected", `!document.querySelector("#offline").hidden`)
		b.screenshot("offline")
	}
	return func(t *testing.T, _ *process) {
		crashes.whileDown, b.t = nil, t
		b.awaitCondition("that the page is connected again", `document.querySelector("#offline").hidden`)
		b.awaitCondition("that the turn is over", `document.querySelector("#head form") === null && document.querySelector(".writing") === null`)
		b.fill("#text", "@@say after the restart\r")
		b.awaitText("after the restart")
		b.awaitCondition("that this turn is over", `document.querySelector("#head form") === null`)
		b.checkEqualsFreshLoad()
		b.screenshot("restarted")
	}
}
