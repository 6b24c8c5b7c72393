// Package offline serves what the web app is without a connection: the service worker, and the page that it shows
// instead of one that it has not stored.
//
// Promises: the service worker and its page hold nothing of an account. The service worker changes with every static
// file, so that a browser that has an older one replaces it.
//
// It must not know what the service worker stores.
package offline

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"net/http"
	"strings"

	"pocketcoder/web/api"
	"pocketcoder/web/pages/site"
	"pocketcoder/web/static"
)

// Offline serves the service worker and its page.
type Offline struct{ *site.Site }

// pagePath is the address of the page that the service worker shows.
const pagePath = "/offline"

// Handle adds the service worker and its page to a mux.
func (o Offline) Handle(mux *http.ServeMux) {
	mux.Handle("GET "+pagePath, o.Open(o.showPage))
	mux.Handle("GET /sw.js", o.Open(o.serveWorker))
}

func (o Offline) showPage(w http.ResponseWriter, r *http.Request) error {
	return site.Render(w, r, http.StatusOK, page())
}

// settings are what static/sw.js needs to know.
type settings struct {
	Version string   `json:"version"` // of the files
	Files   []string `json:"files"`   // to store
	Header  string   `json:"header"`  // that names the account of a page
	// name of the header that says until when a decision counts
	Deadline string            `json:"deadline"`
	Texts    map[string]string `json:"texts"`
}

// workerTexts are the texts of notifications that the service worker shows.
var workerTexts = map[string]string{
	"decided":  "It is decided.",
	"unsent":   site.Unsent,
	"approved": "Approved.",
	"denied":   "Denied.",
	"refused":  "Refused. Open the request to see why.",
}

// serveWorker serves the service worker from the root, because it handles the requests of pages below its own path
// alone.
func (o Offline) serveWorker(w http.ResponseWriter, r *http.Request) error {
	s := settings{Files: []string{pagePath}, Header: site.AccountHeader, Deadline: api.DeadlineHeader, Texts: workerTexts}
	files, err := static.Files.ReadDir(".")
	if err != nil {
		return err
	}
	sum := sha256.New()
	if err := page().Render(r.Context(), sum); err != nil {
		return err
	}
	var program []byte
	for _, f := range files {
		content, err := static.Files.ReadFile(f.Name())
		if err != nil {
			return err
		}
		sum.Write(content)
		if f.Name() == "sw.js" {
			program = content
			continue
		}
		if !strings.HasPrefix(f.Name(), "xterm") { // large, and a shell needs a connection
			s.Files = append(s.Files, "/static/"+f.Name())
		}
	}
	s.Version = hex.EncodeToString(sum.Sum(nil)[:8])
	body := bytes.Join([][]byte{[]byte("const settings = "), api.MustJSON(s), []byte(";\n"), program}, nil)
	return api.Write(w, http.StatusOK, "text/javascript; charset=utf-8", body)
}
