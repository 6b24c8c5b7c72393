package main

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/chromedp/chromedp"
	"github.com/matryer/is"

	"pocketcoder/expect"
)

func TestATerminalShowsWhatCommandsPrint(t *testing.T) {
	t.Parallel()
	p := sharedSystem(t)
	admin := p.admin(t)
	for _, size := range []screen{phoneScreen, desktopScreen} {
		t.Run(size.name, func(t *testing.T) {
			is := is.New(t)
			chat := admin.create(t, "chats", record{"title": "Fix the parser"})
			runs := func(command string) {
				admin.say(t, chat, bash(command))
				admin.authorize(t, admin.asked(t, chat))
			}
			runs(`printf '\033[1;32mPASS\033[0m parser \033[33m(cached)\033[0m\n\033[31mFAIL\033[0m lexer\033[2J\n'; printf '10%%\r100%%\n' >&2; exit 3`)
			p.finished(t, chat, 0)
			b := p.openBrowser(t, size)
			b.visit("/chats/" + chat + "/terminal")
			b.sees("the colours", `document.querySelector(".stdout .bold.green")?.textContent === "PASS"`)
			b.sees("that nothing hides", "!("+invisible+")")
			expect.Contains(t, evaluate[string](b, `document.querySelector(".stderr").textContent`), "␍100%")
			until := filepath.Join(p.workspace, "until-"+size.name)
			t.Cleanup(func() { os.Remove(until) })
			runs("echo serving at port 8123; while [ ! -e until-" + size.name + " ]; do sleep 0.1; done; echo the end")
			b.sees("the output so far", `document.querySelector(".execution.executing pre.output")?.textContent === "serving at port 8123\n"`)
			b.shot("terminal")
			expect.WriteFile(t, until, "")
			b.sees("the end of the command", `[...document.querySelectorAll(".execution.completed pre")].some((e) => e.textContent.includes("the end\n"))`)
			b.fine()
			shown := evaluate[string](b, `document.querySelector("#entries").innerHTML`)
			b.do(chromedp.Reload())
			is.Equal(evaluate[string](b, `document.querySelector("#entries").innerHTML`), shown)
			b.fill("#port", "8123")
			b.click(".ports button")
			b.sees("the link to the port", `document.querySelector(".ports a")?.pathname.endsWith("/ports/8123") ?? false`)
			b.shot("terminal-port")
			b.fine()
		})
	}
}
