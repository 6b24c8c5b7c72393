package main

import (
	"fmt"
	"testing"

	"github.com/chromedp/chromedp"
	"github.com/matryer/is"
)

func TestRequestsAreDecidedWithKeysAndByARule(t *testing.T) {
	t.Parallel()
	p := sharedSystem(t)
	admin := p.admin(t)
	for _, size := range []screen{phoneScreen, desktopScreen} {
		t.Run(size.name, func(t *testing.T) {
			is := is.New(t)
			var chats []string
			for i := range 3 {
				chat := admin.create(t, "chats", record{"title": fmt.Sprintf("keys %s %d", size.name, i)})
				chats = append(chats, chat)
				admin.say(t, chat, bash(fmt.Sprintf("touch %s-%d.txt", size.name, i/2))) // the first two ask for the same
				admin.awaitRequest(t, chat)
			}
			b := p.openBrowser(t, size)
			b.visit("/requests")
			ofChat := func(i int) string {
				return fmt.Sprintf(`[...document.querySelectorAll(".card")].find((c) => c.querySelector('a[href="/chats/%s"]'))`,
					chats[i])
			}
			b.awaitCondition("the third request", ofChat(2)+" !== undefined")
			b.screenshot("requests-grouped")
			b.checkNoFaults()
			evaluate[bool](b, ofChat(2)+".focus() ?? true")
			b.do(chromedp.KeyEvent("d"))
			b.awaitCondition("that it was denied", ofChat(2)+" === undefined")
			b.awaitCondition("that the first two are decided together", ofChat(0)+`.previousElementSibling?.matches(".group")`)
			evaluate[bool](b, ofChat(0)+`.previousElementSibling.querySelector("[value=authorized]").click() ?? true`)
			b.awaitCondition("that both were approved", ofChat(0)+" === undefined && "+ofChat(1)+" === undefined")

			admin.say(t, chats[0], bash("touch always-"+size.name+".txt"))
			id := admin.awaitRequest(t, chats[0])["id"].(string)
			b.visit("/chats/" + chats[0])
			b.awaitCondition("the link to a rule", `document.querySelector(".card.draft .more a") !== null`)
			b.click(".card.draft .more a")
			b.awaitCondition("the rule", `document.querySelector(".always section button") !== null`)
			evaluate[bool](b, `(document.querySelector("#pattern").value = "touch *", true)`)
			b.click(".rule button")
			b.awaitCondition("what the rule would have allowed", `document.querySelectorAll(".tried li").length >= 2`)
			b.screenshot("always")
			b.checkNoFaults()
			b.click(".always section button")
			b.awaitCondition("the decision", `document.querySelector(".card.authorized") !== null`)
			is.Equal(admin.list(t, "permissions", `id = "`+id+`"`)[0]["status"], "authorized")
		})
	}
}
