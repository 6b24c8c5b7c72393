package pages

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strconv"
	"time"

	"github.com/a-h/templ"
	"github.com/pocketbase/dbx"

	"pocketcoder/handlers/account"
	"pocketcoder/handlers/budget"
	"pocketcoder/projections"
	"pocketcoder/projections/store"
	"pocketcoder/sandbox/wire"
	"pocketcoder/web/api"
	"pocketcoder/web/metrics"
)

const (
	maxLetters = 50              // dead letters that are shown
	costDays   = 30              // over which cost is added up
	readTime   = 5 * time.Second // bounds how long the log's server is asked
)

// operationsView is the state of the system.
type operationsView struct {
	health  api.Health
	letters store.DeadLetters
	seq     uint64 // of the read models
	log     logState
	workers []wire.WorkerInfo
	problem string // why the log's server or the workers could not be asked

	byDay, byModel, byPerson []projections.SpendingShare
}

type logState struct {
	streams            []metrics.Stream
	last               uint64
	lastMinute, inHour uint64 // events
}

func (p Pages) showOperations(r *http.Request, caller api.Caller) (templ.Component, error) {
	if !caller.Is(account.Admin) {
		return nil, api.Forbidden("Only administrators see this page.")
	}
	ctx := r.Context()
	v := operationsView{health: p.API.Health()}
	since := time.Now().UTC().AddDate(0, 0, 1-costDays).Format(time.DateOnly)
	err := p.API.SlowView(ctx, caller.Key(), func(db dbx.Builder, seq uint64) (err error) {
		v.seq = seq
		for by, into := range map[projections.Grouping]*[]projections.SpendingShare{projections.PerDay: &v.byDay,
			projections.PerModel: &v.byModel, projections.PerPerson: &v.byPerson} {
			if *into, err = projections.SpendingShares(ctx, db, since, by); err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	v.byDay = everyDay(v.byDay, time.Now().UTC())
	if v.letters, err = p.API.Model.DeadLetters(ctx, maxLetters); err != nil {
		return nil, err
	}
	if err := p.askServers(ctx, &v); err != nil {
		v.problem = err.Error()
	}
	return operationsPage(v), nil
}

// askServers asks the log's server and the workers.
func (p Pages) askServers(ctx context.Context, v *operationsView) (err error) {
	ctx, cancel := context.WithTimeout(ctx, readTime)
	defer cancel()
	if v.log.streams, err = metrics.Streams(ctx, p.Conn); err != nil {
		return fmt.Errorf("read streams: %w", err)
	}
	if v.log.last, err = p.Log.Last(ctx); err != nil {
		return err
	}
	now := time.Now()
	for since, into := range map[time.Duration]*uint64{time.Minute: &v.log.lastMinute, time.Hour: &v.log.inHour} {
		before, err := p.Log.At(ctx, now.Add(-since))
		if err != nil {
			return err
		}
		*into = v.log.last - min(before, v.log.last)
	}
	v.workers, err = wire.Workers(ctx, p.Conn, p.Pool)
	return err
}

// everyDay adds the days on which nothing was spent, up to the day of now.
func everyDay(spent []projections.SpendingShare, now time.Time) (all []projections.SpendingShare) {
	for i := range costDays {
		day := projections.SpendingShare{Name: now.AddDate(0, 0, i+1-costDays).Format(time.DateOnly)}
		if j := slices.IndexFunc(spent, func(s projections.SpendingShare) bool { return s.Name == day.Name }); j >= 0 {
			day = spent[j]
		}
		all = append(all, day)
	}
	return all
}

type bar struct {
	x, y, width, height string
	title               string
}

// The size of a chart of columns.
const (
	chartWidth  = 600
	chartHeight = 100
)

// columnsOf are the bars of a chart, one for each share.
func columnsOf(all []projections.SpendingShare) (bars []bar) {
	highest := 0.0
	for _, s := range all {
		highest = max(highest, s.Cost)
	}
	width := float64(chartWidth) / float64(max(len(all), 1))
	for i, s := range all {
		height := 0.0
		if highest > 0 {
			height = s.Cost / highest * chartHeight
		}
		bars = append(bars, bar{
			x: coordinate(float64(i)*width + 1), y: coordinate(chartHeight - height), width: coordinate(width - 2), height: coordinate(height), title: s.Name + ": " + costText(s),
		})
	}
	return bars
}

func coordinate(n float64) string { return strconv.FormatFloat(n, 'f', 2, 64) }

// byCost returns the shares with the largest cost first, and how wide the bar of each is, in percent of the largest.
func byCost(all []projections.SpendingShare) (sorted []projections.SpendingShare, widths []string) {
	sorted = slices.SortedFunc(slices.Values(all), func(a, b projections.SpendingShare) int {
		return cmp.Or(cmp.Compare(b.Cost, a.Cost), cmp.Compare(b.Tokens, a.Tokens))
	})
	for _, s := range sorted {
		width := 0.0
		if sorted[0].Cost > 0 {
			width = s.Cost / sorted[0].Cost * 100
		}
		widths = append(widths, coordinate(width))
	}
	return sorted, widths
}

func costText(s projections.SpendingShare) string {
	return fmt.Sprintf("%s, %s tokens", budget.Dollars(s.Cost), strconv.FormatInt(s.Tokens, 10))
}

// totalOf is what all shares cost.
func totalOf(all []projections.SpendingShare) (sum projections.SpendingShare) {
	for _, s := range all {
		sum.Cost += s.Cost
		sum.Tokens += s.Tokens
	}
	return sum
}

// partNames are the parts of the system by name.
func partNames(h api.Health) []string { return slices.Sorted(maps.Keys(h)) }

// partDetails are what a part says about itself, by name.
func partDetails(p api.Part) (all [][2]string) {
	var fields map[string]json.RawMessage
	if json.Unmarshal(api.MustJSON(p.Detail), &fields) != nil {
		return nil // a part without details
	}
	for _, name := range slices.Sorted(maps.Keys(fields)) {
		text := string(fields[name])
		_ = json.Unmarshal(fields[name], &text) // what is no text is shown as JSON
		if text != "" && text != "null" {
			all = append(all, [2]string{name, text})
		}
	}
	return all
}

// bytesText is a size in the largest unit in which it is at least 1.
func bytesText(n uint64) string {
	size, unit := float64(n), "B"
	for _, larger := range []string{"KiB", "MiB", "GiB", "TiB"} {
		if size < 1024 {
			break
		}
		size, unit = size/1024, larger
	}
	return strconv.FormatFloat(size, 'f', 1, 64) + " " + unit
}
