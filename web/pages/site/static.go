package site

import (
	"crypto/sha256"
	"embed"
	"encoding/hex"
	"io/fs"
	"net/http"
	"path"
)

//go:embed static
var embedded embed.FS

// Static are the style sheets, scripts and icons of the web app, by their names.
var Static, _ = fs.Sub(embedded, "static") // the directory is there

// ServeStatic serves a file of Static. A browser asks each time whether its copy is current, with a hash of the
// content.
func ServeStatic(w http.ResponseWriter, r *http.Request) {
	name := r.PathValue("file")
	content, err := fs.ReadFile(Static, name)
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
	http.ServeFileFS(w, r, Static, name)
}
