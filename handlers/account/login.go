package account

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"pocketcoder/events"
	"pocketcoder/events/log"
	"pocketcoder/handlers"
)

// The collections a login is for, by PocketBase's names.
const (
	Users      = "users"
	Superusers = "_superusers" // admins only
)

// ErrCredentials means that the name or the password is wrong, or that the account may not log in. It does not say
// which.
var ErrCredentials = errors.New("the email or the password is wrong")

// Login is the command to open a session. Identity is the email. An empty Collection means Users.
type Login struct {
	Identity   string
	Password   string
	Collection string
	Client     events.Client
}

// Login opens a session. It returns ErrCredentials or ErrBackoff if the login is refused.
func (a *Accounts) Login(ctx context.Context, l Login) (Token, error) {
	l.Collection = cmp.Or(l.Collection, Users)
	if l.Collection != Users && l.Collection != Superusers {
		return Token{}, handlers.Refuse(handlers.NotFound, "collection: want users or _superusers, got %q",
			l.Collection)
	}
	if err := a.refresh(ctx); err != nil {
		return Token{}, err
	}
	owner := a.owner(l.Identity)
	turn, release, err := a.takeTurn(ctx, owner, l.Identity)
	if err != nil {
		return Token{}, err
	}
	defer release()
	hash, err := a.try(ctx, turn, attempt{owner, l.Password, l.Client, func() string {
		return owner.loginCause(l.Collection)
	}})
	if err != nil {
		return Token{}, err
	}
	token, err := a.openSession(ctx, *owner, l.Collection, "password", l.Client)
	if err != nil {
		return Token{}, err
	}
	// Another process may have set another password since, and not have seen this session when it ended those there were.
	current, _, err := a.secrets.Get(ctx, passwordKey(owner.ID))
	if err == nil && string(current) == hash {
		return token, nil
	}
	c := handlers.Command{Actor: events.ActorSystem}
	ended := a.closeSessions(ctx, c, owner.ID, "password", func(s Session) bool { return s.ID == token.Identity.Session })
	if err := errors.Join(err, ended); err != nil {
		return Token{}, err
	}
	return Token{}, ErrCredentials
}

// owner returns the account with an email, nil for none.
func (a *Accounts) owner(email string) *account {
	a.mu.RLock()
	defer a.mu.RUnlock()
	known := a.byEmail(email)
	if known == nil {
		return nil
	}
	now := *known
	return &now
}

// loginCause returns why the account may not log in to a collection, "" if it may.
func (k *account) loginCause(collection string) string {
	switch {
	case k.Disabled:
		return "disabled"
	case collection == Superusers && k.Role != Admin:
		return "role"
	}
	return ""
}

// attempt is a password for an account. The account is nil if it does not exist.
type attempt struct {
	owner      *account
	password   string
	client     events.Client
	loginCause func() string // of an owner whose password is right
}

// try carries out an attempt, after earlier attempts on the account. It returns the hash that matched. It records a
// failure even if ctx has ended.
func (a *Accounts) try(ctx context.Context, turn *attempts, t attempt) (hash string, err error) {
	if err := a.updateAttempts(ctx, turn, t.owner); err != nil {
		return "", err
	}
	if wait := turn.until.Sub(a.now()); wait > 0 {
		return "", a.recordFailure(ctx, t, "backoff", ErrBackoff{wait})
	}
	hash = a.dummyHash()
	if t.owner != nil {
		stored, ok, err := a.secrets.Get(ctx, passwordKey(t.owner.ID))
		if err != nil {
			return "", err
		}
		if ok {
			hash = string(stored)
		}
	}
	right, err := a.matches(ctx, hash, t.password)
	if errors.Is(err, errHash) && t.owner != nil {
		return "", fmt.Errorf("compare the password of the account %s: %w; %s", t.owner.Email, err,
			newPasswordHelp(t.owner.Email))
	}
	if err != nil {
		return "", err
	}
	var reason string
	switch {
	case t.owner == nil:
		turn.add(a.now()) // not recorded with its name
		reason = "unknown"
	case !right:
		reason = "password"
	default:
		reason = t.loginCause()
	}
	if reason != "" {
		return "", a.recordFailure(context.WithoutCancel(ctx), t, reason, ErrCredentials)
	}
	return hash, nil
}

// recordFailure records a failed attempt. It returns ErrCredentials, or the error of the append.
func (a *Accounts) recordFailure(ctx context.Context, t attempt, reason string, answer error) error {
	d := events.LoginFailed{Reason: reason, Client: clip(t.client)}
	by := handlers.Command{Actor: events.ActorNobody}
	if t.owner != nil {
		if _, err := a.record(ctx, t.owner.ID, by, d); err != nil {
			return err
		}
		return answer
	}
	e, err := events.NewAudit(by.Actor, d)
	if err != nil {
		return err
	}
	if _, err := a.log.Append(ctx, e); err != nil {
		return err
	}
	return answer
}

// maxClient limits the description of a client, in bytes, because events are permanent.
const maxClient = 255

func clip(c events.Client) events.Client {
	short := func(s string) string { return strings.ToValidUTF8(s[:min(len(s), maxClient)], "") }
	return events.Client{Address: short(c.Address), Device: short(c.Device)}
}

// takeTurn waits until no other attempt on the account or unknown name is running, so that concurrent guesses are
// counted one after the other.
func (a *Accounts) takeTurn(ctx context.Context, owner *account,
	name string) (turn *attempts, release func(), err error) {
	turn = a.attemptsOn(owner, name)
	select {
	case turn.taken <- struct{}{}:
		return turn, func() { <-turn.taken }, nil
	case <-ctx.Done():
		return nil, nil, fmt.Errorf("wait for other logins: %w", ctx.Err())
	}
}

func (a *Accounts) attemptsOn(owner *account, name string) *attempts {
	sum := sha256.Sum256([]byte(fold(name)))
	all, key := a.unknownNames, hex.EncodeToString(sum[:])
	if owner != nil {
		all, key = a.attempts, owner.ID
	}
	a.trying.Lock()
	defer a.trying.Unlock()
	if len(a.unknownNames) > maxUnknownNames {
		clear(a.unknownNames)
	}
	if all[key] == nil {
		all[key] = &attempts{taken: make(chan struct{}, 1)}
	}
	return all[key]
}

// After freeFailures within failureWindow, each further attempt on an account waits twice as long as the one before.
// After a day without a failure the count begins anew.
const (
	freeFailures  = 5
	failureWindow = 5 * time.Minute
	firstWait     = time.Second
	longestWait   = 15 * time.Minute
	forgetAfter   = 24 * time.Hour
)

// maxUnknownNames limits the memory for unknown names. They wait like accounts, so that the answer does not reveal
// which names exist.
const maxUnknownNames = 4096

// ErrBackoff is the answer to a login that came too soon after others that failed. The password was not looked at.
type ErrBackoff struct {
	RetryAfter time.Duration
}

func (e ErrBackoff) Error() string {
	return fmt.Sprintf("too many failed logins: try again in %s", (e.RetryAfter + time.Second - 1).Truncate(time.Second))
}

// attempts is the state of the login attempts on an account.
type attempts struct {
	taken  chan struct{} // holds one value while a login attempt runs
	folded *log.Position // nil until the first attempt on an account
	failures
}

// failures counts failed attempts.
type failures struct {
	recent []time.Time // the failures within the window, until the first wait
	waits  int
	until  time.Time
}

func (f *failures) add(at time.Time) {
	if f.waits > 0 && at.Sub(f.until) > forgetAfter {
		*f = failures{}
	}
	if f.waits == 0 {
		f.recent = slices.DeleteFunc(f.recent, func(t time.Time) bool { return at.Sub(t) > failureWindow })
		if f.recent = append(f.recent, at); len(f.recent) < freeFailures {
			return
		}
	}
	f.until = at.Add(min(firstWait<<min(f.waits, 20), longestWait))
	f.waits++
}

// updateAttempts updates the attempts of an account from the log, so that failures in other processes count. A login or
// a new password resets the count, so earlier events are not read.
func (a *Accounts) updateAttempts(ctx context.Context, turn *attempts, owner *account) error {
	if owner == nil {
		return nil
	}
	kind := func(d events.Data) string { return events.UserSubject(owner.ID, d.Kind()) }
	if turn.folded == nil {
		since, err := a.log.Newest(ctx, kind(events.SessionOpened{}), kind(events.PasswordChanged{}))
		if err != nil {
			return err
		}
		turn.folded = log.StartAfter(since, kind(events.LoginFailed{}), kind(events.SessionOpened{}),
			kind(events.PasswordChanged{}))
	}
	var news []events.Event
	err := a.log.Advance(ctx, turn.folded, func(e events.Event) error {
		news = append(news, e)
		return nil
	})
	if err != nil {
		turn.folded, turn.failures = nil, failures{} // the position may include uncounted events
		return err
	}
	slices.SortFunc(news, func(x, y events.Event) int { return cmp.Compare(x.Seq, y.Seq) })
	for _, e := range news {
		switch d, _ := events.Decode(e); d := d.(type) {
		case events.SessionOpened, events.PasswordChanged:
			turn.failures = failures{}
		case events.LoginFailed:
			if d.Reason != "backoff" {
				turn.add(e.Time)
			}
		}
	}
	return nil
}
