// Package procedures carries out the proposals that people approve: it seals procedures, and gives OpenCode the sealed
// ones as skills. Package proposal makes the change of an approved agent or prompt.
//
// Promises: OpenCode gets only texts that a person approved. A procedure is stored with the SHA-256 of its text, the
// approver and the time. OpenCode does not get a procedure whose text has another hash. OpenCode reads skills when it
// starts, so a change restarts it once no turn runs.
//
// It must not know how a person approves a proposal.
package procedures

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"strconv"
	"strings"

	"pocketcoder/bridge/opencode"
	"pocketcoder/events"
	"pocketcoder/events/log"
	"pocketcoder/handlers"
	"pocketcoder/handlers/proposal"
	"pocketcoder/handlers/record"
)

// The config collections of proposals and of sealed procedures.
const (
	proposals = proposal.Collection
	sealed    = "sops"
)

// Procedures seals proposals. All fields must be set. Load must be called before OpenCode starts.
type Procedures struct {
	Log     *log.Log
	Records *record.Records
	Server  *opencode.Supervisor
	Restart func() // asks for a restart of OpenCode if it needs one
	Logger  *slog.Logger
}

// Worker is the name of the durable consumer.
const Worker = "procedures"

// Run seals approved proposals, and gives OpenCode the sealed procedures, until ctx ends.
func (p *Procedures) Run(ctx context.Context) error {
	filters := []string{events.ConfigSubject(proposals, "*", events.Saved{}.Kind()),
		events.ConfigSubject(sealed, "*", "*")}
	return p.Log.WorkAll(ctx, Worker, filters, func(ctx context.Context, e events.Event) error {
		if e.Subject.Collection == proposals {
			return p.approve(ctx, e)
		}
		if err := p.Load(ctx); err != nil {
			return err
		}
		p.Restart()
		return nil
	}, func(e events.Event, err error) { p.Logger.Error("seal procedures", "seq", e.Seq, "err", err) })
}

// approval is a record of proposals.
type approval struct {
	proposal.Stored
	Approved string `json:"approved_at"`
}

// approve carries out an approved proposal. If that cannot be done, the proposal is a draft again, with the reason.
func (p *Procedures) approve(ctx context.Context, e events.Event) error {
	d, err := events.Decode(e)
	if err != nil {
		return nil // a retry would not make it readable
	}
	var approved approval
	if json.Unmarshal(d.(events.Saved).Fields, &approved) != nil || approved.Status != "approved" {
		return nil
	}
	if approved.Kind != proposal.Agent && approved.Kind != proposal.Prompt {
		return p.seal(ctx, e, approved)
	}
	err = proposal.Proposals{Records: p.Records}.Apply(ctx, approved.Stored, e)
	if refused := (handlers.Refused{}); errors.As(err, &refused) {
		_, _, err = p.Records.Save(ctx, record.Save{Command: handlers.Command{Actor: events.ActorSystem},
			Collection: proposals, Record: e.Subject.ID, Set: record.Fields(map[string]any{"status": "draft",
				"approved_at": "", "problem": refused.Text})})
	}
	return err
}

// seal stores an approved proposal as the procedure with its name. The version of a procedure is the sequence of its
// approval, so that an older approval that is delivered again changes nothing.
func (p *Procedures) seal(ctx context.Context, e events.Event, approved approval) error {
	now, err := record.All[procedure](ctx, p.Records, sealed)
	if err != nil {
		return err
	}
	for _, known := range now {
		version, _ := strconv.ParseUint(known.Value.Version, 10, 64) // 0 for one that a person made
		if known.Value.Name == approved.Name && (version >= e.Seq || known.Seq > e.Seq) {
			return nil
		}
	}
	set := record.Fields(map[string]any{
		"name": approved.Name, "description": description(approved.Stored), "content": approved.Content, "proposal": e.Subject.ID,
		"approved_at": approved.Approved, "sealed_at": record.FormatTime(e.Time), "version": strconv.FormatUint(e.Seq, 10),
		"sealed_by": strings.TrimPrefix(e.Actor, events.UserActor("")),
	})
	_, _, err = p.Records.Save(ctx, record.Save{Command: handlers.Command{Actor: events.ActorSystem}, Collection: sealed,
		Set: set, New: true, Upsert: true})
	return err
}

// maxDescription bounds a description that is made from the text, in runes.
const maxDescription = 200

// description returns the description of a proposal, or else the first line of its text.
func description(p proposal.Stored) string {
	first, _, _ := strings.Cut(strings.TrimLeft(strings.TrimSpace(body(p.Content)), "# "), "\n")
	if text := []rune(first); len(text) > maxDescription {
		first = string(text[:maxDescription])
	}
	return cmp.Or(strings.TrimSpace(p.Description), first, p.Name)
}

// procedure is a record of sealed procedures.
type procedure struct{ Name, Description, Content, Signature, Version string }

// isSealed reports whether the text is the one that was approved.
func (p procedure) isSealed() bool {
	sum := sha256.Sum256([]byte(p.Content))
	return p.Signature == hex.EncodeToString(sum[:])
}

// Load sets the sealed procedures for the next start of OpenCode. If two names make the same skill name, the procedure
// that changed last wins.
func (p *Procedures) Load(ctx context.Context) error {
	all, err := record.All[procedure](ctx, p.Records, sealed)
	if err != nil {
		return fmt.Errorf("read procedures: %w", err)
	}
	skills := map[string]string{}
	for _, r := range all {
		name := proposal.SkillName(r.Value.Name)
		if name == "" || !r.Value.isSealed() {
			p.Logger.Warn("OpenCode does not get a procedure: its name has no letter a-z or digit, or its text is not the approved one",
				"procedure", r.Value.Name)
			continue
		}
		skills[name] = skill(name, r.Value)
	}
	p.Server.SetSkills(skills)
	return nil
}

// skill returns the SKILL.md of a procedure. A JSON string is also a YAML string.
func skill(name string, p procedure) string {
	about, _ := json.Marshal(p.Description) // a text
	front := "---\nname: " + name + "\ndescription: " + string(about) + "\n---\n\n"
	return front + strings.TrimSpace(body(p.Content)) + "\n"
}

// fence is before and after front matter.
const fence = "---\n"

// body returns a text without its front matter, which a proposal of a whole SKILL.md has.
func body(content string) string {
	if rest, found := strings.CutPrefix(content, "---\n"); found {
		if _, after, closed := strings.Cut(rest, "\n---\n"); closed {
			return after
		}
	}
	return content
}
