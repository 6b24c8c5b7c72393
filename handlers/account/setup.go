package account

import (
	"context"
	"crypto/sha256"
	"crypto/subtle"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"pocketcoder/events"
	"pocketcoder/handlers"
)

// setupLife is how long the link for the first administrator is valid.
const setupLife = 30 * time.Minute

// setupKey is the key of the setup token's SHA-256 in SECRETS.
const setupKey = "setup"

// Setup is a token for creating the first administrator, once.
type Setup struct {
	Token   string
	Expires time.Time
}

type storedSetup struct {
	Hash    []byte    `json:"hash"`
	Expires time.Time `json:"expires"`
}

// Setup creates a token for the first administrator if no administrator can log in. It invalidates an earlier token.
func (a *Accounts) Setup(ctx context.Context) (s Setup, needed bool, err error) {
	if err := a.refresh(ctx); err != nil {
		return Setup{}, false, err
	}
	a.mu.RLock()
	needed = a.admins() == 0
	a.mu.RUnlock()
	if !needed {
		return Setup{}, false, nil
	}
	s = Setup{Token: newSecret(), Expires: a.now().UTC().Add(setupLife)}
	sum := sha256.Sum256([]byte(s.Token))
	value, err := json.Marshal(storedSetup{sum[:], s.Expires})
	if err != nil {
		return Setup{}, false, fmt.Errorf("make setup token: %w", err)
	}
	return s, true, a.secrets.Put(ctx, setupKey, value)
}

// CompleteSetup is the command to create the first administrator and log in.
type CompleteSetup struct {
	Token    string
	Email    string
	Name     string
	Password string
	Client   events.Client
}

// errSetupDone is the refusal of a second setup.
var errSetupDone = handlers.Refuse(handlers.Conflict, "token: the setup is done; log in as the administrator")

// CompleteSetup creates the first administrator, which uses the token up. Of two concurrent calls one succeeds, because
// the log accepts the administrator only while there is none. After a wrong email or password the token is still valid.
func (a *Accounts) CompleteSetup(ctx context.Context, c CompleteSetup) (Token, error) {
	valid, err := a.validSetup(ctx, c.Token)
	if err != nil {
		return Token{}, err
	}
	if !valid {
		err := handlers.Refuse(handlers.NotFound, "token: this setup link is invalid or has expired; restart PocketCoder for a new link")
		return Token{}, a.recordFailure(ctx, attempt{client: c.Client}, "setup", err)
	}
	id, _, err := a.create(ctx, CreateAccount{
		Command: handlers.Command{Actor: events.ActorNobody}, Email: c.Email, Name: c.Name, Role: Admin, Password: c.Password,
	}, func() error {
		if a.admins() > 0 {
			return errSetupDone
		}
		return nil
	})
	if errors.Is(err, errSetupDone) {
		return Token{}, a.recordFailure(ctx, attempt{client: c.Client}, "setup", errSetupDone)
	}
	if err != nil {
		return Token{}, err
	}
	if err := a.secrets.Delete(ctx, setupKey); err != nil {
		return Token{}, err
	}
	owner, err := a.find(ctx, id)
	if err != nil {
		return Token{}, err
	}
	return a.openSession(ctx, owner, Users, "setup", c.Client)
}

func (a *Accounts) validSetup(ctx context.Context, token string) (bool, error) {
	value, ok, err := a.secrets.Get(ctx, setupKey)
	if !ok {
		return false, err
	}
	var s storedSetup
	if err := json.Unmarshal(value, &s); err != nil {
		return false, fmt.Errorf("read secret %q: %w", setupKey, err)
	}
	sum := sha256.Sum256([]byte(token))
	return subtle.ConstantTimeCompare(sum[:], s.Hash) == 1 && a.now().Before(s.Expires), nil
}

// EnsureAdmin creates an administrator with this email unless an account has the email. It does not change an existing
// account; note describes how the account differs.
func (a *Accounts) EnsureAdmin(ctx context.Context, email, password string) (note string, err error) {
	if err := a.refresh(ctx); err != nil {
		return "", err
	}
	owner := a.owner(email)
	if owner == nil {
		_, _, err := a.CreateAccount(ctx, CreateAccount{
			Command: handlers.Command{Actor: events.ActorSystem}, Email: email, Role: Admin, Password: password,
		})
		return "", err
	}
	stored, _, err := a.secrets.Get(ctx, passwordKey(owner.ID))
	if err != nil {
		return "", err
	}
	same, err := a.matches(ctx, string(stored), password)
	switch {
	case errors.Is(err, errHash): // the operator's command needs a system that runs
		note = fmt.Sprintf("the password of the account %s is lost or damaged; %s", owner.Email, newPasswordHelp(owner.Email))
	case err != nil:
		return "", err
	case owner.Disabled:
		note = fmt.Sprintf("the account %s is disabled, and stays so", owner.Email)
	case owner.Role != Admin:
		note = fmt.Sprintf("the account %s has the role %s, and keeps it", owner.Email, owner.Role)
	case !same:
		note = fmt.Sprintf("the account %s has another password, and keeps it", owner.Email)
	}
	return note, nil
}
