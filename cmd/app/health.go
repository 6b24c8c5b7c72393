package app

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"strings"
	"time"

	"pocketcoder/bridge/opencode/ingest"
	"pocketcoder/cmd/datadir"
	"pocketcoder/events"
	"pocketcoder/handlers"
	"pocketcoder/handlers/record"
	"pocketcoder/sandbox/isolation"
	"pocketcoder/web/api"
)

// operator is the actor of the commands of the owner of the data directory.
var operator = events.UserActor("operator")

// health returns the state of each part that this node runs.
func (s *System) health() api.Health {
	h := api.Health{"log": s.logHealth(), "read_model": s.modelHealth(), "data": dataHealth(s.o.Data)}
	if s.leads() {
		h["opencode"], h["sandbox"] = s.enginesHealth()
		h["consumers"] = s.consumersHealth()
	}
	if s.lease != nil {
		h["lease"] = s.leaseHealth()
	}
	return h
}

// engineDetail is the state of OpenCode and its model, for administrators.
type engineDetail struct {
	ingest.Condition
	// "provider/model" of chats without a selection; empty until OpenCode recommends one
	Model     string   `json:"model"`
	ModelHost string   `json:"model_host,omitempty"` // of --model-url
	KeyErrors []string `json:"key_errors,omitempty"` // what providers say of keys that they refuse
	Restart   string   `json:"restart,omitempty"`    // why OpenCode is started again soon
	// what is wrong with the files of skills, by skill
	Skills    map[string]string `json:"skills,omitempty"`
	Isolation isolation.Level   `json:"isolation"`
	Reason    string            `json:"reason"`           // why OpenCode has this isolation level
	Others    map[string]any    `json:"others,omitempty"` // the engines of other projects, by project
}

// Unconfined is the warning about an OpenCode without isolation.
const Unconfined = "OpenCode is not confined: its file tools and plugins have the rights and the network of this process"

// enginesHealth returns the state of OpenCode and that of the sandbox. Each is the worst of the engines that run; the
// details are those of the first one, with the others by their projects. Without an engine, because all are idle, both
// are ready.
func (s *System) enginesHealth() (engines, sandbox api.Part) {
	all := s.sortedEngines()
	failed := s.engines.Errors()
	if len(all) == 0 && len(failed) == 0 {
		state := either(s.engines.Started(firstProject), api.Ready, api.Starting)
		return api.Part{State: state, Detail: map[string]any{"idle": state == api.Ready}}, api.Part{State: state}
	}
	others := map[string]any{}
	for i, e := range all {
		one, worker := e.health(), e.worker.Health()
		for _, part := range []*api.Part{&one, &worker} {
			switch {
			case part.State != api.Starting:
			case !e.isReady() && s.engines.Started(firstProject): // as engines do when they are needed again
				part.State = api.Ready
			case e.project.Project != firstProject: // a system without one project is not out of order
				part.State = api.Degraded
			}
		}
		if i == 0 {
			engines, sandbox = one, worker
			continue
		}
		engines.State, sandbox.State = worse(engines.State, one.State), worse(sandbox.State, worker.State)
		others[e.project.Project] = map[string]any{"opencode": one, "sandbox": worker}
	}
	for id, err := range failed {
		engines.State = worse(cmp.Or(engines.State, api.Degraded), api.Degraded)
		others[id] = map[string]any{"error": err.Error()}
	}
	if detail, ok := engines.Detail.(engineDetail); ok {
		detail.Others = others
		engines.Detail = detail
	} else {
		engines.Detail = others
	}
	sandbox.State = cmp.Or(sandbox.State, api.Degraded)
	return engines, sandbox
}

// worse returns the state of two parts together.
func worse(a, b api.State) api.State {
	if a == api.Ready {
		return b
	}
	return a
}

func (e *engine) health() api.Part {
	connection := e.ingest.Condition()
	part := api.Part{State: either(connection.Connected, api.Ready, api.Starting)}
	if trouble := e.opencode.Trouble(); trouble != "" {
		connection.Error, part.State = trouble, api.Degraded
	}
	refused, restart := e.modelKeys.Errors(), ""
	if e.opencode.NeedsRestart() {
		restart = "for other keys of providers or procedures, once no turn runs"
	}
	if len(refused) > 0 && part.State == api.Ready {
		part.State = api.Degraded
	}
	reason := e.s.isolation.Reason
	if e.s.isolation.Level == isolation.None {
		reason = Unconfined
	}
	part.Detail = engineDetail{Condition: connection, Model: e.outbox.Configured(), ModelHost: e.s.modelHost(),
		KeyErrors: refused, Restart: restart, Skills: e.opencode.SkillFiles(), Isolation: e.s.isolation.Level,
		Reason: reason}
	return part
}

func dataHealth(d datadir.Dir) api.Part {
	if err := d.Usable(); err != nil {
		return api.Part{State: api.Offline, Detail: map[string]any{"path": string(d), "error": err.Error()}}
	}
	return api.Part{State: api.Ready, Detail: map[string]any{"path": string(d)}}
}

// rootNote says what it means that the system runs as root, and what to do instead. It is empty if no command runs.
func rootNote(level isolation.Level) string {
	const instead = "Start it as an ordinary user who owns the directories of the projects instead."
	switch level {
	case isolation.Bwrap, isolation.Landlock:
		return fmt.Sprintf("This system runs as root. Commands run as root too, and isolation %s confines them to the directory of their project and their home. Files that they create there belong to root. %s",
			level, instead)
	case isolation.Container, isolation.None:
		return fmt.Sprintf("This system runs as root, and isolation %s does not confine commands: an approved command can read and change every file of this machine or container. %s",
			level, instead)
	}
	return ""
}

// reportIsolation prints the isolation level of commands, and warns if there is none. It does so once for each level,
// however many projects have workers.
func (s *System) reportIsolation(status string) {
	if before := s.reported.Swap(&status); before != nil && *before == status {
		return
	}
	level, reason, _ := strings.Cut(status, ": ")
	if level == string(isolation.Bwrap) || level == string(isolation.Landlock) {
		s.progress.Done("sandbox", "isolation %s: %s", level, reason)
	} else {
		s.progress.Note("sandbox", "isolation %s: %s", level, reason)
	}
	if note := rootNote(isolation.Level(level)); note != "" && os.Geteuid() == 0 {
		s.progress.Note("root", "%s", note)
	}
}

func (s *System) modelHealth() api.Part {
	detail := map[string]any{"seq": s.model.Loaded()}
	select {
	case <-s.loaded:
	default:
		return api.Part{State: api.Starting, Detail: detail}
	}
	dead, err := s.model.DeadLetters(context.Background(), 0)
	if err != nil {
		detail["error"] = err.Error()
		return api.Part{State: api.Offline, Detail: detail}
	}
	detail["dead_letters"] = dead.Count
	if trouble := s.model.Trouble(); trouble != "" {
		detail["error"] = trouble
	}
	if aside := s.model.ReplacedFile(); aside != "" {
		detail["set_aside"] = aside
	}
	return api.Part{State: either(dead.Count == 0 && s.model.Trouble() == "", api.Ready, api.Degraded), Detail: detail}
}

// consumersHealth returns the state of the consumers that react to events. It is degraded while one does no work: then
// requests may wait without a decision, or without a notification.
func (s *System) consumersHealth() api.Part {
	if stalled := s.log.StalledConsumers(); len(stalled) > 0 {
		return api.Part{State: api.Degraded, Detail: map[string]any{"error": strings.Join(stalled, "\n")}}
	}
	return api.Part{State: api.Ready}
}

func either(is bool, then, otherwise api.State) api.State {
	if is {
		return then
	}
	return otherwise
}

// healthPause is how often the parts are checked if no change is reported.
const healthPause = 5 * time.Second

// watchHealth records every change of a part's state, so that clients see it. It calls ready once, when every part is
// ready.
func (s *System) watchHealth(ctx context.Context, ready func()) error {
	tick := time.NewTicker(healthPause)
	defer tick.Stop()
	recorded := map[string]api.State{}
	for announced := false; ; {
		health := s.health()
		if health.Ready() && !announced {
			announced = true
			ready()
		}
		if s.disk.Refusal() != nil || !s.leads() { // the log refuses events, or another node records
		} else if err := s.recordHealth(ctx, health, recorded); err != nil && ctx.Err() == nil {
			s.o.Logger.Error("record health", "err", err)
		}
		select {
		case <-s.changed:
		case <-tick.C:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// recordHealth saves the parts whose recorded state is out of date.
func (s *System) recordHealth(ctx context.Context, health api.Health, recorded map[string]api.State) error {
	for name, part := range health {
		if recorded[name] == part.State {
			continue
		}
		set := record.Fields(map[string]any{
			"name": name, "status": string(part.State), "last_ping": events.FormatTime(time.Now()),
		})
		save := record.Save{Command: handlers.Command{Actor: events.ActorSystem}, Collection: "healthchecks", Record: name,
			Set: set}
		_, _, err := s.records.Save(ctx, save)
		if r := (handlers.Refused{}); errors.As(err, &r) && r.Code == handlers.NotFound {
			save.New = true
			_, _, err = s.records.Save(ctx, save)
		}
		if err != nil {
			return err
		}
		recorded[name] = part.State
	}
	return nil
}
