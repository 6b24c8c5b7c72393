package archive

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
)

// Stream is a stream of a server, over a connection that may use the JetStream API.
type Stream struct {
	Conn *nats.Conn
	Name string
}

// State holds the number, size and sequences of a stream's messages.
type State struct {
	Messages uint64 `json:"messages"`
	Bytes    uint64 `json:"bytes"`
	First    uint64 `json:"first_seq"`
	Last     uint64 `json:"last_seq"`
}

type Info struct {
	Config  json.RawMessage `json:"config"` // as the server has it
	State   State           `json:"state"`
	Created time.Time       `json:"created"`
}

// ErrNoStream means that the server has no stream of this name.
var ErrNoStream = errors.New("there is no such stream")

// requestTime bounds the wait for an answer of the server.
const requestTime = 30 * time.Second

// Info returns the configuration and the state of the stream.
func (s Stream) Info(ctx context.Context) (Info, error) {
	var info Info
	return info, s.request(ctx, "STREAM.INFO", nil, &info)
}

// Names returns the names of all streams, in order.
func Names(ctx context.Context, nc *nats.Conn) (list []string, err error) {
	js, err := jetstream.New(nc)
	if err != nil {
		return nil, err
	}
	names := js.StreamNames(ctx)
	for name := range names.Name() {
		list = append(list, name)
	}
	slices.Sort(list)
	return list, names.Err()
}

// request sends a request about the stream to the JetStream API.
func (s Stream) request(ctx context.Context, api string, request, answer any) error {
	fail := func(err error) error { return fmt.Errorf("%s of stream %s: %w", api, s.Name, err) }
	ctx, cancel := context.WithTimeout(ctx, requestTime)
	defer cancel()
	body, err := json.Marshal(request)
	if err != nil {
		return fail(err)
	}
	m, err := s.Conn.RequestWithContext(ctx, "$JS.API."+api+"."+s.Name, body)
	if err != nil {
		return fail(err)
	}
	if err := apiError(m.Data); err != nil {
		return fail(err)
	}
	if err := json.Unmarshal(m.Data, answer); err != nil {
		return fail(err)
	}
	return nil
}

// Codes of the JetStream API.
const (
	codeStreamNotFound = 10059
	codeNoMessage      = 10037
)

var errNoMessage = errors.New("no message found")

func apiError(answer []byte) error {
	var a struct {
		Error *struct {
			Code        int    `json:"err_code"`
			Description string `json:"description"`
		} `json:"error"`
	}
	if err := json.Unmarshal(answer, &a); err != nil || a.Error == nil {
		return err
	}
	switch a.Error.Code {
	case codeStreamNotFound:
		return ErrNoStream
	case codeNoMessage:
		return errNoMessage
	}
	return errors.New(a.Error.Description)
}

// window is the maximum number of outstanding requests for messages.
const window = 128

// Read calls fn with every message of the stream from one sequence to another, both included. It requests each
// sequence by itself, which changes nothing in the stream and delays no writer. It skips deleted messages and returns
// an error if a message is damaged.
func (s Stream) Read(ctx context.Context, from, to uint64, fn func(Entry) error) error {
	fail := func(seq uint64, err error) error {
		return fmt.Errorf("read message %d of stream %s: %w", seq, s.Name, err)
	}
	from = max(from, 1) // the first of an empty stream is 0
	inbox := s.Conn.NewInbox()
	answers := make(chan *nats.Msg, 2*window)
	sub, err := s.Conn.ChanSubscribe(inbox+".*", answers)
	if err != nil {
		return fail(from, err)
	}
	defer sub.Unsubscribe()
	arrived := map[string]*nats.Msg{}
	var missing []uint64
	silence := time.NewTimer(requestTime)
	defer silence.Stop()
	for seq, next := from, from; seq <= to; seq++ {
		for ; next <= to && next < seq+window; next++ {
			if err := s.Conn.PublishRequest("$JS.API.STREAM.MSG.GET."+s.Name, reply(inbox, next),
				fmt.Appendf(nil, `{"seq":%d}`, next)); err != nil {
				return fail(next, err)
			}
		}
		name := reply(inbox, seq)
		silence.Reset(requestTime)
		for arrived[name] == nil {
			select {
			case m := <-answers:
				arrived[m.Subject] = m
			case <-ctx.Done():
				return ctx.Err()
			case <-silence.C:
				return fail(seq, fmt.Errorf("the server did not answer within %s", requestTime))
			}
		}
		e, err := decode(arrived[name])
		delete(arrived, name)
		switch {
		case errors.Is(err, errNoMessage):
			missing = append(missing, seq)
			continue
		case err != nil:
			return fail(seq, err)
		}
		if err := fn(e); err != nil {
			return err
		}
	}
	return s.checkDeleted(ctx, missing)
}

func reply(inbox string, seq uint64) string { return fmt.Sprintf("%s.%d", inbox, seq) }

func decode(m *nats.Msg) (Entry, error) {
	if m.Header.Get("Status") == "503" {
		return Entry{}, nats.ErrNoResponders
	}
	var a struct {
		Message *struct {
			Subject string    `json:"subject"`
			Seq     uint64    `json:"seq"`
			Header  []byte    `json:"hdrs"`
			Body    []byte    `json:"data"`
			Stored  time.Time `json:"time"`
		} `json:"message"`
	}
	if err := json.Unmarshal(m.Data, &a); err != nil {
		return Entry{}, err
	}
	if a.Message == nil {
		if err := apiError(m.Data); err != nil {
			return Entry{}, err
		}
		return Entry{}, errors.New("the answer of the server holds no message")
	}
	return Entry{a.Message.Seq, a.Message.Stored.UTC(), a.Message.Subject, a.Message.Header, a.Message.Body}, nil
}

// checkDeleted returns an error if a missing message was not deleted, which means that the server cannot read it.
func (s Stream) checkDeleted(ctx context.Context, missing []uint64) error {
	if len(missing) == 0 {
		return nil
	}
	var info struct {
		State struct {
			First   uint64   `json:"first_seq"`
			Last    uint64   `json:"last_seq"`
			Deleted []uint64 `json:"deleted"`
		} `json:"state"`
	}
	if err := s.request(ctx, "STREAM.INFO", map[string]bool{"deleted_details": true}, &info); err != nil {
		return err
	}
	deleted := map[uint64]bool{}
	for _, seq := range info.State.Deleted {
		deleted[seq] = true
	}
	for _, seq := range missing {
		if seq >= info.State.First && seq <= info.State.Last && !deleted[seq] {
			return fmt.Errorf("read message %d of stream %s: the server has it and cannot read it: it is damaged", seq, s.Name)
		}
	}
	return nil
}

// BatchEnd returns the sequence of the last message of the atomic batch that a message belongs to, or seq if it
// belongs to none. The last sequence of a stream may be in the middle of a batch that is being stored. The server
// returns no message of such a batch until the whole batch is stored.
func (s Stream) BatchEnd(ctx context.Context, seq uint64) (end uint64, err error) {
	err = s.Read(ctx, seq, seq+maxBatch, func(e Entry) error {
		end = e.Seq
		if bytes.Contains(e.Header, batchID) && !bytes.Contains(e.Header, batchCommit) {
			return nil
		}
		return errEnd
	})
	if errors.Is(err, errEnd) {
		return end, nil
	}
	return max(end, seq), err
}

// maxBatch is larger than the largest atomic batch that a server accepts, in messages.
const maxBatch = 2000

var (
	batchID     = []byte("\r\nNats-Batch-Id:")
	batchCommit = []byte("\r\nNats-Batch-Commit:")
	errEnd      = errors.New("the end of the batch")
)

// Digest returns the digest of the messages from one sequence to another, both included.
func (s Stream) Digest(ctx context.Context, from, to uint64, progress func(Entry)) (string, error) {
	d := NewDigest()
	err := s.Read(ctx, from, to, func(e Entry) error {
		progress(e)
		return d.Add(e)
	})
	return d.String(), err
}
