package limit

import (
	"strings"
	"testing"
	"time"

	"github.com/matryer/is"

	"pocketcoder/sandbox/wire"
)

func TestSizesAreParsed(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]Size{
		"0": 0, "1": 1, "4096": 4096, "7B": 7, "1KiB": 1 << 10, "512MiB": 512 << 20, "4GiB": 4 << 30, "2TiB": 2 << 40, "1KB": 1000, "3GB": 3e9,
		"1.5GiB": 3 << 29, "512 MiB": 512 << 20, "4gib": 4 << 30, "0.5KiB": 512, "8388607TiB": 8388607 << 40,
	} {
		t.Run(text, func(t *testing.T) {
			is := is.New(t)
			got, err := ParseSize(text)
			is.NoErr(err)
			is.Equal(got, want)
			reparsed, err := ParseSize(got.String())
			is.NoErr(err)
			is.Equal(reparsed, want)
		})
	}
	for _, text := range []string{"", "MiB", "-1", "-1GiB", "12 parsecs", "1e9", "0x10", "NaN", "Inf", "1M", "1GiBB",
		"1 2", "8388608TiB", "99999999999999999999", "1_000", "+5"} {
		t.Run(text, func(t *testing.T) {
			is := is.New(t)
			_, err := ParseSize(text)
			is.True(err != nil)
			is.True(strings.HasPrefix(err.Error(), `size "`+text+`" is`))
		})
	}
}

func TestACommandOnlyLowersTheLimits(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	l := Limits{Memory: 1 << 30, Processes: 100, CPUTime: time.Hour, OpenFiles: 64}
	is.Equal(l.Lowered(wire.Limits{}), l)
	is.Equal(l.Lowered(wire.Limits{Memory: 1 << 31, Processes: 101, CPUTimeMS: 1e9}), l)
	own := wire.Limits{Memory: 1 << 20, Processes: 9, CPUTimeMS: 1000}
	want := Limits{Memory: 1 << 20, Processes: 9, CPUTime: time.Second}
	is.Equal(Limits{}.Lowered(own), want)
	want.OpenFiles = 64
	is.Equal(l.Lowered(own), want)
}

func TestTooLowLimitsAreRefused(t *testing.T) {
	t.Parallel()
	for want, l := range map[string]Limits{
		"memory of 100 is":       {Memory: 100},
		"memory of -1 is":        {Memory: -1},
		"processes of -1 is":     {Processes: -1},
		"file-size of -1 is":     {FileSize: -1},
		"cpu-time of 1ms is":     {CPUTime: time.Millisecond},
		"cpu-time of -1s is":     {CPUTime: -time.Second},
		"open-files of 3 is out": {OpenFiles: 3},
	} {
		t.Run(want, func(t *testing.T) {
			is := is.New(t)
			err := l.Validate()
			is.True(err != nil)
			is.True(strings.HasPrefix(err.Error(), "limit "+want))
		})
	}
	is.New(t).NoErr(Default().Validate())
}
