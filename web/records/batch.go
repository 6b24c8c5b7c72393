package records

import (
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"net/url"
	"strconv"
	"strings"

	"github.com/pocketbase/dbx"

	"pocketcoder/handlers"
	"pocketcoder/web/api"
	"pocketcoder/web/query"
)

// batch is a list of writes that all happen, or none.
type batch struct {
	Requests []batchRequest `json:"requests"` // at most 50
}

type batchRequest struct {
	Method  string                     `json:"method"` // POST, PATCH, PUT (create or update), DELETE
	URL     string                     `json:"url"`    // /api/collections/{collection}/records[/{id}]
	Headers map[string]string          `json:"headers,omitempty"`
	Body    map[string]json.RawMessage `json:"body,omitempty"`
}

type batchAnswer struct {
	Status int `json:"status"`
	Body   any `json:"body"` // the record; null when it was deleted, or when the records before it are 32 MiB
}

// maxBatch is the largest number of requests in a batch, as in PocketBase.
const maxBatch = 50

// maxBatchAnswer is how many bytes the records of an answer have at most. With expansions, each could have as many as a
// list.
const maxBatchAnswer = 32 << 20

type writeResult struct {
	c      collection
	id     string
	delete bool
	r      *http.Request // with the query of the request's own URL
}

func (s *Records) runBatch(w http.ResponseWriter, r *http.Request, caller api.Caller) error {
	var body batch
	if err := api.DecodeBody(r, &body); err != nil {
		return err
	}
	if len(body.Requests) == 0 || len(body.Requests) > maxBatch {
		return api.BadField("requests", "validation_length_out_of_range", "want 1 to %d requests, got %d", maxBatch,
			len(body.Requests))
	}
	var done []writeResult
	seq, err := handlers.Transaction(r.Context(), s.Log, func(ctx context.Context) error {
		done = nil // repeated after a conflict with another write
		fresh := createdRecords{}
		for i, one := range body.Requests {
			result, err := s.runOne(ctx, r, caller, one, fresh)
			if err != nil {
				return batchProblem(i, err)
			}
			done = append(done, result)
		}
		return nil
	})
	if err == nil {
		err = s.API.Model.Wait(r.Context(), seq)
	}
	if err != nil {
		return err
	}
	return s.API.AnswerSlowQuery(w, r, caller, func() (any, error) {
		var answers []batchAnswer
		err := s.API.Model.View(r.Context(), func(db dbx.Builder, _ uint64) (err error) {
			answers, err = s.batchAnswers(db, caller, done)
			return err
		})
		return answers, err
	})
}

// batchAnswers reads the records of a batch. It leaves out those beyond maxBatchAnswer: the batch is stored already,
// so it cannot be refused.
func (s *Records) batchAnswers(db dbx.Builder, caller api.Caller, done []writeResult) ([]batchAnswer, error) {
	answers, left := make([]batchAnswer, len(done)), maxBatchAnswer
	for i, one := range done {
		answers[i].Status = http.StatusOK
		if one.delete {
			answers[i].Status = http.StatusNoContent
		}
		if one.delete || left < 0 {
			continue
		}
		record, err := s.API.ViewIn(db, one.r, caller, one.c.Collection, one.id)
		if errors.Is(err, query.ErrNotFound) { // a later request of the batch made it invisible to the caller
			continue
		}
		if err != nil {
			return nil, err
		}
		b := record.AppendJSON(nil)
		if left -= len(b); left >= 0 {
			answers[i].Body = json.RawMessage(b)
		}
	}
	return answers, nil
}

// batchProblem names the request that failed, in the form of PocketBase. Nothing of the batch was stored.
func batchProblem(i int, err error) error {
	p := api.ProblemOf(err)
	if p.Status >= http.StatusInternalServerError {
		return err
	}
	if p.Data == nil {
		p.Data = map[string]any{}
	}
	failed := map[string]any{"code": "batch_request_failed", "message": "Batch request failed.", "response": p}
	return api.Problem{Status: http.StatusBadRequest, Message: "Batch transaction failed.", Data: map[string]any{
		"requests": map[string]any{strconv.Itoa(i): failed},
	}}
}

// runOne carries out one request inside the batch's transaction.
func (s *Records) runOne(ctx context.Context, r *http.Request, caller api.Caller, one batchRequest,
	fresh createdRecords) (done writeResult, err error) {
	at, err := url.Parse(one.URL)
	if err != nil || at.Host != "" {
		return done, api.BadField("url", "validation_invalid_value", "want a path")
	}
	path := strings.Split(strings.TrimPrefix(at.Path, "/"), "/")
	if len(path) < 4 || len(path) > 5 || path[0] != "api" || path[1] != "collections" || path[3] != "records" {
		return done, api.BadField("url", "validation_invalid_value",
			"want /api/collections/{collection}/records or a record below it")
	}
	if done.c, err = s.collectionNamed(path[2]); err != nil {
		return done, err
	}
	if done.c.notInBatch {
		return done, api.BadField("url", "validation_invalid_value", "records of %s are not changed in a batch", done.c.Name)
	}
	if len(path) == 5 {
		done.id = path[4]
	}
	done.r = r.Clone(r.Context())
	done.r.URL = at
	if err := s.checkQuery(done.r, caller, done.c); err != nil {
		return done, err
	}
	return done, s.runMethod(ctx, &done, caller, one, fresh)
}

func (s *Records) runMethod(ctx context.Context, done *writeResult, caller api.Caller, one batchRequest,
	fresh createdRecords) (err error) {
	switch {
	case one.Method == http.MethodPost && done.id == "":
		done.id, _, err = s.create(ctx, caller, done.c, one.Body, fresh, nil)
	case one.Method == http.MethodPatch && done.id != "":
		done.id, _, err = s.update(ctx, caller, done.c, done.id, one.Body, fresh)
	case one.Method == http.MethodPut && done.id == "": // create, or update what has the id
		id := textValue(one.Body["id"])
		if done.id, _, err = s.update(ctx, caller, done.c, id, one.Body, fresh); errors.Is(err, query.ErrNotFound) ||
			api.ProblemOf(err).Status == http.StatusNotFound {
			done.id, _, err = s.create(ctx, caller, done.c, one.Body, fresh, nil)
		}
	case one.Method == http.MethodDelete && done.id != "":
		done.delete = true
		_, err = s.remove(ctx, caller, done.c, done.id, fresh)
	default:
		return api.BadField("method", "validation_invalid_value", "%s is not supported at this URL",
			api.Truncate(one.Method, 10))
	}
	return err
}
