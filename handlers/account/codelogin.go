package account

import (
	"cmp"
	"context"
	"crypto/rand"
	"crypto/sha256"
	"crypto/subtle"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"pocketcoder/events"
	"pocketcoder/events/secret"
	"pocketcoder/handlers"
)

// A program without a browser logs in with a code: it shows the code to a person, who confirms it at a page, logged in
// (RFC 8628). The program proves with a secret that it has begun the login.

// CodeLife is how long a person has to confirm a code.
const CodeLife = 10 * time.Minute

// Limits of the logins that have begun. Beyond maxCodes, a new login replaces the oldest of the address with the most
// logins, so that many logins from some addresses do not keep out another address. It never replaces a confirmed one.
const (
	maxCodesOfAddress = 10
	maxCodes          = 200
)

// codeLetters are letters that cannot be confused and spell no words. 8 of them make a code.
const (
	codeLetters = "BCDFGHJKLMNPQRSTVWXZ"
	codeLength  = 8
)

const codePrefix = "login"

// CodeLogin is a login that a program has begun.
type CodeLogin struct {
	Code    string        `json:"-"` // BCDF-GHJK
	Secret  string        `json:"-"` // that only the program has
	Hash    string        `json:"hash"`
	Expires time.Time     `json:"expires"`
	Client  events.Client `json:"client"`            // the program
	Account string        `json:"account,omitempty"` // that a person has confirmed; empty before
}

// BeginCodeLogin begins the login of a program.
func (a *Accounts) BeginCodeLogin(ctx context.Context, client events.Client) (l CodeLogin, err error) {
	if err := a.makeRoomForCode(ctx, client); err != nil {
		return l, err
	}
	l = CodeLogin{Secret: rand.Text(), Expires: a.now().UTC().Add(CodeLife), Client: clip(client)}
	l.Hash = hashOf(l.Secret)
	value, err := json.Marshal(l)
	if err != nil {
		return l, fmt.Errorf("begin login: %w", err)
	}
	for range tries {
		code := newCode()
		err = a.secrets.Create(ctx, codeKey(code), value)
		if !errors.Is(err, secret.ErrExists) {
			l.Code = code[:codeLength/2] + "-" + code[codeLength/2:]
			return l, err
		}
	}
	return l, err
}

// newCode returns a code without its dash. Every letter has the same chance, because 240 is a multiple of 20.
func newCode() string {
	code := make([]byte, 0, codeLength)
	for b := make([]byte, 1); len(code) < codeLength; {
		rand.Read(b)
		if b[0] < 240 {
			code = append(code, codeLetters[int(b[0])%len(codeLetters)])
		}
	}
	return string(code)
}

func hashOf(text string) string {
	sum := sha256.Sum256([]byte(text))
	return hex.EncodeToString(sum[:])
}

func codeKey(code string) string { return codePrefix + "." + code }

// makeRoomForCode makes room for a login of a client. It refuses if too many of the client's network wait.
func (a *Accounts) makeRoomForCode(ctx context.Context, client events.Client) error {
	waiting, err := a.codeLogins(ctx)
	if err != nil {
		return err
	}
	count := map[string]int{}
	for _, l := range waiting {
		count[l.Client.Network()]++
	}
	if count[client.Network()] >= maxCodesOfAddress {
		return handlers.Refuse(handlers.Unavailable,
			"%d logins from your address wait to be confirmed. Try again in %s.", maxCodesOfAddress, CodeLife)
	}
	if len(waiting) < maxCodes {
		return nil
	}
	waiting = slices.DeleteFunc(waiting, func(l CodeLogin) bool { return l.Account != "" })
	if len(waiting) == 0 {
		return handlers.Refuse(handlers.Unavailable, "%d logins wait for their programs. Try again in %s.", maxCodes, CodeLife)
	}
	replaced := slices.MinFunc(waiting, func(x, y CodeLogin) int {
		return cmp.Or(cmp.Compare(count[y.Client.Network()], count[x.Client.Network()]), x.Expires.Compare(y.Expires))
	})
	return a.secrets.Delete(ctx, codeKey(replaced.Code))
}

// codeLogins returns the logins that have begun, and deletes those that have expired.
func (a *Accounts) codeLogins(ctx context.Context) (all []CodeLogin, err error) {
	keys, err := a.secrets.Keys(ctx, codePrefix)
	for _, key := range keys {
		l, _, err := a.codeLogin(ctx, strings.TrimPrefix(key, codePrefix+"."))
		switch {
		case handlers.CodeOf(err) == handlers.NotFound:
			err = a.secrets.Delete(ctx, key)
		case err == nil:
			all = append(all, l)
		}
		if err != nil {
			return nil, err
		}
	}
	return all, err
}

// parseCode returns the code that a person wrote, in whatever case and with or without the dash.
func parseCode(text string) (code string, ok bool) {
	code = strings.ToUpper(strings.NewReplacer("-", "", " ", "").Replace(text))
	return code, len(code) == codeLength && strings.Trim(code, codeLetters) == ""
}

// codeLogin returns the login with a code, and its stored form. It refuses a code that is wrong or has expired.
func (a *Accounts) codeLogin(ctx context.Context, text string) (l CodeLogin, stored []byte, err error) {
	code, ok := parseCode(text)
	if ok {
		if stored, ok, err = a.secrets.Get(ctx, codeKey(code)); err != nil {
			return l, nil, err
		}
	}
	if !ok || json.Unmarshal(stored, &l) != nil || !a.now().Before(l.Expires) {
		return l, nil, handlers.RefuseField(handlers.NotFound, "code", "This code is wrong, was used or has expired.")
	}
	l.Code = code
	return l, stored, nil
}

// FindCodeLogin returns a login that waits for a person to confirm its code.
func (a *Accounts) FindCodeLogin(ctx context.Context, code string) (CodeLogin, error) {
	l, _, err := a.codeLogin(ctx, code)
	if err == nil && l.Account != "" {
		err = handlers.RefuseField(handlers.Conflict, "code", "This code is confirmed already.")
	}
	return l, err
}

// ConfirmCodeLogin confirms that the program with a code may act for an account.
func (a *Accounts) ConfirmCodeLogin(ctx context.Context, account, code string) error {
	l, stored, err := a.codeLogin(ctx, code)
	if err != nil {
		return err
	}
	taken := handlers.RefuseField(handlers.Conflict, "code", "This code is confirmed already.")
	if l.Account != "" {
		return taken
	}
	l.Account = account
	value, err := json.Marshal(l)
	if err != nil {
		return fmt.Errorf("confirm login: %w", err)
	}
	swapped, err := a.secrets.Swap(ctx, codeKey(l.Code), stored, value)
	if err == nil && !swapped {
		err = taken
	}
	return err
}

// withdrawCodes deletes the codes that were confirmed for an account: a login that ends leaves no other one behind.
func (a *Accounts) withdrawCodes(ctx context.Context, account string) error {
	waiting, err := a.codeLogins(ctx)
	for _, l := range waiting {
		if l.Account == account {
			err = errors.Join(err, a.secrets.Delete(ctx, codeKey(l.Code)))
		}
	}
	return err
}

// CompleteCodeLogin opens the session of a program once a person has confirmed its code, and reports whether one has.
// The code is then used.
func (a *Accounts) CompleteCodeLogin(ctx context.Context, code, secret string, client events.Client) (t Token,
	confirmed bool, err error) {
	l, stored, err := a.codeLogin(ctx, code)
	if err == nil && subtle.ConstantTimeCompare([]byte(l.Hash), []byte(hashOf(secret))) != 1 {
		err = handlers.RefuseField(handlers.NotFound, "code", "This code is wrong, was used or has expired.")
	}
	if err != nil || l.Account == "" {
		return t, false, err
	}
	used, err := a.secrets.Swap(ctx, codeKey(l.Code), stored, []byte(`{}`)) // of two requests one gets the token
	if err != nil || !used {
		return t, false, err
	}
	if err := a.secrets.Delete(ctx, codeKey(l.Code)); err != nil {
		return t, false, err
	}
	owner, err := a.find(ctx, l.Account)
	if err == nil && !owner.active() {
		err = notFound(l.Account)
	}
	if err != nil {
		return t, false, err
	}
	t, err = a.openSession(ctx, owner, Users, "code", client)
	return t, err == nil, err
}
