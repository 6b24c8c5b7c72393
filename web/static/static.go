// Package static holds the style sheets, scripts and icons of the web app.
package static

import "embed"

// Files are the files by their names.
//
//go:embed *.css *.js *.svg *.png *.webmanifest
var Files embed.FS
