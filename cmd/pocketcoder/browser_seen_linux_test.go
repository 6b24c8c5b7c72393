package main

import (
	"fmt"
	"strings"
	"testing"

	"github.com/matryer/is"

	"pocketcoder/expect"
)

// longAnswer is a script of the demo model that answers with more than a window shows. The answer is one fragment,
// because OpenCode needs a millisecond of processor time for each fragment.
var longAnswer = "@@say " + strings.Repeat("The river is long. ", 600)

func TestSeenPositionIsSharedByDevices(t *testing.T) {
	t.Parallel()
	p := sharedSystem(t)
	admin := p.admin(t)
	for _, size := range []screen{phoneScreen, desktopScreen} {
		t.Run(size.name, func(t *testing.T) {
			is := is.New(t)
			chat := admin.create(t, "chats", record{"title": "rivers on a " + size.name})
			row := fmt.Sprintf(`document.querySelector("#chat-%s")`, chat)
			idle := func(answers int) {
				t.Helper()
				expect.Eventually(t, "the turn is over", func() bool {
					return len(admin.list(t, "messages", `chat = "`+chat+`" && engine_message_status = "completed"`)) == answers
				})
			}
			seen := func() (seq float64) {
				for _, position := range admin.list(t, "seen_positions", `chat = "`+chat+`"`) {
					seq = position["seq"].(float64)
				}
				return seq
			}
			admin.say(t, chat, "@@say The Rhine is 1,233 km long.")
			idle(1)
			b := p.openBrowser(t, size)
			b.visit("/chats/" + chat)
			b.awaitText("The Rhine")
			expect.Eventually(t, "the page says that it was seen", func() bool { return seen() > 0 })
			first := seen()

			b.visit("/")
			b.awaitCondition("that nothing is new", row+` !== null && !`+row+`.matches(".unread")`)
			admin.say(t, chat, "And the Danube?\n"+longAnswer)
			b.awaitCondition("that an answer is new", row+`?.querySelector(".new-count")?.textContent === "1 new"`)
			idle(2)
			b.screenshot("list-new")
			b.checkNoFaults()
			b.visit("/chats/" + chat)
			inSight := `(({top}) => top >= log.getBoundingClientRect().top && top < innerHeight / 2)(document.querySelector("#new-line").getBoundingClientRect())`
			b.awaitCondition("the line above what is new", inSight)
			b.awaitCondition("how much is new", `document.querySelector("#new").textContent.startsWith("1 new") && !document.querySelector("#new").hidden`)
			b.screenshot("new-line")
			b.checkNoFaults()
			is.Equal(seen(), first) // its end was not in sight
			b.click("#new")
			expect.Eventually(t, "the end was seen", func() bool { return seen() > first })
			is.True(evaluate[bool](b, `document.querySelector("#new-line") !== null`)) // while the page is open
			b.visit("/")
			b.awaitCondition("that nothing is new", row+` !== null && !`+row+`.matches(".unread")`)

			b.visit("/chats/" + chat)
			b.click("#menu > summary")
			b.fill("#tags", "rivers, "+size.name)
			b.screenshot("tags-menu")
			b.click("#tags ~ button")
			expect.Eventually(t, "the tags are stored", func() bool {
				return len(admin.list(t, "chats", `id = "`+chat+`" && tags ~ "rivers"`)) == 1
			})
			b.visit("/")
			b.click(fmt.Sprintf(`#tags a[href="/?tag=%s"]`, size.name))
			b.awaitCondition("the chat with the tag alone", row+
				` !== null && document.querySelectorAll("#chats > li").length === 1`)
			b.screenshot("tags")
			b.checkNoFaults()

			admin.say(t, chat, "@@say Another device reads this.")
			b.awaitCondition("that an answer is new", row+`?.matches(".unread")`)
			idle(3)
			p.turnEnds(t, chat) // OpenCode may change a completed message until then
			last, err := p.Log.Last(t.Context())
			is.NoErr(err)
			admin.create(t, "seen_positions", record{"chat": chat, "seq": last})
			b.awaitCondition("that another device has seen it", row+` !== null && !`+row+`.matches(".unread")`)
			b.checkNoFaults()
		})
	}
}

func TestSearchResultLeadsToItsMessage(t *testing.T) {
	t.Parallel()
	p := sharedSystem(t)
	admin := p.admin(t)
	chat := admin.create(t, "chats", record{"title": "lakes"})
	admin.say(t, chat, "@@say Lake Constance has an area of 536 square kilometres, more or less. \n"+longAnswer)
	expect.Eventually(t, "the turn is over", func() bool {
		return len(admin.list(t, "messages", `chat = "`+chat+`" && engine_message_status = "completed"`)) == 1
	})
	for _, size := range []screen{phoneScreen, desktopScreen} {
		t.Run(size.name, func(t *testing.T) {
			b := p.openBrowser(t, size)
			b.visit("/")
			b.fill("#q", "constance kilometres\r")
			b.awaitCondition("what was found", `document.querySelectorAll(".hits mark").length > 1`)
			b.screenshot("search")
			b.checkNoFaults()
			b.click(".hits a[href*=around]")
			b.awaitCondition("the message", `document.querySelector(".message:target")?.getBoundingClientRect().top > 0`)
			b.screenshot("search-target")
			b.checkNoFaults()
		})
	}
}
