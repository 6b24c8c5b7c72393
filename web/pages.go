package web

import (
	"crypto/sha256"
	"encoding/hex"
	"io/fs"
	"net/http"
	"path"

	"github.com/a-h/templ"

	"pocketcoder/web/pages/site"
)

// page serves a page that is the same for everyone.
func page(c templ.Component) http.Handler {
	shown := templ.Handler(c)
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		site.SetHeaders(w.Header())
		w.Header().Set("Cache-Control", "no-cache")
		shown.ServeHTTP(w, r)
	})
}

// staticFiles serves the files of site.Static. A browser asks each time whether its copy is current, with a hash of
// the content.
func staticFiles() http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		name := r.PathValue("file")
		content, err := fs.ReadFile(site.Static, name)
		if err != nil {
			http.NotFound(w, r)
			return
		}
		sum := sha256.Sum256(content)
		w.Header().Set("ETag", `"`+hex.EncodeToString(sum[:8])+`"`)
		w.Header().Set("Cache-Control", "no-cache")
		if path.Ext(name) == ".webmanifest" { // which Go does not know
			w.Header().Set("Content-Type", "application/manifest+json")
		}
		http.ServeFileFS(w, r, site.Static, name)
	})
}
