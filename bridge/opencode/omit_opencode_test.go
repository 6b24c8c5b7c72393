package opencode_test

import (
	"encoding/base64"
	"path/filepath"
	"strings"
	"testing"

	"github.com/matryer/is"
	"github.com/pocketbase/dbx"

	"pocketcoder/events"
	"pocketcoder/handlers"
	"pocketcoder/handlers/chat"
	"pocketcoder/ops/expect"
	"pocketcoder/projections"
	"pocketcoder/projections/timeline"
)

// pictureRefused is what the model's server says about each picture.
const pictureRefused = "Could not process image"

// picture is a PNG of one pixel.
const picture = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=="

// A provider refuses each request with a picture: one that a person attached, and one that the model read.
func refusedPictureIsLeftOut(t *testing.T, w *bridgedOpenCode) {
	is := is.New(t)
	content, err := base64.StdEncoding.DecodeString(picture)
	is.NoErr(err)
	expect.WriteFile(t, filepath.Join(w.workspace, "omit", "read.png"), string(content))
	id := w.chat()
	attach := func(name string) {
		t.Helper()
		_, seq, err := w.outbox.Chats.SubmitMessage(t.Context(), chat.SubmitMessage{Chat: id, Parts: []events.Part{
			{Type: "text", Text: "@@say what " + name + " shows"},
			{Type: "file", Filename: name, Mime: "image/png", URL: "data:image/png;base64," + picture}}})
		is.NoErr(err)
		is.NoErr(w.model.Wait(t.Context(), seq))
	}
	refused := func() string {
		t.Helper()
		payload := ""
		expect.Eventually(t, "the provider refuses", func() bool {
			all, err := w.model.Messages(t.Context(), id)
			is.NoErr(err)
			payload = ""
			if len(all) > 0 {
				payload = string(all[len(all)-1].ErrorPayload)
			}
			return payload != "" && w.row(id).Turn == projections.TurnUser
		})
		return payload
	}
	omit := func(command string, names ...string) {
		t.Helper()
		var offer timeline.Offer
		is.NoErr(w.model.View(t.Context(), func(db dbx.Builder, _ uint64) (err error) {
			offer, err = timeline.ReadOffer(t.Context(), db, id, w.row(id).Session)
			return err
		}))
		is.Equal(offer.Names(), names) // the page offers the same files
		files, seq, err := w.outbox.Chats.Omit(t.Context(), chat.Omit{Command: handlers.Command{ID: command}, Chat: id})
		is.NoErr(err)
		var got []string
		for _, f := range files {
			got = append(got, f.Name)
		}
		is.Equal(got, names)
		is.NoErr(w.model.Wait(t.Context(), seq))
	}
	attach("photo.png")
	expect.Contains(t, refused(), pictureRefused)
	attach("second.png")
	refused()
	omit("c1", "photo.png", "second.png")
	w.say(id, "@@say answered") // at once: it waits for the omission
	text, _ := w.shown(id)
	is.True(strings.HasSuffix(text, "|@@say answered|answered"))
	expect.Contains(t, text, "[photo.png was left out: the provider refused it]")
	expect.Contains(t, w.requests(), "[second.png was left out: the provider refused it]")

	w.say(id, `@@call read {"filePath":"`+filepath.Join(w.workspace, "omit", "read.png")+"\"}\n@@next\n@@say seen")
	expect.Contains(t, refused(), pictureRefused)
	omit("c2", "read.png")
	w.say(id, "@@say the end")
	text, _ = w.shown(id)
	is.True(strings.HasSuffix(text, "@@say the end|the end"))
	expect.Contains(t, w.requests(), "[read.png was left out: the provider refused it]")

	into := w.fork(id, "") // it has no picture either
	w.say(into, "@@say of the fork")
	text, _ = w.shown(into)
	is.True(strings.HasSuffix(text, "|of the fork"))
}
