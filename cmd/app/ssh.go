package app

import (
	"context"
	"fmt"
	"os"
	"path/filepath"

	"pocketcoder/bridge/ssh"
	"pocketcoder/cmd/client"
	"pocketcoder/cmd/datadir"
	"pocketcoder/cmd/viewer"
	"pocketcoder/events"
	"pocketcoder/events/log"
	"pocketcoder/handlers"
	"pocketcoder/handlers/account"
	"pocketcoder/handlers/project"
)

// openSSH opens the SSH server if it is configured, and finds the programs that its connections need.
func openSSH(ctx context.Context, o Options, say *progress) (*ssh.Server, error) {
	if err := os.MkdirAll(o.Data.Path("ssh"), 0o700); err != nil || o.SSH == "" {
		return nil, err
	}
	if _, err := viewer.Open(ctx, client.Address{Data: o.Data}); err != nil {
		return nil, fmt.Errorf("--ssh: %w", err)
	}
	s, err := ssh.OpenServer(ctx, o.SSH, o.Data.Path("ssh"), o.Logger)
	if err != nil {
		return nil, fmt.Errorf("--ssh: %w", err)
	}
	say.Done("ssh", "user %s at %s, host key %s", s.User, s.Addr(), s.Fingerprint)
	return s, nil
}

// keepSSHKeys keeps authorized_keys up to date, with and without a server of ours.
func (s *System) keepSSHKeys(ctx context.Context) error {
	self, err := os.Executable()
	if err != nil {
		return err
	}
	k := ssh.Keys{
		Model: s.model, Accounts: s.accounts, Files: []string{s.o.Data.Path("ssh", ssh.AuthorizedKeys)}, Logger: s.o.Logger,
		Command: func(a account.Account, key string) []string {
			words := []string{self, "attach", "--ssh", "--data", string(s.o.Data), "--user", a.ID, "--key", key}
			if a.Role == account.Admin {
				words = append(words, "--all")
			}
			return words
		},
	}
	if s.o.AuthorizedKeys != "" {
		k.Files = append(k.Files, datadir.Absolute(filepath.Clean(s.o.AuthorizedKeys)))
	}
	if s.ssh != nil {
		k.Written = s.ssh.Keep
	}
	return k.Run(ctx)
}

// mayAct is an exec.MayAct: agents may not use a terminal.
func (s *System) mayAct(ctx context.Context, id string, chat handlers.ChatState) (bool, error) {
	found, err := s.accounts.Find(ctx, id)
	if handlers.CodeOf(err) == handlers.NotFound || err == nil && found.Role == account.Agent {
		return false, nil
	}
	if err != nil {
		return false, err
	}
	return s.projects().MayAct(ctx, id, chat)
}

func (s *System) projects() *project.Projects {
	return &project.Projects{Records: s.records, Accounts: s.accounts}
}

// closeViewers closes the viewer of each chat that is deleted or gets another owner, and of each chat whose owner
// may not work in the project any more. Its clients leave and its shells end. An account that still sees the chat
// attaches again.
func (s *System) closeViewers(ctx context.Context) error {
	filters := []string{events.ChatSubject("*", events.ChatUpdated{}.Kind()),
		events.ChatSubject("*", events.Deleted{}.Kind()),
		events.ConfigSubject(project.Members, "*", "*"), events.ConfigSubject(project.Collection, "*", "*")}
	return s.log.Read(ctx, s.opened, filters, func(b log.Batch) error {
		for _, e := range b.Events {
			if e.Subject.Scope == events.ScopeConfig {
				if err := s.model.Wait(ctx, e.Seq); err != nil { // so that a new "attach" sees who is a member
					return err
				}
				if err := s.closeLostViewers(ctx); err != nil {
					s.o.Logger.Error("close viewers", "err", err)
				}
				continue
			}
			if d, err := events.Decode(e); err != nil {
				continue
			} else if changed, ok := d.(events.ChatUpdated); ok && changed.User == nil {
				continue
			}
			if err := s.model.Wait(ctx, e.Seq); err != nil { // so that a new "attach" sees the new owner
				return err
			}
			if err := viewer.End(ctx, s.o.Data, e.Subject.ID); err != nil {
				s.o.Logger.Error("close viewers", "err", err)
			}
		}
		return nil
	})
}

// closeLostViewers closes the viewers of chats whose owners may not work in their projects.
func (s *System) closeLostViewers(ctx context.Context) error {
	open, err := viewer.Sessions(ctx, s.o.Data)
	for _, id := range open {
		chat, found, err := s.model.Chat(ctx, id)
		if err != nil {
			return err
		}
		may, err := s.mayAct(ctx, chat.User, handlers.ChatState{Owner: chat.User, Project: chat.Project})
		if !found || chat.User == "" || may || err != nil {
			continue
		}
		if err := viewer.End(ctx, s.o.Data, id); err != nil {
			return err
		}
	}
	return err
}

// runSSH runs the SSH server. At its end it stops the tmux server, which would show a system that has stopped.
func (s *System) runSSH(ctx context.Context) error {
	defer viewer.Stop(s.o.Data)
	if s.ssh == nil {
		<-ctx.Done()
		return ctx.Err()
	}
	return s.ssh.Run(ctx)
}
