package filter

import (
	"time"

	"pocketcoder/events"
)

// macros are names for points in time, in UTC.
var macros = map[string]func(now time.Time) any{
	"@now":        func(t time.Time) any { return t.Format(events.TimeFormat) },
	"@yesterday":  func(t time.Time) any { return t.AddDate(0, 0, -1).Format(events.TimeFormat) },
	"@tomorrow":   func(t time.Time) any { return t.AddDate(0, 0, 1).Format(events.TimeFormat) },
	"@second":     func(t time.Time) any { return t.Second() },
	"@minute":     func(t time.Time) any { return t.Minute() },
	"@hour":       func(t time.Time) any { return t.Hour() },
	"@day":        func(t time.Time) any { return t.Day() },
	"@weekday":    func(t time.Time) any { return int(t.Weekday()) },
	"@month":      func(t time.Time) any { return int(t.Month()) },
	"@year":       func(t time.Time) any { return t.Year() },
	"@todayStart": func(t time.Time) any { return day(t.Year(), t.Month(), t.Day()) },
	"@todayEnd":   func(t time.Time) any { return endOf(t.Year(), t.Month(), t.Day()) },
	"@monthStart": func(t time.Time) any { return day(t.Year(), t.Month(), 1) },
	"@monthEnd":   func(t time.Time) any { return endOf(t.Year(), t.Month()+1, 0) },
	"@yearStart":  func(t time.Time) any { return day(t.Year(), time.January, 1) },
	"@yearEnd":    func(t time.Time) any { return endOf(t.Year(), time.December, 31) },
}

func day(year int, month time.Month, day int) string {
	return time.Date(year, month, day, 0, 0, 0, 0, time.UTC).Format(events.TimeFormat)
}

// endOf returns the last millisecond of a day.
func endOf(year int, month time.Month, day int) string {
	return time.Date(year, month, day, 23, 59, 59, 999e6, time.UTC).Format(events.TimeFormat)
}
