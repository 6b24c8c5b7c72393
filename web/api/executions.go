package api

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"io"
	"net/http"
	"time"

	"pocketcoder/handlers"
	"pocketcoder/projections"
)

// signalRequest names the signal: one that ends the command when it names none.
type signalRequest struct {
	Signal string `json:"signal,omitempty"`
}

// signalExecution sends a signal to a command that runs, for who may write in its chat; agents may not.
func (s *Server) signalExecution(w http.ResponseWriter, r *http.Request, who caller) error {
	x, err := s.seen(r.Context(), who, r, "executions", r.PathValue("id"))
	if err != nil {
		return err
	}
	if err := s.personOf(r, who, x.Get("chat").(string)); err != nil {
		return err
	}
	var body signalRequest
	if err := decodeBody(r, &body); err != nil {
		return err
	}
	_, err = s.Sandbox.Signal(r.Context(), handlers.SignalExecution{Command: handlers.Command{Actor: who.actor()}, Execution: x.ID(), Signal: body.Signal})
	if refused := (handlers.Refused{}); errors.As(err, &refused) && refused.Code == handlers.Conflict {
		return problem{Status: http.StatusConflict, Message: refused.Text}
	}
	if err != nil {
		return err
	}
	w.WriteHeader(http.StatusNoContent)
	return nil
}

// personOf lets in who may do with a chat what its owner may, but no agent.
func (s *Server) personOf(r *http.Request, who caller, chat string) error {
	if err := s.mayWrite(r, who, chat); err != nil {
		return err
	}
	if who.is("agent") {
		return forbidden("This is for people to do.")
	}
	return nil
}

// executionArtifact answers with a file as a command left it: the copy that was kept, or the file itself while it is still that.
func (s *Server) executionArtifact(w http.ResponseWriter, r *http.Request, who caller) error {
	x, err := s.seen(r.Context(), who, r, "executions", r.PathValue("id"))
	if err != nil {
		return err
	}
	a, found, err := s.Model.Artifact(r.Context(), x.ID(), r.PathValue("path"))
	if err != nil {
		return err
	}
	if !found {
		return notFound()
	}
	content, err := s.openArtifact(r, a)
	if err != nil {
		return err
	}
	defer content.Close()
	oneRange(r)
	w.Header().Set("ETag", `"`+a.SHA256+`"`)
	serveFile(w, r, a.Path, time.Time{}, content)
	return nil
}

func (s *Server) openArtifact(r *http.Request, a projections.Artifact) (io.ReadSeekCloser, error) {
	switch {
	case a.Blob != "":
		return openBlob(r.Context(), s.Log, a.Blob, a.Size)
	case a.Size == 0 && a.SHA256 != "":
		return inlineContent{bytes.NewReader(nil)}, nil
	case a.SHA256 == "":
		return nil, problem{Status: http.StatusGone, Message: "No copy was kept, and nothing by which to tell whether the file is still what the command left: it was too large for that."}
	}
	changed := problem{Status: http.StatusGone, Message: "The file is not what the command left any more, and no copy was kept: it was too large, or held a secret."}
	f, info, err := s.openFile(a.Path)
	if errors.As(err, new(problem)) {
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
