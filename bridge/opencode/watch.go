package opencode

import (
	"cmp"
	"context"
	"fmt"
	"time"

	"pocketcoder/bridge/opencode/client"
	"pocketcoder/events/log/sleep"
)

// HealthLimits configure when an OpenCode that runs but does not respond is reported and restarted. A zero duration
// stands for the default.
type HealthLimits struct {
	Interval time.Duration // pause between two health requests
	Report   time.Duration // time without an answer until Trouble reports it
	Restart  time.Duration // time without an answer until OpenCode is restarted
	Start    time.Duration // time that a start may be idle before OpenCode is ready
}

// DefaultHealthLimits is far above OpenCode's response time under load, about 100 ms.
var DefaultHealthLimits = HealthLimits{Interval: 2 * time.Second, Report: 10 * time.Second, Restart: 30 * time.Second,
	Start: 90 * time.Second}

// watch asks OpenCode for its health until ctx ends. It returns an error when OpenCode has not answered for so long
// that it must be restarted. Time in which OpenCode waits for a processor does not count, because a restart would add
// load to an overloaded machine. Time in which this process was paused does not count either.
func (s *Supervisor) watch(ctx context.Context, api *client.Client, pid int) error {
	limits := HealthLimits{Interval: cmp.Or(s.Limits.Interval, DefaultHealthLimits.Interval),
		Report:  cmp.Or(s.Limits.Report, DefaultHealthLimits.Report),
		Restart: cmp.Or(s.Limits.Restart, DefaultHealthLimits.Restart)}
	defer s.setTrouble("")
	var silent silence
	var gitReported time.Time
	for {
		gitReported = s.reportSlowGit(gitReported)
		next := limits.Report
		if s.Trouble() != "" {
			next = limits.Restart
		}
		step := beginStep(pid, max(min(limits.Report/2, next-silent.time), time.Millisecond))
		try, cancel := context.WithTimeout(ctx, step.planned)
		_, err := api.Health(try)
		cancel()
		silent.add(step)
		switch {
		case ctx.Err() != nil:
			return nil
		case err == nil:
			silent = silence{}
			s.setTrouble("")
		case silent.time >= limits.Restart:
			return fmt.Errorf("OpenCode has not answered for %g s", limits.Restart.Seconds())
		case silent.time >= limits.Report && s.Trouble() == "":
			s.setTrouble(fmt.Sprintf("OpenCode has not answered for %g s", limits.Report.Seconds()))
			s.Logger.Error(s.Trouble(), "err", err, "restart after", limits.Restart)
		}
		if err == nil || silent.time < limits.Report {
			pause := beginStep(pid, min(limits.Interval, max(limits.Report-silent.time, time.Millisecond)))
			if sleep.For(ctx, pause.planned) != nil {
				return nil
			}
			silent.add(pause)
		}
	}
}

// silence counts the time without an answer of OpenCode.
type silence struct{ time time.Duration }

// step is a request for the health of OpenCode, or the pause after one.
type step struct {
	pid     int
	began   time.Time
	waited  time.Duration // by OpenCode for a processor, until then
	planned time.Duration
}

func beginStep(pid int, planned time.Duration) step {
	return step{pid, time.Now(), processorWait(pid), planned}
}

// maxLate is how much longer than planned a step may take. A step that takes longer shows that this process was paused:
// it was stopped, the machine was suspended, or it swapped. OpenCode may have been paused as well, or have answered.
const maxLate = time.Second

// add counts a step that has ended, unless this process was paused in it.
func (s *silence) add(one step) {
	if took := time.Since(one.began); took <= one.planned+maxLate {
		s.time += max(took-(processorWait(one.pid)-one.waited), 0)
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
