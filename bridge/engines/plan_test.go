package engines

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/matryer/is"
	"pgregory.net/rapid"

	"pocketcoder/ops/expect"
	"pocketcoder/projections"
)

// at is a number of minutes after the first use in a test.
func at(minutes int) time.Time { return time.Unix(0, 0).Add(time.Duration(minutes) * time.Minute) }

func TestEnginesStartAndStop(t *testing.T) {
	t.Parallel()
	busy, waits := projections.Demand{Since: 7}, projections.Demand{Waits: true}
	for name, c := range map[string]struct {
		all         []state
		start, stop string
	}{
		"nothing to do":                     {all: []state{{id: "a"}}},
		"work":                              {all: []state{{id: "a", demand: busy}}, start: "a"},
		"a person":                          {all: []state{{id: "a", asked: true}}, start: "a"},
		"something waits":                   {all: []state{{id: "a", demand: waits}}, start: "a"},
		"it failed a moment ago":            {all: []state{{id: "a", demand: busy, after: at(61)}}},
		"idle for a short time":             {all: []state{{id: "a", running: true, used: at(50)}}},
		"idle for long":                     {all: []state{{id: "a", running: true, used: at(1)}}, stop: "a"},
		"busy for long":                     {all: []state{{id: "a", running: true, demand: busy, used: at(1)}}},
		"something waits for long":          {all: []state{{id: "a", running: true, demand: waits, used: at(1)}}},
		"it stops once":                     {all: []state{{id: "a", running: true, ending: true, used: at(1)}}},
		"the oldest work first, and people": {all: []state{{id: "a", demand: projections.Demand{Since: 9}}, {id: "b", demand: busy}, {id: "c", asked: true}}, start: "c b"},
		"another one needs the place":       {all: []state{{id: "a", running: true, used: at(55)}, {id: "b", running: true, used: at(50)}, {id: "c", demand: busy}}, stop: "b"},
		"what waits gives its place":        {all: []state{{id: "a", running: true, demand: waits, used: at(55)}, {id: "b", running: true, demand: busy}, {id: "c", demand: busy}}, stop: "a"},
		"what waits takes no place":         {all: []state{{id: "a", running: true, used: at(55)}, {id: "b", running: true, used: at(56)}, {id: "c", demand: waits}}},
		"one ends already":                  {all: []state{{id: "a", running: true, used: at(55)}, {id: "b", running: true, ending: true}, {id: "c", demand: busy}}},
		"all are busy":                      {all: []state{{id: "a", running: true, demand: busy}, {id: "b", running: true, asked: true}, {id: "c", demand: busy}}},
	} {
		t.Run(name, func(t *testing.T) {
			start, stop := plan(c.all, 2, 15*time.Minute, at(60))
			is.New(t).Equal([]string{strings.Join(start, " "), strings.Join(stop, " ")}, []string{c.start, c.stop})
		})
	}
}

// TestEveryEngineWithWorkRunsInTheEnd plays the life of engines: work comes and ends, and each step of the plan is
// carried out.
func TestEveryEngineWithWorkRunsInTheEnd(t *testing.T) {
	t.Parallel()
	expect.Property(t, func(t *rapid.T) {
		most := rapid.IntRange(0, 3).Draw(t, "most")
		all := make([]state, 6)
		for i := range all {
			all[i].id = fmt.Sprint(i)
		}
		now := 0
		step := func() {
			start, stop := plan(all, most, 5*time.Minute, at(now))
			for i := range all {
				s := &all[i]
				if s.ending && rapid.Bool().Draw(t, "ends") {
					s.running, s.ending = false, false
				}
				if slices.Contains(stop, s.id) {
					if s.isBusy() {
						t.Fatalf("%s stops with work", s.id)
					}
					s.ending = true
				}
				if slices.Contains(start, s.id) {
					s.running, s.used = true, at(now)
				}
			}
			running := 0
			for _, s := range all {
				if s.running {
					running++
				}
			}
			if most > 0 && running > most {
				t.Fatalf("%d engines run, at most %d may", running, most)
			}
			now++
		}
		for range rapid.IntRange(1, 60).Draw(t, "steps") {
			s := &all[rapid.IntRange(0, len(all)-1).Draw(t, "engine")]
			s.demand = projections.Demand{Since: rapid.Int64Range(0, 1).Draw(t, "work") * int64(now+1),
				Waits: rapid.Bool().Draw(t, "waits")}
			step()
		}
		// from here on, an engine is done as soon as it has run
		for range 200 {
			for i := range all {
				if all[i].running && !all[i].ending {
					all[i].demand.Since = 0
				}
			}
			step()
		}
		for _, s := range all {
			if s.demand.Since > 0 {
				t.Fatalf("%s never ran", s.id)
			}
		}
	})
}
