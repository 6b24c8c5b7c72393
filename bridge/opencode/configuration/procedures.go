package configuration

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"log/slog"
	"strings"

	"pocketcoder/bridge/opencode"
	"pocketcoder/events"
	"pocketcoder/events/log"
	"pocketcoder/handlers/proposal"
	"pocketcoder/handlers/record"
)

// Procedures gives OpenCode the sealed procedures as skills, and applies approved proposals with the package proposal.
// All fields must be set. Load must be called before OpenCode starts.
type Procedures struct {
	Log     *log.Log
	Records *record.Records
	Server  *opencode.Supervisor
	Restart func() // asks for a restart of OpenCode if it needs one
	Logger  *slog.Logger
}

// proceduresConsumer is the name of the durable consumer of ApplyProposals.
const proceduresConsumer = "procedures"

// ApplyProposals applies approved proposals until ctx ends.
func ApplyProposals(ctx context.Context, l *log.Log, records *record.Records, logger *slog.Logger) error {
	filter := events.ConfigSubject(proposal.Collection, "*", events.Saved{}.Kind())
	return l.Consume(ctx, proceduresConsumer, filter, proposal.Proposals{Records: records}.Apply,
		func(e events.Event, err error) { logger.Error("seal procedures", "seq", e.Seq, "err", err) })
}

// Run gives the sealed procedures to OpenCode until ctx ends, and again when one changes.
func (p *Procedures) Run(ctx context.Context) error {
	after, err := p.Log.Last(ctx)
	if err == nil {
		err = p.Load(ctx) // they may have changed since the last Load
	}
	if err != nil {
		return err
	}
	p.Restart()
	filter := events.ConfigSubject(proposal.Procedures, "*", "*")
	return p.Log.Read(ctx, after, []string{filter}, func(log.Batch) error {
		if err := p.Load(ctx); err != nil {
			p.Logger.Error("give OpenCode the sealed procedures", "err", err)
		}
		p.Restart()
		return nil
	})
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
	all, err := record.All[procedure](ctx, p.Records, proposal.Procedures)
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
	return front + strings.TrimSpace(proposal.Body(p.Content)) + "\n"
}

// fence is before and after front matter.
const fence = "---\n"
