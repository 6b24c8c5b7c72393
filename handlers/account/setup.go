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

// setupLife is how long the link for the first administrator holds.
const setupLife = 30 * time.Minute

// setupKey is where SECRETS holds the SHA-256 of the setup token.
const setupKey = "setup"

// Setup permits whoever has its token to make the first administrator, once.
type Setup struct {
	Token   string
	Expires time.Time
}

// storedSetup is what is kept of one.
type storedSetup struct {
	Hash    []byte    `json:"hash"`
	Expires time.Time `json:"expires"`
}

// Setup makes a token for the first administrator when there is none who can log in. One made earlier is void then.
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

// CompleteSetup makes the first administrator, and logs them in.
type CompleteSetup struct {
	Token    string
	Email    string
	Name     string
	Password string
	Client   events.Client
}

// errSetupDone is the answer to who comes second.
var errSetupDone = handlers.Refuse(handlers.Conflict, "token: the setup is done; log in as the administrator")

// CompleteSetup carries out the command. Its token is used up when it succeeds: of two who race the log takes one,
// because it takes an administrator only while there is none. A wrong email or password leaves the token as it was.
func (a *Accounts) CompleteSetup(ctx context.Context, c CompleteSetup) (Token, error) {
	valid, err := a.validSetup(ctx, c.Token)
	if err != nil {
		return Token{}, err
	}
	if !valid {
		err := handlers.Refuse(handlers.NotFound, "token: this setup link is not valid, or not any more; start again for a new one")
		return Token{}, a.failed(ctx, attempt{client: c.Client}, "setup", err)
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
		return Token{}, a.failed(ctx, attempt{client: c.Client}, "setup", errSetupDone)
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

// EnsureAdmin makes an administrator with this email unless the email has an account. Such an account stays as it is,
// and the note says where it differs.
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
