package conversation

import (
	"encoding/base64"
	"fmt"
	"io"
	"mime"
	"mime/multipart"
	"net/http"
	"unicode/utf8"

	"pocketcoder/events"
	"pocketcoder/web/api"
)

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
