package configuration_test

import (
	"encoding/json"
	"log/slog"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/matryer/is"

	"pocketcoder/bridge/opencode"
	"pocketcoder/bridge/opencode/configuration"
	"pocketcoder/events"
	"pocketcoder/events/eventstest"
	"pocketcoder/events/log"
	"pocketcoder/events/secret"
	"pocketcoder/handlers"
	"pocketcoder/handlers/model"
	"pocketcoder/handlers/network"
	"pocketcoder/handlers/record"
	"pocketcoder/handlers/recordtype"
	"pocketcoder/ops/expect"
)

// system runs Keys with two providers, acme and other.
type system struct {
	t      *testing.T
	log    *log.Log
	engine *network.Engine
	keys   *configuration.ModelKeys
}

func newSystem(t *testing.T, calm time.Duration) *system {
	t.Helper()
	nc := eventstest.Conn(t, eventstest.Server(t, expect.MemoryDir(t)))
	s := &system{t: t, log: eventstest.Open(t, nc), engine: &network.Engine{}}
	secrets, err := secret.Open(t.Context(), nc, 1)
	s.must(err)
	records, logger := recordtype.Open(s.log, recordtype.Machine{}), slog.New(slog.NewTextHandler(t.Output(), nil))
	stored := &model.ProviderKeys{Records: records, Secrets: secrets, Logger: logger}
	s.keys = &configuration.ModelKeys{Fixed: true, Stored: stored, Records: records, Engine: s.engine, Server: &opencode.Supervisor{},
		Restart: func() {}, Logger: logger, Changed: func() {}, Calm: calm}
	for _, id := range []string{"acme", "other"} {
		_, _, err := records.Save(t.Context(), record.Save{Command: handlers.Command{Actor: events.ActorSystem}, New: true,
			Collection: model.Providers, Record: id,
			Set: record.Fields(map[string]any{"provider_id": id, "name": id, "is_connected": true})})
		s.must(err)
	}
	s.must(s.keys.Load(t.Context()))
	done := make(chan struct{})
	go func() { defer close(done); s.keys.Run(t.Context()) }()
	t.Cleanup(func() { <-done })
	return s
}

func (s *system) must(err error) {
	s.t.Helper()
	if err != nil {
		s.t.Fatal(err)
	}
}

// answer is an answer of a provider to a request with its key.
func (s *system) answer(provider string, status int) {
	s.engine.Answered(network.Credential{Key: provider, Providers: []string{provider}}, status)
}

// said returns what was stored about the key of acme.
func (s *system) said() (all []string) {
	_, err := s.log.Fold(s.t.Context(), events.ConfigSubject(model.Providers, "acme", "*"), 0,
		func(e events.Event) error {
			var saved struct {
				Fields struct {
					KeyError *string `json:"key_error"`
				}
			}
			if json.Unmarshal(e.Data, &saved) == nil && saved.Fields.KeyError != nil {
				all = append(all, *saved.Fields.KeyError)
			}
			return nil
		})
	s.must(err)
	return all
}

const refusal = "acme refuses the key acme (status 401). Store another key under Settings, Provider keys."

func TestAKeyThatWorksAtTimesIsReportedOnce(t *testing.T) {
	t.Parallel()
	s := newSystem(t, time.Hour)
	for range 3 {
		s.answer("acme", http.StatusUnauthorized)
		s.answer("acme", http.StatusOK)
	}
	s.answer("other", http.StatusUnauthorized) // answers are reported in order
	expect.Eventually(t, "the answers are reported", func() bool {
		return slices.ContainsFunc(s.keys.Errors(), func(text string) bool { return strings.HasPrefix(text, "other") })
	})
	is.New(t).Equal(s.said(), []string{refusal})
}

func TestARefusalEndsOnceTheKeyHasWorkedForAWhile(t *testing.T) {
	t.Parallel()
	s := newSystem(t, 200*time.Millisecond)
	for range 2 {
		s.answer("acme", http.StatusUnauthorized)
		expect.Eventually(t, "the refusal is reported", func() bool { return len(s.keys.Errors()) == 1 })
		s.answer("acme", http.StatusOK)
		expect.Eventually(t, "the refusal has ended", func() bool { return len(s.keys.Errors()) == 0 })
	}
	is.New(t).Equal(s.said(), []string{refusal, "", refusal, ""})
}
