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
	"pocketcoder/expect"
	"pocketcoder/handlers"
	"pocketcoder/handlers/record"
	"pocketcoder/web/chromiumtest"
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
	expect.Long(t, "starts Chromium")
	t.Parallel()
	is := is.New(t)
	s := webtest.NewSystem(t)
	_, token := s.User(t, "ada", "user")
	chat := s.ChatWithAnswer(t, token)
	submitMessage(t, s, chat, "msg_1", written("Hello."))
	fields := record.Fields(map[string]any{"provider_id": "acme", "name": "acme", "models": []string{"blind"},
		"reads": map[string][]string{"blind": {"text"}}, "is_connected": true})
	_, seq, err := s.Records.Save(t.Context(), record.Save{Command: handlers.Command{Actor: events.ActorSystem},
		Collection: record.ModelProviderCollection, New: true, Set: fields})
	is.NoErr(err)
	is.NoErr(s.Model.Wait(t.Context(), seq))
	b := loggedIn(t, s, "ada")
	page := "/chats/" + chat
	is.Equal(b.submit(t, page+"/messages", map[string][]string{"text": {"/model acme/blind"}}).path, page)
	heic := filepath.Join(t.TempDir(), "IMG_1.HEIC")
	expect.WriteFile(t, heic, "no picture")
	jpegFile := photo(t)

	ctx := openPage(t, s, "/chats/"+chat)
	evaluate := func(expression string) string {
		t.Helper()
		return chromiumtest.Evaluate(t, ctx, expression)
	}
	await := func(what, condition string) {
		t.Helper()
		chromiumtest.Await(t, ctx, what, condition)
	}
	origin := evaluate("location.origin")
	open := func(path string) {
		t.Helper()
		chromiumtest.Load(t, ctx, chromedp.Navigate(origin+path))
	}
	choose := func(file string) {
		t.Helper()
		is.NoErr(chromedp.Do(ctx, chromedp.SetUploadFiles(chromedp.CSS("input[type=file]"), []string{file})))
	}
	write := func(text string) { evaluate(`setText(document.querySelector("#text"), "` + text + `")`) }
	const text, files = `document.querySelector("#text").value`, `document.querySelector(".files").textContent`

	// a picture that the browser cannot decode, what the model cannot read, and ×
	choose(heic)
	await("that HEIC is refused", files+`.includes("cannot convert HEIC")`)
	write("for this chat")
	evaluate(`document.querySelector(".composer").requestSubmit()`)
	await("that nothing is sent", `document.querySelector(".composer > .problem")?.textContent.includes("HEIC")`)
	is.Equal(evaluate(text), "for this chat")
	is.NoErr(chromedp.Do(ctx, chromedp.Click(chromedp.CSS(".files button"))))
	await("that the file is removed", `document.querySelector(".files").hidden`)
	choose(jpegFile)
	await("that the model cannot read it", files+`.includes("acme/blind cannot read it.")`)
	is.Equal(evaluate(files+`.includes("photo.jp")`), "true")

	// drafts, of each chat and of the home page
	open("/")
	is.Equal(evaluate(text), "")
	write("for a new chat")
	open("/chats/" + chat)
	is.Equal(evaluate(text), "for this chat")
	open("/")
	is.Equal(evaluate(text), "for a new chat")

	// the home page shows the photo, and sends what fits
	choose(jpegFile)
	await("the scaled photo", `document.querySelector("input[type=file]").files[0]?.size < 760000`)
	is.Equal(evaluate(`document.querySelectorAll(".files canvas").length`), "1")
	is.Equal(evaluate(files+`.includes("photo.jpg")`), "true")
	evaluate(`document.querySelector(".new").requestSubmit()`)
	await("the new chat", `location.pathname.startsWith("/chats/") && document.readyState === "complete"`)
	_, id, _ := strings.Cut(evaluate("location.pathname"), "/chats/")
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
	open("/")
	is.Equal(evaluate(text), "")

	// what was sent is no draft, and a logout leaves none
	open("/chats/" + chat)
	evaluate(`document.querySelector(".composer").requestSubmit()`)
	await("that the message is sent", text+` === "" && !localStorage.getItem(draftPrefix + document.querySelector(".composer").dataset.draft)`)
	write("secret")
	is.NoErr(chromedp.Do(ctx, chromedp.Click(chromedp.CSS(".account button"))))
	await("the login", `location.pathname === "/login" && document.readyState === "complete"`)
	is.Equal(evaluate(`Object.keys(localStorage).filter((key) => key.startsWith("draft ")).length`), "0")
}

func TestAReloadedSetupPageKeepsItsCode(t *testing.T) {
	expect.Long(t, "starts Chromium")
	t.Parallel()
	is := is.New(t)
	b := newBrowser(t, webtest.NewSystem(t))
	ctx := chromium.OpenTab(t)
	const code = `[document.querySelector("#code")?.value, document.querySelector("#code")?.parentElement.hidden].join()`
	chromiumtest.Load(t, ctx, chromedp.Navigate(b.url+"/setup#void"))
	is.Equal(chromiumtest.Evaluate(t, ctx, code), "void,true")
	chromiumtest.Load(t, ctx, chromedp.Navigate(b.url+"/setup"))
	is.Equal(chromiumtest.Evaluate(t, ctx, code), "void,true")
	// a code that the server refuses can be written again
	is.NoErr(chromedp.Do(ctx, chromedp.SendKeys(chromedp.CSS("#email"), "ada@example.org"),
		chromedp.SendKeys(chromedp.CSS("#password"), webtest.Password),
		chromedp.SendKeys(chromedp.CSS("#password_again"), webtest.Password), chromedp.Click(chromedp.CSS("form button"))))
	chromiumtest.Await(t, ctx, "the code is asked for", code+` === ",false"`)
}
