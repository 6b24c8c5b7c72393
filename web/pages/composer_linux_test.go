package pages_test

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"image"
	"image/jpeg"
	"math/rand/v2"
	"path/filepath"
	"strings"
	"testing"

	"github.com/chromedp/chromedp"
	"github.com/matryer/is"

	"pocketcoder/events"
	"pocketcoder/handlers"
	"pocketcoder/handlers/model"
	"pocketcoder/handlers/record"
	"pocketcoder/ops/expect"
	"pocketcoder/web/webtest"
)

// photo writes a JPEG of more than 1.5 MB, as a phone takes it.
func photo(t *testing.T) (path string) {
	t.Helper()
	random := rand.New(rand.NewPCG(1, 2))
	picture := image.NewGray(image.Rect(0, 0, 2800, 2100))
	for i := range picture.Pix {
		picture.Pix[i] = byte(random.UintN(256))
	}
	var b bytes.Buffer
	webtest.Check(t, jpeg.Encode(&b, picture, &jpeg.Options{Quality: 80}))
	if b.Len() < 1_500_000 {
		t.Fatalf("the photo has %d bytes", b.Len())
	}
	path = filepath.Join(t.TempDir(), "photo.jpeg")
	expect.WriteFile(t, path, b.String())
	return path
}

func TestAComposerFitsPhotosAndKeepsWhatWasNotSent(t *testing.T) {
	expect.Slow(t, "starts Chromium")
	t.Parallel()
	is := is.New(t)
	s := webtest.NewSystem(t)
	_, token := s.User(t, "ada", "user")
	chat := s.ChatWithAnswer(t, token)
	submitMessage(t, s, chat, "msg_1", written("Hello."))
	fields := record.Fields(map[string]any{"provider_id": "acme", "name": "acme", "models": []string{"blind"},
		"reads": map[string][]string{"blind": {"text"}}, "is_connected": true})
	_, seq, err := s.Records.Save(t.Context(), record.Save{Command: handlers.Command{Actor: events.ActorSystem},
		Collection: model.Providers, New: true, Set: fields})
	is.NoErr(err)
	is.NoErr(s.Model.Wait(t.Context(), seq))
	b := loggedIn(t, s, "ada")
	page := "/chats/" + chat
	is.Equal(b.submit(t, page+"/messages", map[string][]string{"text": {"/model acme/blind"}}).path, page)
	heic := filepath.Join(t.TempDir(), "IMG_1.HEIC")
	expect.WriteFile(t, heic, "no picture")
	jpegFile := photo(t)

	d := openPage(t, s, "/chats/"+chat)
	choose := func(file string) {
		t.Helper()
		d.do(chromedp.SetUploadFiles(chromedp.CSS("input[type=file]"), []string{file}))
	}
	write := func(text string) { d.evaluate(`setText(document.querySelector("#text"), "` + text + `")`) }
	const text, files = `document.querySelector("#text").value`, `document.querySelector(".files").textContent`

	// a picture that the browser cannot decode, what the model cannot read, and ×
	choose(heic)
	d.sees("that HEIC is refused", files+`.includes("cannot convert HEIC")`)
	write("for this chat")
	d.evaluate(`document.querySelector(".composer").requestSubmit()`)
	d.sees("that nothing is sent", `document.querySelector(".composer > .problem")?.textContent.includes("HEIC")`)
	is.Equal(d.evaluate(text), "for this chat")
	d.do(chromedp.Click(chromedp.CSS(".files button")))
	d.sees("that the file is removed", `document.querySelector(".files").hidden`)
	choose(jpegFile)
	d.sees("that the model cannot read it", files+`.includes("acme/blind cannot read it.")`)
	is.Equal(d.evaluate(files+`.includes("photo.jp")`), "true")

	// drafts, of each chat and of the home page
	d.visit("/")
	is.Equal(d.evaluate(text), "")
	write("for a new chat")
	d.visit("/chats/" + chat)
	is.Equal(d.evaluate(text), "for this chat")
	d.visit("/")
	is.Equal(d.evaluate(text), "for a new chat")

	// the home page shows the photo, and sends what fits
	choose(jpegFile)
	d.sees("the scaled photo", `document.querySelector("input[type=file]").files[0]?.size < 760000`)
	is.Equal(d.evaluate(`document.querySelectorAll(".files canvas").length`), "1")
	is.Equal(d.evaluate(files+`.includes("photo.jpg")`), "true")
	d.evaluate(`document.querySelector(".new").requestSubmit()`)
	d.sees("the new chat", `location.pathname.startsWith("/chats/") && document.readyState === "complete"`)
	_, id, _ := strings.Cut(d.evaluate("location.pathname"), "/chats/")
	_, list := s.Call(t, token, "GET", webtest.RecordsPath("messages")+`?filter=chat%3D"`+id+`"`, nil)
	parts, err := json.Marshal(list["items"].([]any)[0].(webtest.Object)["parts"])
	is.NoErr(err)
	var sent []events.Part
	is.NoErr(json.Unmarshal(parts, &sent))
	is.Equal([]string{sent[0].Text, sent[1].Mime}, []string{"for a new chat", "image/jpeg"})
	content, err := base64.StdEncoding.DecodeString(strings.TrimPrefix(sent[1].URL, "data:image/jpeg;base64,"))
	is.NoErr(err)
	is.True(len(content) < 760_000)
	scaled, err := jpeg.DecodeConfig(bytes.NewReader(content))
	is.NoErr(err)
	is.True(scaled.Width <= 2000)
	d.visit("/")
	is.Equal(d.evaluate(text), "")

	// what was sent is no draft, and a logout leaves none
	d.visit("/chats/" + chat)
	d.evaluate(`document.querySelector(".composer").requestSubmit()`)
	d.sees("that the message is sent", text+` === "" && !localStorage.getItem(draftPrefix + document.querySelector(".composer").dataset.draft)`)
	write("secret")
	d.do(chromedp.Click(chromedp.CSS(".account button")))
	d.sees("the login", `location.pathname === "/login" && document.readyState === "complete"`)
	is.Equal(d.evaluate(`Object.keys(localStorage).filter((key) => key.startsWith("draft ")).length`), "0")
}

func TestAReloadedSetupPageKeepsItsCode(t *testing.T) {
	expect.Slow(t, "starts Chromium")
	t.Parallel()
	is := is.New(t)
	d := newDevice(t, newBrowser(t, webtest.NewSystem(t)).url)
	const code = `[document.querySelector("#code")?.value, document.querySelector("#code")?.parentElement.hidden].join()`
	d.visit("/setup#void")
	is.Equal(d.evaluate(code), "void,true")
	d.visit("/setup")
	is.Equal(d.evaluate(code), "void,true")
	// a code that the server refuses can be written again
	d.do(chromedp.SendKeys(chromedp.CSS("#email"), "ada@example.org"),
		chromedp.SendKeys(chromedp.CSS("#password"), webtest.Password),
		chromedp.SendKeys(chromedp.CSS("#password_again"), webtest.Password), chromedp.Click(chromedp.CSS("form button")))
	d.sees("the code is asked for", code+` === ",false"`)
}

func TestAComposerSendsFilesAndListsCommands(t *testing.T) {
	expect.Slow(t, "starts Chromium")
	t.Parallel()
	is := is.New(t)
	s := webtest.NewSystem(t)
	_, token := s.User(t, "ada", "user")
	chat := s.ChatWithAnswer(t, token)
	submitMessage(t, s, chat, "msg_1", written("Hello."))
	notes := filepath.Join(t.TempDir(), "notes.txt")
	expect.WriteFile(t, notes, "the Rhine is long\n")
	d := openPage(t, s, "/chats/"+chat)
	d.do(chromedp.SetUploadFiles(chromedp.CSS("input[type=file]"), []string{notes}))
	d.sees("that one file is attached", `document.querySelector(".files").textContent.includes("notes.txt")`)
	d.fill("#text", "Read this.")
	d.screenshot("attached")
	d.evaluate(`(window.sendAway = fetch, window.fetch = () => Promise.reject(), true)`)
	d.click("#send button")
	d.sees("that the message was not sent", `document.querySelector(".composer .problem") !== null`)
	is.Equal(d.evaluate(`[text.value, document.querySelector("input[type=file]").files.length]`), "Read this.,1")
	d.evaluate(`(window.fetch = sendAway, true)`)
	d.click("#send button")
	d.sees("the message", `document.querySelector("#queue")?.textContent.includes("Read this.")`)
	is.Equal(d.evaluate(`document.querySelector("#entries").textContent.includes("notes.txt")`), "true")

	d.fill("#text", "/")
	d.sees("the commands", `!document.querySelector("#commands").hidden && document.querySelectorAll("#commands li:not([hidden])").length > 5`)
	d.screenshot("commands")
	d.fill("#text", "ren")
	d.sees("one command", `document.querySelectorAll("#commands li:not([hidden])").length === 1`)
	d.click("#commands li:not([hidden])")
	d.fill("#text", " Rivers\r")
	d.sees("the new title", `document.querySelector("h1").textContent === "Rivers"`)
	d.sees("that the commands are gone", `document.querySelector("#commands").hidden`)

	// the Enter of an input method sends nothing, as Safari reports it
	is.Equal(d.evaluate(`text.dispatchEvent(new KeyboardEvent("keydown", { key: "Enter", keyCode: 229, bubbles: true, cancelable: true }))`), "true")
	// a field grows with its text also in a browser without field-sizing
	is.Equal(d.evaluate(`(() => {
		text.style.fieldSizing = "fixed";
		const [high, low] = ["one\ntwo\nthree", "one"].map((value) => {
			text.value = value;
			fitHeight(text);
			return { shown: text.clientHeight, needed: text.scrollHeight };
		});
		text.value = text.style = "";
		return high.needed <= high.shown && low.shown < high.shown;
	})()`), "true")
	d.fill("#text", "/fork\r")
	d.sees("the new chat", `location.pathname.startsWith("/chats/") && !location.pathname.includes("`+chat+`")`)
	d.checkNoFaults()
}
