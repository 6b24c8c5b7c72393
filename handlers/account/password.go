package account

import (
	"context"
	"crypto/rand"
	"crypto/subtle"
	"encoding/base64"
	"errors"
	"fmt"
	"runtime/debug"
	"strings"

	"golang.org/x/crypto/argon2"

	"pocketcoder/events"
	"pocketcoder/handlers"
)

// Argon2id as OWASP ASVS 5.0 asks for it: 46 MiB, one pass, one lane.
const (
	hashMemory = 46 << 10 // KiB; Accounts.HashMemory, except in tests
	hashPasses = 1
	hashLanes  = 1
	saltBytes  = 16
	hashBytes  = 32
)

// maxHashing limits the memory for hashing to 184 MiB.
const maxHashing = 4

// dummyHash returns a hash of an unknown password in PHC's form. A login without an account compares with it, so that
// it takes as long.
func (a *Accounts) dummyHash() string {
	return a.phc(make([]byte, saltBytes), make([]byte, hashBytes))
}

// errHash means that the hash of a password is lost or damaged.
var errHash = errors.New("the stored hash of the password cannot be used")

// newPasswordHelp says how an account gets a password when its own is lost.
func newPasswordHelp(email string) string {
	return "give it a new password with: pocketcoder user passwd " + email
}

// passwordKey returns the key of an account's password hash in SECRETS.
func passwordKey(account string) string { return "password." + account }

// hash returns the hash of a password in PHC's form.
func (a *Accounts) hash(ctx context.Context, password string) (string, error) {
	salt := make([]byte, saltBytes)
	rand.Read(salt)
	sum, err := a.argon2(ctx, password, salt)
	return a.phc(salt, sum), err
}

func (a *Accounts) phc(salt, sum []byte) string {
	enc := base64.RawStdEncoding
	return fmt.Sprintf("%s%s$%s", a.hashParameters(), enc.EncodeToString(salt), enc.EncodeToString(sum))
}

func (a *Accounts) hashParameters() string {
	return fmt.Sprintf("$argon2id$v=%d$m=%d,t=%d,p=%d$", argon2.Version, a.HashMemory, hashPasses, hashLanes)
}

func (a *Accounts) matches(ctx context.Context, stored, password string) (bool, error) {
	rest, ok := strings.CutPrefix(stored, a.hashParameters())
	salt64, sum64, ok2 := strings.Cut(rest, "$")
	salt, err := base64.RawStdEncoding.DecodeString(salt64)
	want, err2 := base64.RawStdEncoding.DecodeString(sum64)
	if !ok || !ok2 || err != nil || err2 != nil || len(want) != hashBytes {
		return false, fmt.Errorf("%w: it is not %s…", errHash, a.hashParameters())
	}
	sum, err := a.argon2(ctx, password, salt)
	return err == nil && subtle.ConstantTimeCompare(sum, want) == 1, err
}

// argon2 computes a hash. At most maxHashing run at once.
func (a *Accounts) argon2(ctx context.Context, password string, salt []byte) ([]byte, error) {
	select {
	case a.hashing <- struct{}{}:
	case <-ctx.Done():
		return nil, fmt.Errorf("hash password: %w", ctx.Err())
	}
	defer a.releaseMemory()
	return argon2.IDKey([]byte(password), salt, hashPasses, a.HashMemory, hashLanes, hashBytes), nil
}

// releaseMemory returns memory to the system when no other hash is running, because hashing needs as much as everything
// else.
func (a *Accounts) releaseMemory() {
	if <-a.hashing; len(a.hashing) == 0 && a.HashMemory == hashMemory {
		debug.FreeOSMemory()
	}
}

// SetPassword is the command to change a password. It ends the account's sessions except Keep.
type SetPassword struct {
	handlers.Command
	Account  string        `json:"account"`
	Password string        `json:"password"`
	Old      *string       `json:"old,omitempty"`  // nil, or the current password
	Keep     string        `json:"keep,omitempty"` // public id of the session that stays open
	Client   events.Client `json:"-"`
}

// SetPassword changes a password. A wrong Old counts as a failed login, and may return ErrBackoff.
func (a *Accounts) SetPassword(ctx context.Context, c SetPassword) (uint64, error) {
	owner, err := a.find(ctx, c.Account)
	if err != nil {
		return 0, err
	}
	if err := checkPassword(c.Password, owner.Email); err != nil {
		return 0, err
	}
	turn, release, err := a.takeTurn(ctx, &owner, "")
	if err != nil {
		return 0, err
	}
	defer release()
	if c.Old != nil {
		_, err := a.try(ctx, turn, attempt{&owner, *c.Old, c.Client, func() string { return "" }})
		if errors.Is(err, ErrCredentials) {
			return 0, handlers.Refuse(handlers.Invalid, "old: the password is wrong")
		}
		if err != nil {
			return 0, err
		}
	}
	hash, err := a.hash(ctx, c.Password)
	if err != nil {
		return 0, err
	}
	// The event ends the sessions, so they end even if the rest fails or the caller goes away.
	ctx = context.WithoutCancel(ctx)
	seq, err := a.record(ctx, c.Account, c.Command, events.PasswordChanged{Keep: c.Keep})
	if err != nil {
		return 0, err
	}
	if err := a.refresh(ctx); err != nil {
		return 0, err
	}
	if err := a.secrets.Put(ctx, passwordKey(c.Account), []byte(hash)); err != nil {
		return 0, err
	}
	return seq, a.closeSessions(ctx, c.Command, c.Account, "password", func(s Session) bool { return s.ID != c.Keep })
}
