package schedule

import (
	"math"
	"strconv"
	"strings"
	"time"

	"github.com/netresearch/go-cron"

	"pocketcoder/handlers/record"
)

// timing says when a schedule is due: by a cron expression, at an interval, or once. Exactly one of Cron, Every and
// At is set. Each wall-clock time of a cron expression is due once, also when clocks go back. A wall-clock time that
// clocks skip is due later by what they skip. An interval keeps its grid, whenever it was late.
type timing struct {
	Cron     string    // five fields, or six with seconds first
	Every    string    // such as 90s, 15m, 24h or 7d
	At       time.Time // once
	TimeZone string    // of Cron: an IANA name; empty for the default
	Starts   time.Time // not due before; zero for no limit
}

// parsedTiming is a parsed timing.
type parsedTiming struct {
	cron   cron.Schedule // nil for none
	every  time.Duration
	at     time.Time
	anchor time.Time // of the interval
	starts time.Time
	Zone   *time.Location
}

// The bounds of an interval.
const (
	minEvery = 10 * time.Second
	maxEvery = 366 * 24 * time.Hour
)

// searchYears is how far ahead a cron expression is searched. February 29 can be eight years away.
const searchYears = 9

// maxExpression is the longest cron expression, in bytes.
const maxExpression = 200

var parser = cron.MustNewParser(cron.SecondOptional | cron.Minute | cron.Hour | cron.Dom | cron.Month | cron.Dow |
	cron.DowOrDom).WithMaxSearchYears(searchYears)

// parse refuses an expression that is never due. An interval without Starts counts from anchor. zone is the default
// time zone.
func (f timing) parse(anchor time.Time, zone *time.Location) (s parsedTiming, err error) {
	s = parsedTiming{starts: f.Starts, anchor: anchor, Zone: zone}
	if f.TimeZone != "" {
		if s.Zone, err = time.LoadLocation(f.TimeZone); err != nil || strings.EqualFold(f.TimeZone, "local") {
			return s, record.Invalid("time_zone", "time_zone: %.60q is not a time zone. Write an IANA name, such as Europe/Berlin.",
				f.TimeZone)
		}
	}
	if !f.Starts.IsZero() {
		s.anchor = f.Starts
	}
	given := 0
	for _, is := range []bool{f.Cron != "", f.Every != "", !f.At.IsZero()} {
		if is {
			given++
		}
	}
	if given != 1 {
		return s, record.Invalid("cron_expression", "Set exactly one of cron_expression, every and at.")
	}
	switch {
	case f.Cron != "":
		s.cron, err = parseCron(f.Cron)
	case f.Every != "":
		s.every, err = parseInterval(f.Every)
	default:
		s.at = f.At
	}
	return s, err
}

func parseCron(expression string) (cron.Schedule, error) {
	const help = "cron_expression: %s. Write five fields: minute, hour, day of month, month, day of week, such as \"0 9 * * 1-5\"; or six, with seconds first."
	n := len(strings.Fields(expression))
	switch {
	case len(expression) > maxExpression:
		return nil, record.Invalid("cron_expression", help, "it is longer than "+strconv.Itoa(maxExpression)+" bytes")
	case strings.Contains(expression, "="), strings.HasPrefix(strings.TrimSpace(expression), "@"):
		return nil, record.Invalid("cron_expression", help, strconv.Quote(expression)+
			" is not supported: the time zone is the field time_zone, an interval is the field every")
	case n != 5 && n != 6:
		return nil, record.Invalid("cron_expression", help, strconv.Quote(expression)+" has "+strconv.Itoa(n)+" fields")
	}
	c, err := parser.Parse(expression)
	if err != nil {
		return nil, record.Invalid("cron_expression", help, err.Error())
	}
	if c.Next(time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)).IsZero() {
		return nil, record.Invalid("cron_expression", help, strconv.Quote(expression)+" is never due: there is no such date")
	}
	return c, nil
}

// parseInterval reads an interval: a duration of Go, a number of seconds, days (2d) or weeks (1w).
func parseInterval(text string) (time.Duration, error) {
	text = strings.TrimSpace(text)
	unit := time.Duration(0)
	number := text
	for suffix, u := range map[string]time.Duration{"d": 24 * time.Hour, "w": 7 * 24 * time.Hour} {
		if n, ok := strings.CutSuffix(text, suffix); ok {
			number, unit = n, u
		}
	}
	if unit == 0 {
		if _, err := strconv.Atoi(text); err == nil {
			unit = time.Second
		}
	}
	d, err := time.ParseDuration(text)
	if unit != 0 {
		var n float64
		n, err = strconv.ParseFloat(number, 64)
		if math.IsNaN(n) || math.Abs(n) > maxEvery.Seconds() {
			n = 0
		}
		d = time.Duration(n * float64(unit))
	}
	if err != nil || d < minEvery || d > maxEvery {
		return 0, record.Invalid("every", "every: %.40q is not an interval. Write a duration from %s to 366d, such as 90s, 15m, 24h or 7d.",
			text, minEvery)
	}
	return d.Truncate(time.Second), nil
}

// next returns the first time after a time at which the schedule is due. It returns the zero time if there is none.
func (s parsedTiming) next(after time.Time) time.Time {
	if !s.starts.IsZero() && after.Before(s.starts) {
		after = s.starts.Add(-time.Nanosecond)
	}
	switch {
	case s.cron != nil:
		return s.nextCron(after)
	case s.every > 0:
		if after.Before(s.anchor) {
			if !s.starts.IsZero() {
				return s.anchor // the first time is the start itself
			}
			return s.anchor.Add(s.every)
		}
		return after.Add(s.every - after.Sub(s.anchor)%s.every)
	case s.at.After(after):
		return s.at
	}
	return time.Time{}
}

// nextRuns returns the next times after a time at which the schedule is due, at most n.
func (s parsedTiming) nextRuns(after time.Time, n int) (all []time.Time) {
	for range n {
		if after = s.next(after); after.IsZero() {
			break
		}
		all = append(all, after.In(s.Zone))
	}
	return all
}

// latest returns the last time after a time and not after now at which the schedule was due, and the first one. Both
// are zero if there is none.
func (s parsedTiming) latest(after, now time.Time) (latest, first time.Time) {
	isDue := func(t time.Time) bool { return !t.IsZero() && !t.After(now) }
	if first = s.next(after); !isDue(first) {
		return time.Time{}, time.Time{}
	}
	// low is before a due time, and high is not: the search ends with the last due time between them
	low, high := first.Add(-time.Nanosecond), now
	for high.Sub(low) > time.Second {
		middle := low.Add(high.Sub(low) / 2)
		if isDue(s.next(middle)) {
			low = middle
		} else {
			high = middle
		}
	}
	for next := s.next(low); isDue(next); next = s.next(next) {
		latest = next
	}
	return latest, first
}

// nextCron computes on wall-clock times, for which it takes UTC, because UTC skips and repeats none.
func (s parsedTiming) nextCron(after time.Time) time.Time {
	wall := wallOf(after.In(s.Zone)).Add(-skippedBefore(after.In(s.Zone)))
	best, bound := time.Time{}, time.Time{}
	for {
		if wall = s.cron.Next(wall); wall.IsZero() || !best.IsZero() && !wall.Before(bound) {
			return best
		}
		at, isSkipped := instant(wall, s.Zone)
		switch {
		case !at.After(after):
		case best.IsZero() || at.Before(best):
			if best = at; !isSkipped {
				return best
			}
			bound = wallOf(at) // a wall-clock time that clocks do not skip may come before
		}
	}
}

// wallOf returns a time with the same wall clock in UTC.
func wallOf(t time.Time) time.Time {
	return time.Date(t.Year(), t.Month(), t.Day(), t.Hour(), t.Minute(), t.Second(), t.Nanosecond(), time.UTC)
}

// skippedBefore returns what clocks skipped, if they skipped it so shortly before t that a skipped wall-clock time may
// still be due.
func skippedBefore(t time.Time) time.Duration {
	start, _ := t.ZoneBounds()
	if skipped := change(start); skipped > 0 && t.Sub(start) <= skipped {
		return skipped
	}
	return 0
}

// change returns by how much clocks go forward at the start of a zone, or back if it is negative.
func change(start time.Time) time.Duration {
	if start.IsZero() {
		return 0
	}
	_, after := start.Zone()
	_, before := start.Add(-time.Nanosecond).Zone()
	return time.Duration(after-before) * time.Second
}

// instant returns the first time at which clocks of a zone show a wall-clock time. If they skip it, the time is later
// by what they skip.
func instant(wall time.Time, zone *time.Location) (at time.Time, isSkipped bool) {
	at = time.Date(wall.Year(), wall.Month(), wall.Day(), wall.Hour(), wall.Minute(), wall.Second(), 0, zone)
	shown := wallOf(at)
	if shown.Before(wall) { // Date took the offset after the change
		return at.Add(wall.Sub(shown)), true
	}
	if shown.After(wall) {
		return at, true
	}
	start, _ := at.ZoneBounds()
	if back := -change(start); back > 0 && at.Sub(start) < back {
		return at.Add(-back), false
	}
	return at, false
}
