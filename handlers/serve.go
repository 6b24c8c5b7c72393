package handlers

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/nats-io/nats.go"

	"pocketcoder/events"
	"pocketcoder/events/log"
	"pocketcoder/handlers/policy"
)

// commandPrefix is where commands are taken over NATS: cmd.<name>, request/reply, JSON both ways.
const commandPrefix = "cmd."

// commandLine is the device of those who give commands over NATS.
var commandLine = events.Client{Device: "command line"}

// Accepted is the answer to a command that was carried out.
type Accepted struct {
	ID     string          `json:"id,omitempty"`     // of what it created
	Seq    uint64          `json:"seq"`              // of its event
	Result json.RawMessage `json:"result,omitempty"` // what a command that asks was told
}

// answer is what goes over the wire: one of the two.
type answer struct {
	Accepted *Accepted `json:"accepted,omitempty"`
	Refused  *Refused  `json:"refused,omitempty"`
	Error    string    `json:"error,omitempty"`
}

// commandTimeout bounds one command.
const commandTimeout = 20 * time.Second

// Commands are what can be given over NATS, by name: each is made by CommandOf.
type Commands map[string]func(ctx context.Context, actor string, body []byte) (Accepted, error)

// commands is every command that can be given over NATS.
func (h *Handlers) commands() Commands {
	return Commands{
		"chat.create":     CommandOf(func(c *CreateChat, actor string) { c.Actor = actor }, h.createChat),
		"message.submit":  CommandOf(func(c *SubmitMessage, actor string) { c.Actor = actor }, h.submitMessage),
		"question.answer": CommandOf(func(c *AnswerQuestion, actor string) { c.Actor = actor }, SeqOnly(h.AnswerQuestion)),
		"budget.list":     CommandOf(func(*struct{}, string) {}, h.listBudgets),
		"budget.set":      CommandOf(func(c *SetBudget, actor string) { c.Actor = actor }, h.setBudget),
		"budget.clear":    CommandOf(func(c *ClearBudget, actor string) { c.Actor = actor }, SeqOnly(h.ClearBudget)),
		"device.add":      CommandOf(func(c *AddDevice, actor string) { c.Actor = actor }, h.addDevice),
		"device.list":     CommandOf(unnamed[struct{}], result(func(ctx context.Context, _ struct{}) ([]Device, error) { return h.Devices(ctx) })),
		"key.add":         CommandOf(func(c *AddSSHKey, actor string) { c.Actor = actor }, h.addSSHKey),
		"key.list":        CommandOf(unnamed[struct{}], result(func(ctx context.Context, _ struct{}) ([]RegisteredKey, error) { return h.SSHKeys(ctx) })),
		"key.used":        CommandOf(func(c *UseSSHKey, actor string) { c.Actor = actor }, SeqOnly(h.UseSSHKey)),
		"record.save":     CommandOf(func(c *SaveRecord, actor string) { c.Actor = actor }, h.saveRecord),
		"record.delete":   CommandOf(func(c *DeleteRecord, actor string) { c.Actor = actor }, SeqOnly(h.DeleteRecord)),
		"model.list":      CommandOf(unnamed[ListModels], result(h.Models)),
		"model.select":    CommandOf(func(c *SelectModel, actor string) { c.Actor = actor }, h.selectModel),
		"chat.revert":     CommandOf(func(c *RevertChat, actor string) { c.Actor = actor }, SeqOnly(h.RevertChat)),
		"turn.abort":      CommandOf(func(c *AbortTurn, actor string) { c.Actor = actor }, SeqOnly(h.AbortTurn)),
	}
}

func (h *Handlers) createChat(ctx context.Context, c CreateChat) (Accepted, error) {
	id, seq, err := h.CreateChat(ctx, c)
	return Accepted{ID: id, Seq: seq}, err
}

func (h *Handlers) submitMessage(ctx context.Context, c SubmitMessage) (Accepted, error) {
	id, seq, err := h.SubmitMessage(ctx, c)
	return Accepted{ID: id, Seq: seq}, err
}

func (h *Handlers) addDevice(ctx context.Context, c AddDevice) (Accepted, error) {
	id, seq, err := h.AddDevice(ctx, c)
	return Accepted{ID: id, Seq: seq}, err
}

func (h *Handlers) addSSHKey(ctx context.Context, c AddSSHKey) (Accepted, error) {
	id, seq, err := h.AddSSHKey(ctx, c)
	return Accepted{ID: id, Seq: seq}, err
}

func (h *Handlers) saveRecord(ctx context.Context, c SaveRecord) (Accepted, error) {
	id, seq, err := h.SaveRecord(ctx, c)
	return Accepted{ID: id, Seq: seq}, err
}

func (h *Handlers) selectModel(ctx context.Context, c SelectModel) (Accepted, error) {
	id, seq, err := h.SelectModel(ctx, c)
	return Accepted{ID: id, Seq: seq}, err
}

// SeqOnly is a command that creates nothing with an id.
func SeqOnly[C any](carryOut func(context.Context, C) (uint64, error)) func(context.Context, C) (Accepted, error) {
	return func(ctx context.Context, c C) (Accepted, error) {
		seq, err := carryOut(ctx, c)
		return Accepted{Seq: seq}, err
	}
}

// CommandOf decodes the JSON of a command, names its actor, and carries it out.
func CommandOf[C any](by func(*C, string), carryOut func(context.Context, C) (Accepted, error)) func(context.Context, string, []byte) (Accepted, error) {
	return func(ctx context.Context, actor string, body []byte) (Accepted, error) {
		var c C
		d := json.NewDecoder(bytes.NewReader(body))
		d.DisallowUnknownFields()
		if err := d.Decode(&c); err != nil {
			return Accepted{}, refuse(Invalid, "the command is not readable: %v", err)
		}
		by(&c, actor)
		return carryOut(ctx, c)
	}
}

// Serve takes the commands of Handlers over NATS.
func (h *Handlers) Serve(ctx context.Context, nc *nats.Conn, actor string, log *slog.Logger) error {
	return h.commands().Serve(ctx, nc, actor, log)
}

// AskWhy asks why an ask was decided as it was; the answer's result is a Why.
type AskWhy struct {
	Chat       string `json:"chat"`
	Permission string `json:"permission"`
}

// ListRules asks which rules are in force in a scope; the answer's result is a list of policy.Rule.
type ListRules struct {
	Chat  string `json:"chat,omitempty"`
	Agent string `json:"agent,omitempty"`
	Seq   uint64 `json:"seq,omitempty"` // 0 is now
}

// ReplayPolicy asks what a rule would have done so far; the answer's result is a DryRun.
type ReplayPolicy struct {
	Rule policy.Rule `json:"rule"`
	Chat string      `json:"chat,omitempty"` // empty is all
}

// commands is every command about permissions.
func (g Gate) commands() Commands {
	return Commands{
		"permission.decide":  CommandOf(func(c *DecidePermission, actor string) { c.Actor, c.Client = actor, commandLine }, SeqOnly(g.Decide)),
		"permission.propose": CommandOf(func(c *AlwaysPermission, actor string) { c.Actor = actor }, result(g.ProposeAlways)),
		"permission.always":  CommandOf(func(c *AlwaysPermission, actor string) { c.Actor, c.Client = actor, commandLine }, g.allowAlways),
		"permission.why": CommandOf(unnamed[AskWhy], result(func(ctx context.Context, c AskWhy) (Why, error) {
			return g.Why(ctx, c.Chat, c.Permission)
		})),
		"policy.rules":  CommandOf(unnamed[ListRules], result(g.listRules)),
		"policy.replay": CommandOf(unnamed[ReplayPolicy], result(g.replay)),
	}
}

// unnamed is for a command that changes nothing: whoever may give it may know.
func unnamed[C any](*C, string) {}

// result is a command that only tells something.
func result[C, R any](tell func(context.Context, C) (R, error)) func(context.Context, C) (Accepted, error) {
	return func(ctx context.Context, c C) (Accepted, error) {
		told, err := tell(ctx, c)
		if err != nil {
			return Accepted{}, err
		}
		body, err := json.Marshal(told)
		return Accepted{Result: body}, err
	}
}

// allowAlways answers with the ids of the rules.
func (g Gate) allowAlways(ctx context.Context, c AlwaysPermission) (Accepted, error) {
	rules, seq, err := g.AllowAlways(ctx, c)
	if err != nil {
		return Accepted{}, err
	}
	body, err := json.Marshal(rules)
	return Accepted{Seq: seq, Result: body}, err
}

func (g Gate) listRules(ctx context.Context, c ListRules) ([]policy.Rule, error) {
	return g.InForce(ctx, RuleScope{Chat: c.Chat, Agent: c.Agent, At: time.Now(), Seq: c.Seq})
}

func (g Gate) replay(ctx context.Context, c ReplayPolicy) (DryRun, error) {
	return g.DryRun(ctx, c.Rule, c.Chat)
}

// Serve takes the commands of the Gate over NATS.
func (g Gate) Serve(ctx context.Context, nc *nats.Conn, actor string) error {
	return g.commands().Serve(ctx, nc, actor, g.Log)
}

// Serve takes commands over NATS until ctx ends, in the name of actor: only the operator's identity may publish there.
func (all Commands) Serve(ctx context.Context, nc *nats.Conn, actor string, log *slog.Logger) error {
	for name, carryOut := range all {
		sub, err := nc.QueueSubscribe(commandPrefix+name, "handlers", func(m *nats.Msg) {
			if _, err := m.Metadata(); err == nil {
				return // no command but a stored event: who may read the log may have JetStream deliver it to any subject
			}
			go func() {
				ctx, cancel := context.WithTimeout(ctx, commandTimeout)
				defer cancel()
				accepted, err := carryOut(ctx, actor, m.Data)
				if err := respond(m, accepted, err); err != nil {
					log.Error("answer command", "command", name, "err", err)
				}
			}()
		})
		if err != nil {
			return fmt.Errorf("serve command %s: %w", name, err)
		}
		defer sub.Unsubscribe()
	}
	<-ctx.Done()
	return ctx.Err()
}

func respond(m *nats.Msg, accepted Accepted, err error) error {
	a := answer{Accepted: &accepted}
	if err != nil {
		a = answer{Error: err.Error()}
		if r := (Refused{}); errors.As(err, &r) {
			a = answer{Refused: &r}
		}
		if u := log.Unavailable(""); errors.As(err, &u) {
			a = answer{Refused: &Refused{Code: Unavailable, Text: u.Error()}}
		}
	}
	body, err := json.Marshal(a)
	if err != nil {
		return err
	}
	return m.Respond(body)
}

// Give gives a command to a running system over NATS. A refusal comes back as Refused.
func Give(ctx context.Context, nc *nats.Conn, name string, command any) (Accepted, error) {
	body, err := json.Marshal(command)
	if err != nil {
		return Accepted{}, fmt.Errorf("give %s: %w", name, err)
	}
	if limit := nc.MaxPayload(); int64(len(body)) > limit {
		return Accepted{}, refuse(Invalid, "the command is %d bytes; the limit is %d", len(body), limit)
	}
	ctx, cancel := context.WithTimeout(ctx, commandTimeout)
	defer cancel()
	m, err := nc.RequestWithContext(ctx, commandPrefix+name, body)
	if err != nil {
		return Accepted{}, fmt.Errorf("give %s: %w", name, err)
	}
	var a answer
	if err := json.Unmarshal(m.Data, &a); err != nil {
		return Accepted{}, fmt.Errorf("give %s: %w", name, err)
	}
	switch {
	case a.Refused != nil:
		return Accepted{}, *a.Refused
	case a.Error != "" || a.Accepted == nil:
		return Accepted{}, fmt.Errorf("give %s: %s", name, a.Error)
	}
	return *a.Accepted, nil
}
