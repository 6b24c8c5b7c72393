package conversation

import (
	"encoding/base64"
	"fmt"
	"io"
	"mime"
	"mime/multipart"
	"net/http"
	"strconv"
	"unicode/utf8"

	"pocketcoder/events"
	"pocketcoder/handlers/chat"
	"pocketcoder/web/api"
)

// fileLeftOut says with its name that a file does not go to the model.
const fileLeftOut = "left out: %s"

// maxFiles is the size of all files together that surely fits into a message, in bytes: base64 takes a third more.
const maxFiles = (chat.MaxMessage - 64<<10) / 4 * 3

// filesIn returns the files that a form attaches, as parts of a message.
func filesIn(r *http.Request) (parts []events.Part, err error) {
	if r.MultipartForm == nil {
		return nil, nil
	}
	for _, h := range r.MultipartForm.File["file"] {
		if h.Filename == "" { // a browser sends an empty file when none was chosen
			continue
		}
		content, err := contentOf(h)
		if err != nil {
			return nil, api.BadRequest("The file %q could not be read: %v.", api.Truncate(h.Filename, 80), err)
		}
		is := typeOf(h, content)
		parts = append(parts, events.Part{
			Type: "file", Mime: is, Filename: h.Filename, URL: "data:" + is + ";base64," + base64.StdEncoding.EncodeToString(content),
		})
	}
	return parts, nil
}

// checkSize refuses parts that are larger than a message may be.
func checkSize(parts []events.Part) error {
	size := len(api.MustJSON(parts))
	if size <= chat.MaxMessage {
		return nil
	}
	return api.Problem{Status: http.StatusRequestEntityTooLarge,
		Message: fmt.Sprintf("The message has %s with its files. The limit is %s, and a file takes a third more "+
			"than on a disk. Send fewer or smaller files.", megabytes(size), megabytes(chat.MaxMessage))}
}

func megabytes(size int) string {
	return strconv.FormatFloat(float64(size)/(1<<20), 'f', 1, 64) + " MiB"
}

func contentOf(h *multipart.FileHeader) ([]byte, error) {
	f, err := h.Open()
	if err != nil {
		return nil, fmt.Errorf("open upload: %w", err)
	}
	defer f.Close()
	return io.ReadAll(f) // the body of the request is bounded
}

// typeOf returns the type of a file. OpenCode shows a model the text of a file only if its type is text/plain.
func typeOf(h *multipart.FileHeader, content []byte) string {
	if utf8.Valid(content) {
		return "text/plain"
	}
	is, _, err := mime.ParseMediaType(h.Header.Get("Content-Type"))
	if err != nil || is == "application/octet-stream" {
		is, _, _ = mime.ParseMediaType(http.DetectContentType(content)) // it returns a valid type
	}
	return is
}
