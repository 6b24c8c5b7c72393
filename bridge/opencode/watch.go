package opencode

import (
	"cmp"
	"context"
	"fmt"
	"time"

	"pocketcoder/bridge/opencode/client"
	"pocketcoder/sleep"
)

// HealthLimits configure when an OpenCode that runs but does not respond is reported and restarted. A zero duration
// stands for the default.
type HealthLimits struct {
	Interval time.Duration // pause between two health requests
	Report   time.Duration // time without an answer until Trouble reports it
	Restart  time.Duration // time without an answer until OpenCode is restarted
}

// DefaultHealthLimits is far above OpenCode's response time under load, about 100 ms.
var DefaultHealthLimits = HealthLimits{Interval: 2 * time.Second, Report: 10 * time.Second, Restart: 30 * time.Second}

// watch asks OpenCode for its health until ctx ends. It returns an error when OpenCode has not answered for so long
// that it must be restarted. Time in which OpenCode waits for a processor does not count, because a restart would add
// load to an overloaded machine.
func (s *Supervisor) watch(ctx context.Context, api *client.Client, pid int) error {
	limits := HealthLimits{cmp.Or(s.Limits.Interval, DefaultHealthLimits.Interval),
		cmp.Or(s.Limits.Report, DefaultHealthLimits.Report),
		cmp.Or(s.Limits.Restart, DefaultHealthLimits.Restart)}
	defer s.setTrouble("")
	answered, waited := time.Now(), processorWait(pid)
	var gitReported time.Time
	for {
		gitReported = s.reportSlowGit(gitReported)
		next := limits.Report
		if s.Trouble() != "" {
			next = limits.Restart
		}
		try, cancel := context.WithTimeout(ctx, max(min(limits.Report/2, next-time.Since(answered)), time.Millisecond))
		_, err := api.Health(try)
		cancel()
		silent := time.Since(answered) - (processorWait(pid) - waited)
		switch {
		case ctx.Err() != nil:
			return nil
		case err == nil:
			answered, waited = time.Now(), processorWait(pid)
			s.setTrouble("")
		case silent >= limits.Restart:
			return fmt.Errorf("OpenCode has not answered for %g s", limits.Restart.Seconds())
		case silent >= limits.Report && s.Trouble() == "":
			s.setTrouble(fmt.Sprintf("OpenCode has not answered for %g s", limits.Report.Seconds()))
			s.Logger.Error(s.Trouble(), "err", err, "restart after", limits.Restart)
		}
		if err == nil || silent < limits.Report {
			if sleep.For(ctx, min(limits.Interval, max(limits.Report-time.Since(answered), time.Millisecond))) != nil {
				return nil
			}
		}
	}
}

// Trouble returns a sentence about a fault of the running OpenCode, or "" if no fault is known.
func (s *Supervisor) Trouble() string {
	if text := s.trouble.Load(); text != nil {
		return *text
	}
	return ""
}

func (s *Supervisor) setTrouble(text string) {
	if s.Trouble() == text {
		return
	}
	s.trouble.Store(&text)
	if s.Changed != nil {
		s.Changed()
	}
}
