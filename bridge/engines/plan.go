package engines

import (
	"cmp"
	"slices"
	"time"

	"pocketcoder/projections"
)

// state is what the manager knows of one engine when it plans.
type state struct {
	id      string
	demand  projections.Demand
	used    time.Time // when Use asked for it last, or it was busy last
	asked   bool      // a caller of Use waits for it, or uses it
	running bool      // also while it starts or stops
	ending  bool      // a stop was requested
	failed  bool      // its last run failed
	after   time.Time // it is not started again earlier, because it failed
}

// isBusy reports whether the engine has to run, and must not stop.
func (s state) isBusy() bool { return s.asked || s.demand.Since > 0 }

// plan chooses the engines that start and those that stop. At most most run, unless it is 0. An engine stops when it
// was not used for idle, or earlier, the longest unused first, if another engine has to start. Engines start in the
// order of what they have to do, those for which a person waits first, and those whose work waits last.
func plan(all []state, most int, idle time.Duration, now time.Time) (start, stop []string) {
	var waiting, idling []state
	running, ending := 0, 0
	for _, s := range all {
		switch {
		case s.running:
			running++
			if s.ending {
				ending++
			} else if !s.isBusy() {
				idling = append(idling, s)
			}
		case (s.isBusy() || s.demand.Waits) && !now.Before(s.after):
			waiting = append(waiting, s)
		}
	}
	slices.SortStableFunc(waiting, func(a, b state) int {
		return cmp.Or(cmp.Compare(a.rank(), b.rank()), cmp.Compare(a.demand.Since, b.demand.Since))
	})
	slices.SortStableFunc(idling, func(a, b state) int { return a.used.Compare(b.used) })
	free := len(waiting)
	if most > 0 {
		free = max(0, min(free, most-running))
	}
	needed := -ending // each engine that ends makes room for another one
	for i, s := range waiting {
		if i < free {
			start = append(start, s.id)
		} else if s.isBusy() && !s.failed { // one that may fail again does not end another one
			needed++
		}
	}
	for i, s := range idling {
		if i < needed || now.Sub(s.used) >= idle && !s.demand.Waits {
			stop = append(stop, s.id)
		}
	}
	return start, stop
}

// rank orders the engines that wait.
func (s state) rank() int {
	switch {
	case s.asked:
		return 0
	case s.isBusy():
		return 1
	}
	return 2
}
