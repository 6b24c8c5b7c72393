package stream

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"time"

	"pocketcoder/events"
	"pocketcoder/web/api"
	"pocketcoder/web/query"
)

// executionOutput answers with one output stream of a command. If the command has ended, the answer is the stored
// output or ranges of it. Otherwise it is the output so far, and new output until the end.
func (s *Streams) executionOutput(w http.ResponseWriter, r *http.Request, caller api.Caller) error {
	stream := cmp.Or(r.URL.Query().Get("stream"), stdout)
	if stream != stdout && stream != stderr {
		return api.BadField("stream", "validation_invalid_value", "want stdout or stderr, got %q", api.Truncate(stream, 40))
	}
	since := s.API.Model.Seq() // taken before the record is read, so the end is in the record or follows
	x, err := s.API.Find(r.Context(), caller, "executions", r.PathValue("id"))
	if err != nil {
		return err
	}
	w.Header().Set("X-Content-Type-Options", "nosniff")
	w.Header().Set("Cache-Control", "no-store")
	if x.Text("status") != events.ExecutionRunning {
		return s.serveStored(w, r, x, stream)
	}
	chat := x.Text("chat")
	ctx, cancel := s.API.WhileAllowed(r, caller, chat, since, func() error {
		return s.API.MayView(r.Context(), caller, "executions", x.ID())
	})
	defer cancel()
	release, err := s.open.Acquire(caller, maxStreams,
		"Too many outputs of this account are being read. Close some of them.")
	if err != nil {
		return err
	}
	defer release()
	w.Header().Set("Content-Type", plainText)
	w.Header().Set("X-Accel-Buffering", "no") // nginx would keep it back
	w.WriteHeader(http.StatusOK)
	live := &liveOutput{log: s.Log, chat: chat, exec: x.ID(), stream: stream, out: api.NewDeadlineWriter(w)}
	if err := live.serve(ctx, s.API.Tail, since); err != nil {
		if ctx.Err() == nil && !errors.Is(err, api.ErrGone) {
			s.API.Logger.Error("stream output", "exec", live.exec, "err", err)
		}
		panic(http.ErrAbortHandler) // only an aborted connection tells the client that the output is incomplete
	}
	return nil
}

const (
	stdout = "stdout"
	stderr = "stderr"

	plainText = "text/plain; charset=utf-8"
)

// serveStored answers with the output of an execution that has ended.
func (s *Streams) serveStored(w http.ResponseWriter, r *http.Request, x query.Record, stream string) error {
	var outputs map[string]events.Output
	if err := json.Unmarshal(x.Get("outputs").(json.RawMessage), &outputs); err != nil {
		return fmt.Errorf("read outputs of execution %s: %w", x.ID(), err)
	}
	o := outputs[stream]
	content, err := OpenOutput(r.Context(), s.Log, o)
	if err != nil {
		return err
	}
	defer content.Close()
	w.Header().Set("Content-Type", plainText)
	if o.Base64 != nil {
		w.Header().Set("Content-Type", "application/octet-stream")
	}
	dropMultipleRanges(r)
	http.ServeContent(api.NewDeadlineWriter(w), r, "", time.Time{}, content)
	return nil
}

// dropMultipleRanges removes a request for several ranges: each would read the blob from the beginning.
func dropMultipleRanges(r *http.Request) {
	if strings.Contains(r.Header.Get("Range"), ",") {
		r.Header.Del("Range")
	}
}
