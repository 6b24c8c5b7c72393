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
	hashMemory = 46 << 10 // KiB; Accounts.HashMemory, unless a test sets less
	hashPasses = 1
	hashLanes  = 1
	saltBytes  = 16
	hashBytes  = 32
)

// maxHashing bounds the memory that hashing takes to 184 MiB.
const maxHashing = 4

// ofNobody is a hash in PHC's form that no password is known to have: it is compared with where there is no account.
func (a *Accounts) ofNobody() string {
	return a.phc(make([]byte, saltBytes), make([]byte, hashBytes))
}

// passwordKey is where SECRETS holds the hash of an account's password.
func passwordKey(account string) string { return "password." + account }

// hash gives the password's hash in PHC's form.
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
		return false, fmt.Errorf("compare password: the stored hash is not %s…", a.hashParameters())
	}
	sum, err := a.argon2(ctx, password, salt)
	return err == nil && subtle.ConstantTimeCompare(sum, want) == 1, err
}

// argon2 waits until fewer than maxHashing others are at it.
func (a *Accounts) argon2(ctx context.Context, password string, salt []byte) ([]byte, error) {
	select {
	case a.hashing <- struct{}{}:
	case <-ctx.Done():
		return nil, fmt.Errorf("hash password: %w", ctx.Err())
	}
	defer a.hashed()
	return argon2.IDKey([]byte(password), salt, hashPasses, a.HashMemory, hashLanes, hashBytes), nil
}

// hashed gives the memory back at once when nobody else is hashing: it is as much as everything else here takes.
func (a *Accounts) hashed() {
	if <-a.hashing; len(a.hashing) == 0 && a.HashMemory == hashMemory {
		debug.FreeOSMemory()
	}
}

// SetPassword gives an account another password and ends its sessions but Keep.
type SetPassword struct {
	handlers.Command
	Account  string        `json:"account"`
	Password string        `json:"password"`
	Old      *string       `json:"old,omitempty"`  // must be the password so far, unless nil
	Keep     string        `json:"keep,omitempty"` // public id of the session that may go on
	Client   events.Client `json:"-"`
}

// SetPassword carries out the command. A wrong Old is a failed login, and may be answered with ErrBackoff.
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
			return 0, handlers.Refuse(handlers.Invalid, "old: that is not the password")
		}
		if err != nil {
			return 0, err
		}
	}
	hash, err := a.hash(ctx, c.Password)
	if err != nil {
		return 0, err
	}
	// The event ends the sessions, so they are over whatever becomes of the rest, and of who asked for it.
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
