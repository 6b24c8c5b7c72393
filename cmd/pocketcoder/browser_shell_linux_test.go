package main

import (
	"testing"

	"github.com/chromedp/cdproto/input"
	"github.com/chromedp/chromedp"
	"github.com/chromedp/chromedp/kb"
	"github.com/matryer/is"
)

// press presses keys as a person does: a key that the page handles itself enters no text. (SendKeys enters it all the
// same.)
func (b *tab) press(keys string) {
	b.t.Helper()
	b.do(chromedp.KeyEvent(keys, func(k *input.DispatchKeyEventParams) {
		switch {
		case k.Type == kb.KeyChar:
			k.Type, k.Text = kb.KeyUp, ""
		case k.Type == kb.KeyDown && k.Key == "Enter":
			k.Text = "\r"
		case k.Type == kb.KeyDown && len(k.Key) == 1:
			k.Text = k.Key
		}
	}))
}

func TestShellIsUsedInABrowser(t *testing.T) {
	t.Parallel()
	p := sharedSystem(t)
	admin := p.admin(t)
	is := is.New(t)
	chat := admin.create(t, "chats", record{"title": "Fix the parser"})
	b := p.openBrowser(t, phoneScreen)
	b.visit("/chats/" + chat + "/terminal")
	b.click(`.ports a[href$="/shell"]`)
	screen := `document.querySelector(".xterm-rows")?.textContent`
	b.awaitCondition("that the shell is open", `document.querySelector("#type")?.disabled === false && `+screen+
		`.trim() !== ""`)
	b.press("echo too''early\r")
	b.click("#type")
	b.press("echo h''i; printf '\\033[1;38;2;200;80;20mwarm\\033[0m \\033[32mgreen\\033[0m\\n'\r")
	b.awaitCondition("what it prints", screen+
		`.includes("warm green") && [...document.querySelectorAll(".xterm-rows > div")].some((row) => row.textContent.trim() === "hi")`)
	is.True(!evaluate[bool](b, screen+`.includes("early")`)) // it was read-only
	b.screenshot("shell")
	b.click(`[data-key="ArrowUp"]`) // a key that the keyboard lacks
	b.press("\r")
	b.awaitCondition("the command again", screen+`.match(/warm green/g).length === 2`)
	// eight times what may be on its way to the page (shell.Window)
	b.press("head -c 2000000 /dev/zero | tr '\\0' x | fold -w 70; echo all of ''it\r")
	b.awaitCondition("the end of much output", screen+`.includes("all of it")`)
	b.press("exit\r")
	b.awaitCondition("that the shell has ended",
		`document.querySelector("#state").textContent === "The shell has ended." && !document.querySelector("#again").hidden`)
	b.checkNoFaults()
	b.visit("/chats/" + chat + "/terminal")
	b.awaitCondition("the record of the shell",
		`document.querySelector(".execution.completed h2")?.textContent === "shell of a person"`)
	b.screenshot("shell-recorded")
	b.checkNoFaults()
}
