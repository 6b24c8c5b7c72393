package stream

import (
	"bytes"
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"mime"
	"net/http"
	"os"
	"path"
	"slices"
	"strings"
	"syscall"
	"time"

	"pocketcoder/events"
	"pocketcoder/projections"
	"pocketcoder/sandbox/realdir"
	"pocketcoder/web/api"
)

// directory is a list of files.
type directory struct {
	Path      string  `json:"path"` // from the workspace; empty for itself
	Entries   []entry `json:"entries"`
	Truncated bool    `json:"truncated"` // the directory has more entries
}

type entry struct {
	Name     string `json:"name"`
	Type     string `json:"type"` // file, directory, symlink, other
	Size     int64  `json:"size"` // bytes; of files only
	Modified string `json:"modified"`
}

// maxEntries is the largest number of entries in a list.
const maxEntries = 10_000

// listFiles answers with the entries of a directory of the workspace.
func (s *Streams) listFiles(w http.ResponseWriter, r *http.Request, _ api.Caller) error {
	name := strings.TrimSuffix(r.PathValue("path"), "/")
	root, err := s.openWorkspace()
	if err != nil {
		return err
	}
	defer root.Close()
	if name != "" {
		info, err := lookUp(root, name)
		if err != nil {
			return err
		}
		if !info.IsDir() {
			return api.BadRequest("%q is not a directory.", api.Truncate(name, 200))
		}
	}
	within, err := root.OpenRoot(cmp.Or(name, "."))
	if err != nil {
		return fileProblem(err)
	}
	defer within.Close()
	listing, err := list(within)
	if err != nil {
		return err
	}
	listing.Path = name
	return api.WriteJSON(w, http.StatusOK, listing)
}

// list reads a directory, at most maxEntries entries.
func list(root *os.Root) (directory, error) {
	d, err := root.Open(".")
	if err != nil {
		return directory{}, fileProblem(err)
	}
	defer d.Close()
	names, err := d.Readdirnames(maxEntries + 1)
	if err != nil && !errors.Is(err, io.EOF) {
		return directory{}, fileProblem(err)
	}
	listing := directory{Entries: []entry{}, Truncated: len(names) > maxEntries}
	for _, name := range names[:min(len(names), maxEntries)] {
		info, err := root.Lstat(name)
		if err != nil {
			continue // it was deleted meanwhile
		}
		e := entry{Name: strings.ToValidUTF8(name, "\uFFFD"), Type: "other",
			Modified: events.FormatTime(info.ModTime())}
		switch mode := info.Mode(); {
		case mode.IsRegular():
			e.Type, e.Size = "file", info.Size()
		case mode.IsDir():
			e.Type = "directory"
		case mode&fs.ModeSymlink != 0:
			e.Type = "symlink"
		}
		listing.Entries = append(listing.Entries, e)
	}
	slices.SortFunc(listing.Entries, func(a, b entry) int { return cmp.Compare(a.Name, b.Name) })
	return listing, nil
}

// inlineTypes are the types of files that a browser may show: it cannot run them. Other files are downloads.
var inlineTypes = map[string]string{
	".txt": "text/plain; charset=utf-8", ".md": "text/plain; charset=utf-8", ".log": "text/plain; charset=utf-8",
	".png": "image/png", ".jpg": "image/jpeg", ".jpeg": "image/jpeg", ".gif": "image/gif", ".webp": "image/webp", ".pdf": "application/pdf",
}

// artifact answers with a file of the workspace, or ranges of it.
func (s *Streams) artifact(w http.ResponseWriter, r *http.Request, _ api.Caller) error {
	f, info, err := s.openFile(r.PathValue("path"))
	if err != nil {
		return err
	}
	defer f.Close()
	serveFile(w, r, r.PathValue("path"), info.ModTime(), f)
	return nil
}

func (s *Streams) openFile(name string) (*os.File, fs.FileInfo, error) {
	root, err := s.openWorkspace()
	if err != nil {
		return nil, nil, err
	}
	defer root.Close()
	info, err := lookUp(root, name)
	if err != nil {
		return nil, nil, err
	}
	notFile := api.BadRequest("%q is not a file.", api.Truncate(name, 200))
	if !info.Mode().IsRegular() {
		return nil, nil, notFile
	}
	f, info, err := realdir.OpenFile(root, name)
	if errors.Is(err, realdir.ErrNotRegular) { // it was replaced
		return nil, nil, notFile
	}
	if err != nil {
		return nil, nil, fileProblem(err)
	}
	return f, info, nil
}

// serveFile answers with a file that we do not trust, or ranges of it.
func serveFile(w http.ResponseWriter, r *http.Request, name string, modified time.Time, content io.ReadSeeker) {
	h := w.Header()
	media, ok := inlineTypes[strings.ToLower(path.Ext(name))]
	if !ok {
		media = "application/octet-stream"
		h.Set("Content-Disposition", mime.FormatMediaType("attachment", map[string]string{"filename": path.Base(name)}))
	}
	h.Set("Content-Type", media)
	h.Set("X-Content-Type-Options", "nosniff")
	h.Set("Content-Security-Policy", "sandbox; default-src 'none'")
	h.Set("Cache-Control", "private, no-cache")
	http.ServeContent(api.NewDeadlineWriter(w), r, "", modified, content)
}

func (s *Streams) openWorkspace() (*os.Root, error) {
	root, err := os.OpenRoot(s.Workspace)
	if err != nil {
		return nil, fmt.Errorf("open workspace: %w", err)
	}
	return root, nil
}

// lookUp finds a file by a path of a client. It refuses symbolic links in any part of the path: they may lead out of
// the workspace.
func lookUp(root *os.Root, name string) (info fs.FileInfo, err error) {
	if len(name) > maxPath || !fs.ValidPath(name) || strings.ContainsAny(name, "\x00\\") {
		return nil, api.Forbidden("A path must be names of a file in the workspace with slashes between them.")
	}
	parts := strings.Split(name, "/")
	for i := range parts {
		info, err = root.Lstat(strings.Join(parts[:i+1], "/"))
		if err != nil {
			return nil, fileProblem(err)
		}
		if info.Mode()&fs.ModeSymlink != 0 {
			return nil, api.Forbidden("Symbolic links are not followed.")
		}
	}
	return info, nil
}

// maxPath is the longest path in bytes; the system's own limit is the same.
const maxPath = 4096

// fileProblem is the answer if a file cannot be read. It hides the reason from the client.
func fileProblem(err error) error {
	if errors.Is(err, fs.ErrNotExist) || errors.Is(err, syscall.ENOTDIR) || errors.Is(err, syscall.ENAMETOOLONG) {
		return api.NotFound()
	}
	return api.Forbidden("This file cannot be read.")
}

// executionArtifact answers with a file as a command left it: the stored copy, or the file itself if it has not
// changed.
func (s *Streams) executionArtifact(w http.ResponseWriter, r *http.Request, caller api.Caller) error {
	x, err := s.API.Find(r.Context(), caller, "executions", r.PathValue("id"))
	if err != nil {
		return err
	}
	a, found, err := s.API.Model.ArtifactOf(r.Context(), x.ID(), r.PathValue("path"))
	if err != nil {
		return err
	}
	if !found {
		return api.NotFound()
	}
	return s.serveArtifact(w, r, a)
}

// artifactContent answers with a file that the assistant sent, or that a command left.
func (s *Streams) artifactContent(w http.ResponseWriter, r *http.Request, caller api.Caller) error {
	row, err := s.API.Find(r.Context(), caller, "artifacts", r.PathValue("id"))
	if err != nil {
		return err
	}
	a, found, err := s.API.Model.Artifact(r.Context(), row.ID())
	if err != nil {
		return err
	}
	if !found {
		return api.NotFound()
	}
	return s.serveArtifact(w, r, a)
}

func (s *Streams) serveArtifact(w http.ResponseWriter, r *http.Request, a projections.Artifact) error {
	content, err := s.openArtifact(r, a)
	if err != nil {
		return err
	}
	defer content.Close()
	dropMultipleRanges(r)
	w.Header().Set("ETag", `"`+a.SHA256+`"`)
	serveFile(w, r, a.Path, time.Time{}, content)
	return nil
}

func (s *Streams) openArtifact(r *http.Request, a projections.Artifact) (io.ReadSeekCloser, error) {
	switch {
	case a.Blob != "":
		return openBlob(r.Context(), s.Log, a.Blob, a.Size)
	case a.Size == 0 && a.SHA256 != "":
		return inlineContent{bytes.NewReader(nil)}, nil
	case a.SHA256 == "":
		return nil, api.Problem{Status: http.StatusGone,
			Message: "The file was too large to copy or to hash, so it is unknown whether it is still what the command left."}
	}
	changed := api.Problem{Status: http.StatusGone,
		Message: "The file has changed since the command left it, and no copy was stored: it was too large, or held a secret."}
	f, info, err := s.openFile(a.Path)
	if errors.As(err, new(api.Problem)) {
		return nil, changed
	}
	if err != nil {
		return nil, err
	}
	sum := sha256.New()
	if info.Size() == a.Size {
		if _, err = io.Copy(sum, f); err == nil {
			_, err = f.Seek(0, io.SeekStart)
		}
	}
	if err == nil && hex.EncodeToString(sum.Sum(nil)) == a.SHA256 {
		return f, nil
	}
	f.Close()
	return nil, changed
}
