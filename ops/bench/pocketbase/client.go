package main

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"
)

// client keeps enough connections for the load.
var client = &http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: 64}}

// call does one request and decodes its answer.
func (t *target) call(method, path string, body, into any) error {
	var reader io.Reader
	if body != nil {
		b, err := json.Marshal(body)
		if err != nil {
			return err
		}
		reader = bytes.NewReader(b)
	}
	r, err := http.NewRequest(method, t.URL+path, reader)
	if err != nil {
		return err
	}
	r.Header.Set("Content-Type", "application/json")
	if t.token != "" {
		r.Header.Set("Authorization", t.token)
	}
	resp, err := client.Do(r)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	answer, err := io.ReadAll(resp.Body)
	if err != nil {
		return err
	}
	if resp.StatusCode >= 300 {
		return fmt.Errorf("%s: %s %s: %d %s", t.name, method, path, resp.StatusCode, answer)
	}
	if into == nil {
		return nil
	}
	return json.Unmarshal(answer, into)
}

func (t *target) login() error {
	var auth struct{ Token string }
	err := t.call("POST", "/api/collections/users/auth-with-password",
		map[string]string{"identity": t.Email, "password": password}, &auth)
	t.token = auth.Token
	return err
}

func (t *target) say(text string) (id string, err error) {
	var made struct{ ID string }
	err = t.call("POST", "/api/collections/messages/records", map[string]any{
		"chat": t.Chat, "role": "user", "parts": []map[string]string{{"type": "text", "text": text}},
	}, &made)
	return made.ID, err
}

// follow subscribes to the messages and calls fn with the text of each change until ctx ends.
func (t *target) follow(ctx context.Context, fn func(frame []byte)) error {
	r, err := http.NewRequestWithContext(ctx, "GET", t.URL+"/api/realtime", nil)
	if err != nil {
		return err
	}
	resp, err := client.Do(r)
	if err != nil {
		return err
	}
	lines := bufio.NewReaderSize(resp.Body, 64<<10)
	connected := struct{ ClientID string }{}
	for connected.ClientID == "" {
		line, err := lines.ReadBytes('\n')
		if err != nil {
			return err
		}
		if data, ok := bytes.CutPrefix(line, []byte("data:")); ok {
			if err := json.Unmarshal(data, &connected); err != nil {
				return err
			}
		}
	}
	if err := t.call("POST", "/api/realtime", map[string]any{"clientId": connected.ClientID,
		"subscriptions": []string{"messages/*"}}, nil); err != nil {
		return err
	}
	go func() {
		defer resp.Body.Close()
		for {
			line, err := lines.ReadBytes('\n')
			if err != nil {
				return
			}
			if data, ok := bytes.CutPrefix(line, []byte("data:")); ok {
				fn(data)
			}
		}
	}()
	return nil
}

func (t *target) measure() (map[string]float64, error) {
	m := map[string]float64{}
	var err error
	if m["resident after start, MiB"], err = t.resident(); err != nil {
		return nil, err
	}
	// The crowd comes first: its clients share a login, and to one that connects while another is connected PocketCoder
	// sends again what changed in the last quarter of an hour, which is nothing yet.
	for _, part := range []func(map[string]float64) error{t.crowd, t.created, t.lists, t.events} {
		if err := part(m); err != nil {
			return nil, err
		}
	}
	m["resident after all of it, MiB"], err = t.resident()
	return m, err
}

// created measures from before a message is created until realtime shows it.
func (t *target) created(m map[string]float64) error {
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	seen := make(chan []byte, 1000)
	if err := t.follow(ctx, func(frame []byte) { seen <- slices.Clone(frame) }); err != nil {
		return err
	}
	var took []time.Duration
	for i := range 400 {
		text := fmt.Sprintf("message %d. %s", i, strings.Repeat("y", 2000))
		want := []byte(fmt.Sprintf("message %d. ", i))
		began := time.Now()
		if _, err := t.say(text); err != nil {
			return err
		}
		for arrived := false; !arrived; {
			select {
			case frame := <-seen:
				arrived = bytes.Contains(frame, want)
			case <-time.After(10 * time.Second):
				return fmt.Errorf("%s: message %d was never seen", t.name, i)
			}
		}
		took = append(took, time.Since(began))
	}
	percentiles(m, "message created → seen in realtime", took)
	return nil
}

// lists measures a page of 50 messages of 2 KB.
func (t *target) lists(m map[string]float64) error {
	path := "/api/collections/messages/records?perPage=50&sort=created&filter=" + url.QueryEscape(`chat = "`+t.Chat+`"`)
	list := func() error {
		var page struct{ Items []json.RawMessage }
		err := t.call("GET", path, nil, &page)
		if err == nil && len(page.Items) != 50 {
			err = fmt.Errorf("%s: a page of %d", t.name, len(page.Items))
		}
		return err
	}
	var took []time.Duration
	for range 1000 {
		began := time.Now()
		if err := list(); err != nil {
			return err
		}
		took = append(took, time.Since(began))
	}
	percentiles(m, "list of 50 messages", took)
	var n atomic.Int64
	var wg sync.WaitGroup
	errs := make(chan error, 8)
	began := time.Now()
	for range 8 {
		wg.Go(func() {
			for time.Since(began) < 4*time.Second {
				if err := list(); err != nil {
					errs <- err
					return
				}
				n.Add(1)
			}
		})
	}
	wg.Wait()
	m["lists of 50 messages by 8 clients, per second"] = float64(n.Load()) / time.Since(began).Seconds()
	select {
	case err := <-errs:
		return err
	default:
		return nil
	}
}

// events measures changes of one record that come at a rate.
func (t *target) events(m map[string]float64) error {
	for _, rate := range []int{200, 1000} {
		ctx, cancel := context.WithCancel(context.Background())
		l := &latencies{}
		if err := t.follow(ctx, l.frame); err != nil {
			cancel()
			return err
		}
		began := time.Now()
		if err := t.emit(rate, 4*rate); err != nil {
			cancel()
			return err
		}
		l.waitFor(4 * rate)
		if rate == 1000 {
			m["events/s kept up with at 1000/s"] = float64(4*rate) / time.Since(began).Seconds()
		}
		cancel()
		percentiles(m, fmt.Sprintf("event → subscriber at %d/s", rate), l.took)
	}
	return nil
}

// crowd measures 1,000 subscribers.
func (t *target) crowd(m map[string]float64) error {
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	all := make([]latencies, 1000)
	for i := range all {
		if err := t.follow(ctx, all[i].frame); err != nil {
			return err
		}
	}
	var err error
	if m["resident with 1,000 idle subscribers, MiB"], err = t.resident(); err != nil {
		return err
	}
	const rate, count = 20, 100
	if err := t.emit(rate, count); err != nil {
		return err
	}
	var took []time.Duration
	for i := range all {
		all[i].waitFor(count)
		took = append(took, all[i].took...)
	}
	percentiles(m, "event → each of 1,000 subscribers at 20/s", took)
	return nil
}
