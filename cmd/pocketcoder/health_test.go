package main

import (
	"encoding/json"
	"fmt"
	"net/http"
	"testing"
)

// condition is the answer of health: the state of the system and of each part.
type condition struct {
	code   int
	states map[string]string
}

// health requests the health of the system at url.
func health(url string) (condition, error) {
	c := condition{states: map[string]string{}}
	resp, err := http.Get(url + "/api/health")
	if err != nil {
		return c, err
	}
	defer resp.Body.Close()
	var body struct {
		Code int
		Data map[string]struct{ State string }
	}
	if err := json.NewDecoder(resp.Body).Decode(&body); err != nil {
		return c, err
	}
	if c.code = resp.StatusCode; body.Code != c.code {
		return c, fmt.Errorf("health answers %d and says %d", c.code, body.Code)
	}
	for name, part := range body.Data {
		c.states[name] = part.State
	}
	return c, nil
}

func (p *process) health(t testing.TB) condition {
	t.Helper()
	c, err := health(p.HTTP)
	if err != nil {
		t.Fatal(err)
	}
	return c
}
