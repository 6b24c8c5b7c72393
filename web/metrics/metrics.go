// Package metrics describes a running system for Prometheus: the state of its parts, the log and those that read it,
// turns, requests, executions, and what models cost.
//
// Promises: nothing is counted here. Each figure is read from the log's server or from the read models when it is
// asked for, so that it is right after a restart, and the same on every node. If figures cannot be read, the answer
// has all others, and pocketcoder_unreadable is 1 for the log or for the read models.
//
// It must not know how a part finds out its state. It names no chat, no person and no command.
package metrics

import (
	"context"
	"log/slog"
	"net/http"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/pocketbase/dbx"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/client_golang/prometheus/promhttp"

	"pocketcoder/events/log"
	"pocketcoder/events/log/blob"
	"pocketcoder/projections"
	"pocketcoder/projections/store"
	"pocketcoder/web/api"
)

// Source is what the figures are read from.
type Source struct {
	Conn   *nats.Conn // may read what the streams are
	Model  *projections.Model
	Health func() api.Health
	Logger *slog.Logger
}

// readTime bounds how long the figures of one kind are read.
const readTime = 5 * time.Second

// Handler answers GET /metrics in the format of Prometheus, without a login. Other paths get 404.
func Handler(s Source) http.Handler {
	registry := prometheus.NewPedanticRegistry()
	registry.MustRegister(collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}),
		s)
	mux := http.NewServeMux()
	// One scrape at a time reads the log's server and the read models; a second one within it gets 503.
	mux.Handle("GET /metrics", promhttp.HandlerFor(registry, promhttp.HandlerOpts{MaxRequestsInFlight: 1,
		ErrorLog: errorLog{s.Logger}}))
	return mux
}

type errorLog struct{ *slog.Logger }

func (l errorLog) Println(v ...any) { l.Error("serve metrics", "err", v) }

func describe(name, help string, labels ...string) *prometheus.Desc {
	return prometheus.NewDesc("pocketcoder_"+name, help, labels, nil)
}

var (
	partState = describe("part_state", "1 for the state that a part of the system is in: starting, ready, degraded or offline.", "part", "state")

	streamMessages = describe("stream_messages", "Messages in a stream of the log.", "stream")
	streamBytes    = describe("stream_bytes", "Bytes of a stream of the log, as the NATS server counts them.", "stream")
	streamLast     = describe("stream_last_sequence",
		"Sequence of the newest message of a stream; its rate is messages per second.", "stream")
	consumerBehind = describe("consumer_pending", "Messages that a consumer has not received yet.", "stream", "consumer")
	consumerUnsure = describe("consumer_unacknowledged", "Messages that a consumer has received and not acknowledged.",
		"stream", "consumer")

	modelSequence = describe("read_model_sequence",
		"Sequence of the newest event in the read models. What stream_last_sequence of EVENTS is more, they are behind.")
	deadLetters = describe("dead_letters", "Events that could not be read or applied.")
	chats       = describe("chats", "Chats by the state of their last turn; empty for those without one.", "turn")
	requests    = describe("requests_pending", "Permission requests and questions that wait for a person.", "kind")
	executions  = describe("executions_running", "Commands that run.")
	cost        = describe("cost_total", "What the answers of a model cost, in US dollars.", "provider",
		"model")
	tokens = describe("tokens_total", "Tokens of a model's answers by kind: input, output, reasoning, cache_read, cache_write.", "provider", "model", "kind")

	unreadable = describe("unreadable", "1 if the figures of a kind could not be read this time: log or read_model.",
		"kind")
)

func (s Source) Describe(to chan<- *prometheus.Desc) {
	for _, d := range []*prometheus.Desc{
		partState, streamMessages, streamBytes, streamLast, consumerBehind, consumerUnsure,
		modelSequence, deadLetters, chats, requests, executions, cost, tokens, unreadable,
	} {
		to <- d
	}
}

func (s Source) Collect(to chan<- prometheus.Metric) {
	for name, part := range s.Health() {
		for _, state := range []api.State{api.Starting, api.Ready, api.Degraded, api.Offline} {
			gauge(to, partState, truth(part.State == state), name, string(state))
		}
	}
	for _, kind := range []struct {
		name string
		read func(context.Context, chan<- prometheus.Metric) error
	}{{"log", s.readLog}, {"read_model", s.readModel}} {
		ctx, cancel := context.WithTimeout(context.Background(), readTime)
		err := kind.read(ctx, to)
		cancel()
		if err != nil {
			s.Logger.Warn("read figures for metrics", "kind", kind.name, "err", err)
		}
		gauge(to, unreadable, truth(err != nil), kind.name)
	}
}

func (s Source) readLog(ctx context.Context, to chan<- prometheus.Metric) error {
	streams, err := Streams(ctx, s.Conn)
	if err != nil {
		return err
	}
	for _, stream := range streams {
		gauge(to, streamMessages, float64(stream.Messages), stream.Name)
		gauge(to, streamBytes, float64(stream.Bytes), stream.Name)
		gauge(to, streamLast, float64(stream.Last), stream.Name)
		for _, c := range stream.Consumers {
			gauge(to, consumerBehind, float64(c.Behind), stream.Name, c.Name)
			gauge(to, consumerUnsure, float64(c.Unacknowledged), stream.Name, c.Name)
		}
	}
	return nil
}

// Stream is the state of a stream of the log.
type Stream struct {
	Name            string
	Messages, Bytes uint64
	Last            uint64 // sequence of the newest message
	Consumers       []Consumer
}

// Consumer is the state of a durable consumer.
type Consumer struct {
	Name           string
	Behind         uint64 // messages that it has not received yet
	Unacknowledged int
}

// Streams returns the state of the streams of the log.
func Streams(ctx context.Context, nc *nats.Conn) (all []Stream, err error) {
	js, err := jetstream.New(nc)
	if err != nil {
		return nil, err
	}
	for _, name := range []string{log.EventsStream, log.DeltasStream, blob.Stream} {
		stream, err := js.Stream(ctx, name)
		if err != nil {
			return nil, err
		}
		state := stream.CachedInfo().State
		one := Stream{Name: name, Messages: state.Msgs, Bytes: state.Bytes, Last: state.LastSeq}
		consumers := stream.ListConsumers(ctx)
		for c := range consumers.Info() {
			if c.Config.Durable != "" { // that of a reader is gone in a moment: a series each would never end
				one.Consumers = append(one.Consumers, Consumer{c.Name, c.NumPending, c.NumAckPending})
			}
		}
		if err := consumers.Err(); err != nil {
			return nil, err
		}
		all = append(all, one)
	}
	return all, nil
}

func (s Source) readModel(ctx context.Context, to chan<- prometheus.Metric) error {
	dead, err := s.Model.DeadLetters(ctx, 0)
	if err != nil {
		return err
	}
	gauge(to, deadLetters, float64(dead.Count))
	return s.Model.View(ctx, func(db dbx.Builder, seq uint64) error {
		gauge(to, modelSequence, float64(seq))
		if err := readCounts(db, to); err != nil {
			return err
		}
		return readUsage(db, to)
	})
}

// readCounts counts only what an index finds: a log of years has millions of requests and executions.
func readCounts(db dbx.Builder, to chan<- prometheus.Metric) error {
	var turns []struct {
		Turn string
		N    float64
	}
	err := store.All(db.NewQuery(`SELECT coalesce(u.state, '') AS turn, count(*) AS n FROM chats c LEFT JOIN turns u ON u.id = c.current
		WHERE NOT c.removed GROUP BY 1`), &turns)
	if err != nil {
		return err
	}
	for _, r := range turns {
		gauge(to, chats, r.N, r.Turn)
	}
	var now struct{ Permissions, Questions, Executions float64 }
	err = db.NewQuery(`SELECT (SELECT count(*) FROM waiting_requests) AS permissions,
		(SELECT count(*) FROM waiting_questions) AS questions,
		(SELECT count(*) FROM executions WHERE status = 'executing' AND NOT removed) AS executions`).One(&now)
	if err != nil {
		return err
	}
	gauge(to, requests, now.Permissions, "permission")
	gauge(to, requests, now.Questions, "question")
	gauge(to, executions, now.Executions)
	return nil
}

func readUsage(db dbx.Builder, to chan<- prometheus.Metric) error {
	var rows []struct {
		Provider, Model                                 string
		Cost                                            float64
		Input, Output, Reasoning, CacheRead, CacheWrite float64
	}
	err := store.All(db.NewQuery(`SELECT provider, model, sum(cost) AS cost, sum(tokens_input) AS input, sum(tokens_output) AS output,
		sum(tokens_reasoning) AS reasoning, sum(tokens_cache_read) AS cache_read, sum(tokens_cache_write) AS cache_write
		FROM usage WHERE NOT removed GROUP BY provider, model`), &rows)
	if err != nil {
		return err
	}
	for _, r := range rows {
		counter(to, cost, r.Cost, r.Provider, r.Model)
		for kind, n := range map[string]float64{
			"input": r.Input, "output": r.Output, "reasoning": r.Reasoning, "cache_read": r.CacheRead, "cache_write": r.CacheWrite,
		} {
			counter(to, tokens, n, r.Provider, r.Model, kind)
		}
	}
	return nil
}

func gauge(to chan<- prometheus.Metric, d *prometheus.Desc, value float64, labels ...string) {
	to <- prometheus.MustNewConstMetric(d, prometheus.GaugeValue, value, labels...)
}

func counter(to chan<- prometheus.Metric, d *prometheus.Desc, value float64, labels ...string) {
	to <- prometheus.MustNewConstMetric(d, prometheus.CounterValue, value, labels...)
}

func truth(is bool) float64 {
	if is {
		return 1
	}
	return 0
}
