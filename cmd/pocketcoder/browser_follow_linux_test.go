package main

import (
	"fmt"
	"io"
	"net"
	"strings"
	"sync"
	"testing"

	"github.com/chromedp/chromedp"
	"github.com/matryer/is"

	"pocketcoder/expect"
)

// tunnel passes connections on to a server, unless it is cut or silent.
type tunnel struct {
	net.Listener
	to    string
	quiet sync.RWMutex // locked while the tunnel is silent

	mu    sync.Mutex
	cut   bool
	conns []net.Conn
}

func newTunnel(t *testing.T, to string) *tunnel {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	u := &tunnel{Listener: l, to: strings.TrimPrefix(to, "http://")}
	go u.serve()
	t.Cleanup(func() { u.Close(); u.set(true) })
	return u
}

func (u *tunnel) serve() {
	for {
		in, err := u.Accept()
		if err != nil {
			return
		}
		out, err := net.Dial("tcp", u.to)
		u.mu.Lock()
		if err != nil || u.cut {
			in.Close()
		} else {
			u.conns = append(u.conns, in, out)
			go u.copy(in, out)
			go u.copy(out, in)
		}
		u.mu.Unlock()
	}
}

func (u *tunnel) copy(to io.Writer, from io.Reader) {
	buffer := make([]byte, 32<<10)
	for {
		n, err := from.Read(buffer)
		u.quiet.RLock()
		_, failed := to.Write(buffer[:n])
		u.quiet.RUnlock()
		if err != nil || failed != nil {
			return
		}
	}
}

// silence holds all data back without closing a connection, as a broken radio link does, or lets it pass again.
func (u *tunnel) silence(on bool) {
	if on {
		u.quiet.Lock()
	} else {
		u.quiet.Unlock()
	}
}

// set cuts the tunnel, or opens it again.
func (u *tunnel) set(cut bool) {
	u.mu.Lock()
	defer u.mu.Unlock()
	if u.cut = cut; cut {
		for _, c := range u.conns {
			c.Close()
		}
		u.conns = nil
	}
}

// hide hides a page, as a phone in a pocket does, or shows it again.
func (b *tab) hide(hidden bool) {
	b.t.Helper()
	evaluate[bool](b, fmt.Sprintf(`(Object.defineProperty(document, "hidden", {value: %t, configurable: true}), document.dispatchEvent(new Event("visibilitychange")))`, hidden))
}

func TestPageCatchesUpAfterADisconnectOrAHiddenTab(t *testing.T) {
	t.Parallel()
	p := sharedSystem(t)
	admin := p.admin(t)
	for _, name := range []string{"cut off", "silent", "hidden"} {
		t.Run(name, func(t *testing.T) {
			is := is.New(t)
			chat := admin.create(t, "chats", record{"title": "away " + name})
			b, line := p.openBrowser(t, phoneScreen), newTunnel(t, p.HTTP)
			away := map[string]func(bool){"cut off": line.set, "silent": line.silence, "hidden": b.hide}[name]
			b.load(chromedp.Navigate("http://" + line.Addr().String() + "/chats/" + chat))
			b.fill("#text", "@@text n=300 delay=20\r")
			b.awaitText("t5 ")
			away(true)
			if name != "hidden" {
				b.awaitCondition("that the page says that it is out of date", `!document.querySelector("#offline").hidden &&
					document.querySelector("#offline").textContent.includes("out of date")`)
				b.screenshot("out-of-date-" + name[:3])
			}
			expect.Eventually(t, "the turn is over", func() bool {
				all := admin.list(t, "messages", `chat = "`+chat+`" && role = "assistant"`)
				return len(all) == 1 && all[0]["engine_message_status"] == "completed"
			})
			admin.say(t, chat, "@@say meanwhile")
			expect.Eventually(t, "the next answer is there", func() bool {
				all := admin.list(t, "messages", `chat = "`+chat+`" && role = "assistant" && engine_message_status = "completed"`)
				return len(all) == 2
			})
			// it was away
			is.True(!evaluate[bool](b, `document.querySelector("#log").textContent.includes("Assistantmeanwhile")`))
			away(false)
			b.awaitText("Assistantmeanwhile")
			b.awaitCondition("that the page is connected", `document.querySelector("#offline").hidden`)
			b.awaitCondition("that the turn is over", `document.querySelector("#head form") === null && document.querySelector(".writing") === null`)
			b.checkEqualsFreshLoad()
		})
	}
}

func TestTypedTextSurvivesTwoThousandFragments(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	p := sharedSystem(t)
	chat := p.admin(t).create(t, "chats", record{"title": "fragments"})
	b := p.openBrowser(t, desktopScreen)
	b.visit("/chats/" + chat)
	b.fill("#text", "@@text n=2000 delay=1\r")
	b.awaitText("t5 ")
	b.fill("#text", "my own words")
	evaluate[bool](b, `(document.querySelector("#text").setSelectionRange(3, 6), true)`)
	b.awaitText("t1999")
	b.awaitCondition("that the turn is over", `document.querySelector("#head form") === null && document.querySelector(".writing") === null`)
	is.Equal(evaluate[string](b, `(() => { const t = document.querySelector("#text"); return [t === document.activeElement, t.value.trim(), t.selectionStart, t.selectionEnd].join("|") })()`), "true|my own words|3|6")
	order := evaluate[string](b, `[...document.querySelector(".message.assistant").textContent.matchAll(/t(\d+)/g)].map((m) => m[1]).join()`)
	var want []byte
	for i := range 2000 {
		want = fmt.Appendf(want, "%d,", i)
	}
	is.Equal(order, string(want[:len(want)-1]))
}

func TestCommandOutputAppearsInTheChat(t *testing.T) {
	t.Parallel()
	p := sharedSystem(t)
	admin := p.admin(t)
	chat := admin.create(t, "chats", record{"title": "live output"})
	b := p.openBrowser(t, phoneScreen)
	b.visit("/chats/" + chat)
	admin.say(t, chat, bash("for i in 1 2 3; do echo line $i; done; while [ ! -e go-on ]; do sleep 0.1; done; echo the end"))
	request := admin.awaitRequest(t, chat)
	admin.authorize(t, request)
	b.awaitCondition("the output so far", `document.querySelector("pre.output")?.textContent === "line 1\nline 2\nline 3\n"`)
	b.screenshot("live-output")
	b.checkNoFaults()
	expect.WriteFile(t, p.workspace+"/go-on", "")
	b.awaitCondition("that the command has ended",
		`document.querySelector("pre.output") === null && document.querySelector(".tool .mark.completed") !== null`)
	b.awaitCondition("that the turn is over", `document.querySelector("#head form") === null`)
}
