// Package account manages access to the system: accounts, passwords, login sessions, and the setup of the first
// administrator.
//
// Changes of an account, and every login that succeeded or failed, are events. Password hashes, sessions and the key
// that signs tokens are in the SECRETS bucket and nowhere else. Of a session secret only its SHA-256 is stored.
//
// Promises: decisions about accounts are made on the log, and the first writer wins: an email belongs to one account,
// and the last administrator who can log in remains one. A token names a session; what its owner may do is looked up
// in the account. A session ends when it is revoked, or when its account is disabled, deleted, or given another role
// or password. It has ended in this process before the command returns, and in other processes once they have read the
// event, also after a crash at any moment. Check does no I/O. A login under an unknown name takes as long as one with
// a wrong password, and gets the same answer. After 5 failures within 5 minutes, further attempts on the account wait,
// in all processes and across restarts. At most 4 passwords are hashed at once, 46 MiB each.
//
// It must not know HTTP, read models, or what an account may do with records of other accounts.
package account

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/golang-jwt/jwt/v5"

	"pocketcoder/events"
	"pocketcoder/events/log"
	"pocketcoder/events/secret"
	"pocketcoder/handlers"
)

const (
	Admin = "admin"
	Agent = "agent"
	User  = "user"
)

// Account is an account that may log in.
type Account struct {
	ID       string    `json:"id"`
	Email    string    `json:"email"`
	Name     string    `json:"name"`
	Role     string    `json:"role"`
	Disabled bool      `json:"disabled"`
	Created  time.Time `json:"created"`
}

// account is the state of an account, folded from the log.
type account struct {
	Account
	deleted bool
	changed uint64 // sequence of the newest event about it
	ended   uint64 // sequence of the newest event that ended all its sessions

	password    uint64 // sequence of its newest password event, which also ended its sessions
	keptSession string // except the session with this public id
	floor       uint64 // if it was opened at or after this sequence
}

// known returns the sequence of the newest event that a session opened now takes into account.
func (k *account) known() uint64 { return max(k.changed, k.password) }

// hasEnded reports whether an event about the account has ended a session.
func (k *account) hasEnded(s Session) bool {
	return s.Since < k.ended || s.Since < k.password && (s.ID != k.keptSession || s.Since < k.floor)
}

// changePassword ends the account's sessions except one.
func (k *account) changePassword(d events.PasswordChanged, seq uint64) {
	if d.Keep != k.keptSession {
		k.floor = k.password
	}
	k.password, k.keptSession = seq, d.Keep
}

// update applies a change, and reports whether it ended the account's sessions.
func (k *account) update(d events.AccountUpdated, seq uint64) bool {
	ends := (d.Disabled != nil && *d.Disabled) || (d.Role != nil && *d.Role != k.Role)
	set(&k.Email, d.Email)
	set(&k.Name, d.Name)
	set(&k.Role, d.Role)
	set(&k.Disabled, d.Disabled)
	k.changed = seq
	if ends {
		k.ended = seq
	}
	return ends
}

func set[T any](field *T, value *T) {
	if value != nil {
		*field = *value
	}
}

func (k *account) active() bool { return k != nil && !k.deleted && !k.Disabled }

// Accounts carries out the commands on accounts. It is safe for concurrent use.
type Accounts struct {
	HashMemory uint32 // memory of a password hash, in KiB; Open sets it, and tests lower it

	log     *log.Log
	secrets *secret.Store
	now     func() time.Time
	key     []byte // signs tokens
	parser  *jwt.Parser
	hashing chan struct{} // holds one value for each running hash

	deciding sync.Mutex    // serializes the commands of this process; locked before mu
	folded   *log.Position // position of the log that the accounts include at least; guarded by deciding

	mu       sync.RWMutex // guards the next fields
	accounts map[string]*account
	sessions map[string]*session // by their key in SECRETS
	public   map[string]*session // by public id

	trying       sync.Mutex           // guards the next fields
	attempts     map[string]*attempts // by account
	unknownNames map[string]*attempts // by unknown name
}

// changes are the events on which decisions about accounts depend. Appends are conditional on them.
var changes = events.UserSubject("*", "account.*")

// deletions are folded together with the changes: who sees a change sees the deletions before it. They need no guard
// of their own, because a deletion is guarded by the changes, and disables first.
var deletions = events.UserSubject("*", events.Deleted{}.Kind())

// passwords need no guard, because no decision is made on them.
var passwords = events.UserSubject("*", events.PasswordChanged{}.Kind())

// Open reads the accounts from the log and the sessions from SECRETS.
func Open(ctx context.Context, l *log.Log, secrets *secret.Store) (*Accounts, error) {
	a := &Accounts{
		HashMemory: hashMemory, log: l, secrets: secrets, now: time.Now, hashing: make(chan struct{}, maxHashing),
		accounts: map[string]*account{}, folded: log.Start(changes, deletions, passwords),
		sessions: map[string]*session{}, public: map[string]*session{},
		attempts: map[string]*attempts{}, unknownNames: map[string]*attempts{},
	}
	if err := a.openTokens(ctx); err != nil {
		return nil, fmt.Errorf("open accounts: %w", err)
	}
	if err := a.refresh(ctx); err != nil {
		return nil, fmt.Errorf("open accounts: %w", err)
	}
	if err := a.loadSessions(ctx); err != nil {
		return nil, fmt.Errorf("open accounts: %w", err)
	}
	return a, nil
}

// Run applies changes by other processes, and removes sessions that have ended, until ctx ends.
func (a *Accounts) Run(ctx context.Context) error {
	return handlers.RunAll(ctx, a.followAccounts, a.followSessions, a.sweepSessions)
}

func (a *Accounts) followAccounts(ctx context.Context) error {
	a.deciding.Lock()
	after := min(a.folded.Last(changes), a.folded.Last(deletions), a.folded.Last(passwords))
	a.deciding.Unlock()
	return a.log.Read(ctx, after, []string{changes, deletions, passwords}, func(b log.Batch) error {
		for _, e := range b.Events {
			a.apply(e)
		}
		return nil
	})
}
