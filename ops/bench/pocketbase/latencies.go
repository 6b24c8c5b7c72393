package main

import (
	"bytes"
	"fmt"
	"slices"
	"sync"
	"time"
)

// latencies notes how long each numbered change took to arrive: one that was overtaken arrived with the next.
type latencies struct {
	mu   sync.Mutex
	next int
	took []time.Duration
}

var marker = []byte(`"text":"`)

func (l *latencies) frame(frame []byte) {
	at := time.Now().UnixNano()
	i := bytes.Index(frame, marker)
	if i < 0 {
		return
	}
	var k int
	var sent int64
	if _, err := fmt.Sscan(string(frame[i+len(marker):min(len(frame), i+len(marker)+40)]), &k, &sent); err != nil {
		return
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if k >= l.next {
		l.next = k + 1
		l.took = append(l.took, time.Duration(at-sent))
	}
}

func (l *latencies) waitFor(n int) {
	for deadline := time.Now().Add(20 * time.Second); time.Now().Before(deadline); time.Sleep(time.Millisecond) {
		l.mu.Lock()
		reached := l.next >= n
		l.mu.Unlock()
		if reached {
			return
		}
	}
}

func percentiles(m map[string]float64, name string, took []time.Duration) {
	slices.Sort(took)
	at := func(p float64) float64 { return took[min(len(took)-1, int(p*float64(len(took))))].Seconds() * 1000 }
	m[name+", p50 ms"], m[name+", p99 ms"] = at(0.50), at(0.99)
}
