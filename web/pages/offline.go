package pages

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"io/fs"
	"net/http"
	"strings"

	"pocketcoder/web/api"
	"pocketcoder/web/pages/site"
)

// offlinePath is the address of the page that the service worker shows.
const offlinePath = "/offline"

func (p Pages) showOffline(w http.ResponseWriter, r *http.Request) error {
	return site.Render(w, r, http.StatusOK, offlinePage())
}

// serviceWorkerSettings are what static/sw.js needs to know.
type serviceWorkerSettings struct {
	Version string   `json:"version"` // of the files
	Files   []string `json:"files"`   // to store
	Header  string   `json:"header"`  // that names the account of a page
	// name of the header that says until when a decision counts
	Deadline string            `json:"deadline"`
	Texts    map[string]string `json:"texts"`
}

// notificationTexts are the texts of notifications that the service worker shows.
var notificationTexts = map[string]string{
	"decided":  "It is decided.",
	"unsent":   site.Unsent,
	"approved": "Approved.",
	"denied":   "Denied.",
	"refused":  "Refused. Open the request to see why.",
}

// serveServiceWorker serves the service worker from the root, because it handles the requests of pages below its own
// path alone. It changes with every static file, so that a browser that has an older one replaces it.
func (p Pages) serveServiceWorker(w http.ResponseWriter, r *http.Request) error {
	s := serviceWorkerSettings{Files: []string{offlinePath}, Header: site.AccountHeader, Deadline: api.DeadlineHeader,
		Texts: notificationTexts}
	files, err := fs.ReadDir(site.Static, ".")
	if err != nil {
		return err
	}
	sum := sha256.New()
	if err := offlinePage().Render(r.Context(), sum); err != nil {
		return err
	}
	var program []byte
	for _, f := range files {
		content, err := fs.ReadFile(site.Static, f.Name())
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
