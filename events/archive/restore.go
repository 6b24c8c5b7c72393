package archive

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"time"

	"github.com/klauspost/compress/s2"
	"github.com/nats-io/nats-server/v2/server"
	format "github.com/nats-io/nats-server/v2/server/archive"
)

type Consumer struct {
	Config json.RawMessage // as the server has it
	State  server.ConsumerState
}

// Restore creates a stream in an account of a server in this process and stores the entries that source adds, in
// ascending order of their sequences. The sequences between them count as deleted. The stream begins at
// info.State.First and ends at info.State.Last, and has one replica. If Restore fails, the server may hold a part of
// the stream.
func Restore(account *server.Account, info Info, consumers []Consumer, source func(add func(Entry) error) error) error {
	var config server.StreamConfig
	if err := json.Unmarshal(info.Config, &config); err != nil {
		return fmt.Errorf("restore stream: read its configuration: %w", err)
	}
	config.Replicas, config.Placement = 1, nil
	r, w := io.Pipe()
	written := make(chan struct{})
	go func() {
		defer close(written)
		w.CloseWithError(send(w, info.State, consumers, source))
	}()
	_, err := account.RestoreStreamV2(&config, r)
	r.CloseWithError(err) // ends source
	<-written
	if err != nil {
		return fmt.Errorf("restore stream %s: %w", config.Name, err)
	}
	return nil
}

// send writes what the server expects: the state of the stream, the consumers, the messages and the end mark.
func send(w io.Writer, state State, consumers []Consumer, source func(add func(Entry) error) error) error {
	compressed := s2.NewWriter(w, s2.WriterUncompressed(), s2.WriterConcurrency(1))
	entries := format.NewWriter(compressed)
	object := func(name string, v any) error {
		body, err := json.Marshal(v)
		if err != nil {
			return err
		}
		return Entry{Subject: name, Stored: time.Unix(0, 0), Body: body}.write(entries)
	}
	err := object("state.json", server.StreamState{
		Msgs: state.Messages, Bytes: state.Bytes, FirstSeq: state.First, LastSeq: state.Last, Consumers: len(consumers),
	})
	if err != nil {
		return err
	}
	for _, c := range consumers {
		var config server.ConsumerConfig
		if err := json.Unmarshal(c.Config, &config); err != nil {
			return fmt.Errorf("read the configuration of a consumer: %w", err)
		}
		if err := object("consumers/"+config.Durable, server.SnapshotConsumerState{ConsumerConfig: &config,
			ConsumerState: &c.State}); err != nil {
			return err
		}
	}
	if err := source(func(e Entry) error { return e.write(entries) }); err != nil {
		return err
	}
	if err := entries.WriteHeader(&format.Header{}); err != nil {
		return err
	}
	return compressed.Close()
}

// Consumers returns the durable consumers of the stream. After Restore, a consumer receives its unacknowledged
// messages again, and all messages after the first of them.
func (s Stream) Consumers(ctx context.Context) (list []Consumer, err error) {
	for {
		var page struct {
			Total     int `json:"total"`
			Consumers []struct {
				Config    json.RawMessage     `json:"config"`
				Delivered server.SequencePair `json:"delivered"`
				AckFloor  server.SequencePair `json:"ack_floor"`
				Pending   int                 `json:"num_ack_pending"`
			} `json:"consumers"`
		}
		if err := s.request(ctx, "CONSUMER.LIST", map[string]int{"offset": len(list)}, &page); err != nil {
			return nil, err
		}
		if len(page.Consumers) == 0 {
			return durable(list)
		}
		for _, c := range page.Consumers {
			state := server.ConsumerState{Delivered: c.Delivered, AckFloor: c.AckFloor}
			if c.Pending > 0 { // the server does not say which messages are pending, so deliver from the first of them
				state.Delivered = state.AckFloor
			}
			list = append(list, Consumer{c.Config, state})
		}
		if len(list) >= page.Total {
			return durable(list)
		}
	}
}

func durable(all []Consumer) (list []Consumer, err error) {
	for _, c := range all {
		var config server.ConsumerConfig
		if err := json.Unmarshal(c.Config, &config); err != nil {
			return nil, fmt.Errorf("read the configuration of a consumer: %w", err)
		}
		if config.Durable != "" {
			list = append(list, c)
		}
	}
	return list, nil
}
