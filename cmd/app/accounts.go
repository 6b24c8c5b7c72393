package app

import (
	"context"
	"fmt"
	"path/filepath"

	"pocketcoder/bridge/opencode/provider"
	"pocketcoder/events"
	"pocketcoder/events/secret"
	"pocketcoder/handlers/account"
	"pocketcoder/handlers/model"
	"pocketcoder/handlers/permission/workspace"
	"pocketcoder/handlers/project"
	"pocketcoder/handlers/recordtype"
)

// programs returns the files of the workspace that a command names, with their hashes.
func (s *System) programs(command string) []string { return workspace.Programs(command, s.o.Workspace) }

// openAccounts opens the secrets, the configuration records and the accounts, and creates the administrator that the
// environment names. Afterwards, the provider keys that administrators stored are redacted in all later events.
func (s *System) openAccounts(ctx context.Context) (err error) {
	if s.secrets, err = secret.Open(ctx, s.nc, streamOptions(s.o).Replicas); err != nil {
		return err
	}
	s.log.Conceal(secret.Environment, "admin", s.o.Admin[1])
	s.records = recordtype.Open(s.log, recordtype.Machine{Programs: s.programs,
		Places: project.Places{Below: s.o.Projects, Check: s.o.checkProject}})
	s.records.Secrets = s.secrets
	s.providerKeys = &model.ProviderKeys{Records: s.records, Secrets: s.secrets, Logger: s.o.Logger,
		Paths: []string{s.o.Workspace, string(s.o.Data)}, Known: provider.Known(), Try: provider.KeyTests{}.Try}
	if err := s.providerKeys.Restore(ctx); err != nil {
		return err
	}
	if s.accounts, err = account.Open(ctx, s.log, s.secrets); err != nil {
		return err
	}
	if s.o.Roles.has(RoleEngine) {
		_, err := project.Ensure(ctx, s.records, project.Project{ID: events.DefaultEngine,
			Name: filepath.Base(s.o.Workspace), Directory: s.o.Workspace, Everyone: project.Member})
		if err != nil {
			return fmt.Errorf("store the project of %s: %w", s.o.Workspace, err)
		}
	}
	if s.o.Admin[0] == "" {
		return nil
	}
	note, err := s.accounts.EnsureAdmin(ctx, s.o.Admin[0], s.o.Admin[1])
	if err != nil {
		return fmt.Errorf("create the administrator of POCKETCODER_ADMIN_EMAIL: %w", err)
	}
	if note != "" {
		s.progress.Note("accounts", "%s", note)
	}
	return nil
}

func (s *System) offerSetup(ctx context.Context) {
	link, needed, err := s.accounts.Setup(ctx)
	if err != nil {
		s.o.Logger.Error("make the setup link", "err", err)
		return
	}
	if needed {
		s.progress.Setup(s.publicURL, link)
	}
}
