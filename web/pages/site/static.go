package site

import (
	"embed"
	"io/fs"
)

//go:embed static
var embedded embed.FS

// Static are the style sheets, scripts and icons of the web app, by their names.
var Static, _ = fs.Sub(embedded, "static") // the directory is there
