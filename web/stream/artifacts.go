package stream

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"io"
	"net/http"
	"time"

	"pocketcoder/projections"
	"pocketcoder/web/api"
)

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
