package schedule

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/matryer/is"
	"pgregory.net/rapid"

	"pocketcoder/handlers"
	"pocketcoder/ops/expect"
)

func zone(t testing.TB, name string) *time.Location {
	t.Helper()
	z, err := time.LoadLocation(name)
	is.New(t).NoErr(err)
	return z
}

func ofCron(t testing.TB, expression, in string) parsedTiming {
	t.Helper()
	s, err := timing{Cron: expression, TimeZone: in}.parse(time.Time{}, time.UTC)
	is.New(t).NoErr(err)
	return s
}

// runs returns the next runs as text, with the offset of the zone.
func runs(s parsedTiming, after time.Time, n int) string {
	var all []string
	for _, at := range s.nextRuns(after, n) {
		all = append(all, at.Format("02T15:04-07:00"))
	}
	return strings.Join(all, " ")
}

func TestClocksThatChangeNeitherSkipNorRepeatARun(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ in, expression, after, want string }{
		// spring: 02:00 to 03:00 does not exist, in Lord Howe 02:00 to 02:30
		{"Europe/Berlin", "30 2 * * *", "2026-03-28T12:00", "29T03:30+02:00 30T02:30+02:00"},
		{"America/New_York", "30 2 * * *", "2026-03-07T12:00", "08T03:30-04:00 09T02:30-04:00"},
		{"Australia/Lord_Howe", "15 2 * * *", "2026-10-03T12:00", "04T02:45+11:00 05T02:15+11:00"},
		{"Europe/Berlin", "*/30 * * * *", "2026-03-29T01:15", "29T01:30+01:00 29T03:00+02:00 29T03:30+02:00 29T04:00+02:00"},
		{"Australia/Lord_Howe", "20,35 2 * * *", "2026-10-03T12:00", "04T02:35+11:00 04T02:50+11:00 05T02:20+11:00"},
		{"Europe/Berlin", "30 2,3 * * *", "2026-03-28T12:00", "29T03:30+02:00 30T02:30+02:00"},
		{"Europe/Berlin", "45 2 * * *", "2026-03-29T03:10", "29T03:45+02:00 30T02:45+02:00"},
		// autumn: 02:00 to 03:00 comes twice, in New York 01:00 to 02:00, in Lord Howe 01:30 to 02:00
		{"Europe/Berlin", "30 2 * * *", "2026-10-24T12:00", "25T02:30+02:00 26T02:30+01:00"},
		{"America/New_York", "30 1 * * *", "2026-10-31T12:00", "01T01:30-04:00 02T01:30-05:00"},
		{"Australia/Lord_Howe", "45 1 * * *", "2026-04-04T12:00", "05T01:45+11:00 06T01:45+10:30"},
		{"Europe/Berlin", "15 * * * *", "2026-10-25T01:30", "25T02:15+02:00 25T03:15+01:00"},
		// zones in which midnight does not exist
		{"America/Sao_Paulo", "0 0 * * *", "2018-11-03T12:00", "04T01:00-02:00 05T00:00-02:00"},
	} {
		z := zone(t, c.in)
		after, err := time.ParseInLocation("2006-01-02T15:04", c.after, z)
		is.New(t).NoErr(err)
		n := len(strings.Fields(c.want))
		if got := runs(ofCron(t, c.expression, c.in), after, n); got != c.want {
			t.Errorf("%s in %s after %s: got %s, want %s", c.expression, c.in, c.after, got, c.want)
		}
	}
}

func TestWhatIsNeverDueOrCannotBeReadIsRefused(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	for _, f := range []timing{{}, {Cron: "0 9 * * *", Every: "1h"}, {Cron: "0 0 30 2 *"}, {Cron: "0 0 31 4,6 *"}, {Cron: "TZ= * * * *"},
		{Cron: "TZ=Europe/Berlin 0 9 * * *"}, {Cron: "CRON_TZ="}, {Cron: "@every 1h"}, {Cron: "60 * * * *"}, {Cron: "* * * *"},
		{Cron: "* * * * * * *"}, {Cron: strings.Repeat("1,", 200) + "1 * * * *"}, {Every: "1s"}, {Every: "-1h"}, {Every: "500d"},
		{Every: "soon"}, {Every: "NaNd"}, {Every: "1e300w"}, {Cron: "0 9 * * *", TimeZone: "Mars/Olympus"},
		{Cron: "0 9 * * *", TimeZone: "Local"}, {Cron: "0 9 * * *", TimeZone: "../../etc/passwd"}} {
		_, err := f.parse(time.Time{}, time.UTC)
		if handlers.CodeOf(err) != handlers.Invalid {
			t.Errorf("%+v: %v", f, err)
		}
	}
	for text, want := range map[string]time.Duration{"90": 90 * time.Second, "15m": 15 * time.Minute, "2d": 48 * time.Hour,
		"1w": 168 * time.Hour, "0.5d": 12 * time.Hour} {
		got, err := parseInterval(text)
		is.NoErr(err)
		is.Equal(got, want)
	}
	leap := ofCron(t, "0 0 29 2 *", "UTC")
	is.Equal(runs(leap, time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC), 1), "29T00:00+00:00")
	is.Equal(runs(ofCron(t, "*/20 0 9 * * *", "UTC"), time.Date(2026, 1, 1, 9, 0, 0, 0, time.UTC), 2),
		"01T09:00+00:00 01T09:00+00:00") // six fields: seconds first
}

func TestAnIntervalKeepsItsGrid(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	anchor := time.Date(2026, 1, 1, 9, 7, 0, 0, time.UTC)
	s, err := timing{Every: "15m"}.parse(anchor, time.UTC)
	is.NoErr(err)
	is.Equal(runs(s, anchor, 2), "01T09:22+00:00 01T09:37+00:00")
	is.Equal(runs(s, anchor.Add(95*time.Hour+time.Minute), 1), "05T08:22+00:00")
	latest, first := s.latest(anchor, anchor.Add(31*time.Minute))
	is.Equal([]time.Time{first, latest}, []time.Time{anchor.Add(15 * time.Minute), anchor.Add(30 * time.Minute)})
	starts, err := timing{Every: "1h", Starts: anchor}.parse(time.Time{}, time.UTC)
	is.NoErr(err)
	is.Equal(runs(starts, anchor.Add(-time.Hour), 2), "01T09:07+00:00 01T10:07+00:00")
	once, err := timing{At: anchor}.parse(time.Time{}, time.UTC)
	is.NoErr(err)
	is.Equal(once.next(anchor.Add(-1)), anchor)
	is.True(once.next(anchor).IsZero())
}

func TestAYearOfDowntimeIsSearchedFast(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	s := ofCron(t, "* * * * 1 *", "UTC")
	base := time.Date(2025, 6, 1, 0, 0, 0, 0, time.UTC)
	latest, first := s.latest(base, base.AddDate(1, 0, 0))
	is.Equal(first, time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC))
	is.Equal(latest, time.Date(2026, 1, 31, 23, 59, 59, 0, time.UTC))
}

// For any expression, zone and time: no panic, times only go forward, no wall-clock time comes twice, and latest finds
// what next finds.
func TestDueTimesOfAnyExpression(t *testing.T) {
	t.Parallel()
	zones := []string{"", "Europe/Berlin", "America/New_York", "Australia/Lord_Howe", "Asia/Kathmandu", "Pacific/Apia"}
	field := rapid.SampledFrom([]string{"*", "0", "30", "*/7", "2", "1-3", "2,3", "29", "5"})
	expect.Property(t, func(t *rapid.T) {
		expression := rapid.OneOf(rapid.String(), rapid.Custom(func(t *rapid.T) string {
			return strings.Join(rapid.SliceOfN(field, 5, 6).Draw(t, "fields"), " ")
		})).Draw(t, "expression")
		s, err := timing{Cron: expression, TimeZone: rapid.SampledFrom(zones).Draw(t, "zone")}.parse(time.Time{}, time.UTC)
		if err != nil {
			return
		}
		start := time.Unix(rapid.Int64Range(1767225600, 1798761600).Draw(t, "start"), 0)
		seen, at, last := map[string]bool{}, start, start
		for range 40 {
			if at = s.next(at); at.IsZero() {
				break
			}
			wall := at.In(s.Zone).Format(time.DateTime)
			if !at.After(last) || seen[wall] {
				t.Fatalf("%q: %s after %s", expression, wall, last)
			}
			if latest, _ := s.latest(start, at); !latest.Equal(at) {
				t.Fatalf("%q: the latest of %s until %s is %s", expression, start, at, latest)
			}
			seen[wall], last = true, at
		}
	})
}

func FuzzParse(f *testing.F) {
	f.Add("0 9 * * 1-5", "15m", "Europe/Berlin")
	f.Add("TZ=", "-1d", "Local")
	f.Fuzz(func(t *testing.T, expression, every, in string) {
		for _, fields := range []timing{{Cron: expression, TimeZone: in}, {Every: every}} {
			if s, err := fields.parse(time.Unix(0, 0), time.UTC); err == nil {
				_ = fmt.Sprint(s.nextRuns(time.Unix(1767225600, 0), 3))
			}
		}
	})
}
