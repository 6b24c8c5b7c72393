package push

import (
	"context"
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"time"

	"pocketcoder/events"
	"pocketcoder/handlers"
	"pocketcoder/handlers/account"
	"pocketcoder/handlers/permission"
)

// action is what a button does, once. SECRETS holds it under the SHA-256 of the button's token.
type action struct {
	Chat       string          `json:"chat"`
	Permission string          `json:"permission"`
	Request    string          `json:"request,omitempty"` // hash of the request that the notification shows
	Files      string          `json:"files,omitempty"`   // hash of its files
	Decision   events.Decision `json:"decision"`
	User       string          `json:"user"`
	Device     string          `json:"device"`
	Expires    time.Time       `json:"expires"`
	Used       bool            `json:"used,omitempty"`
}

const (
	actionLife       = 15 * time.Minute
	actionTokenBytes = 32  // random; OWASP ASVS 5.0, 7.2.3, requires at least 16
	maxActionToken   = 128 // characters; longer tokens are unknown
	sweepEvery       = 5 * time.Minute
)

// actionPrefix is the prefix of actions in SECRETS. No account has this id.
const actionPrefix = "act"

func actionKey(token string) string {
	sum := sha256.Sum256([]byte(token))
	return actionPrefix + "." + hex.EncodeToString(sum[:])
}

// buttons creates the buttons of a permission request: approve if the notification shows all of it, and deny.
func (p *Push) buttons(ctx context.Context, d Device, n events.Notice) (list []Button, err error) {
	if n.Permission == "" || d.Service == fcm {
		return nil, nil
	}
	offer := func(name, title string, decision events.Decision) error {
		b := make([]byte, actionTokenBytes)
		rand.Read(b)
		token := base64.RawURLEncoding.EncodeToString(b)
		list = append(list, Button{Action: name, Title: title, URL: p.Sender.URL + "/api/pocketcoder/act/" + token})
		return p.storeAction(ctx, token, action{
			Chat: n.Chat, Permission: n.Permission, Request: n.Request, Files: n.Files, Decision: decision, User: d.User,
			Device: d.ID, Expires: time.Now().Add(actionLife).UTC(),
		})
	}
	if n.Whole {
		if err := offer("approve", "Approve", events.Authorized); err != nil {
			return nil, err
		}
	}
	err = offer("deny", "Deny", events.Denied)
	return list, err
}

func (p *Push) storeAction(ctx context.Context, token string, a action) error {
	value, err := json.Marshal(a)
	if err != nil {
		return fmt.Errorf("create a button: %w", err)
	}
	return p.Secrets.Create(ctx, actionKey(token), value)
}

// Act carries out the action of the button with a token, once. address is the origin of the HTTP request. Act returns a
// refusal if the button was used or has expired, if the request is decided or is not the one that the notification
// shows, if the device is not active, or if its account may not decide in the chat any more.
func (p *Push) Act(ctx context.Context, token, address string) (events.Decision, error) {
	if len(token) > maxActionToken {
		return "", unknownButton()
	}
	a, err := p.useAction(ctx, token)
	if err != nil {
		return "", err
	}
	err = p.act(ctx, token, a, address)
	if err != nil && handlers.CodeOf(err) == "" { // another try may succeed
		err = errors.Join(err, p.restoreAction(context.WithoutCancel(ctx), token, a))
	}
	return a.Decision, err
}

// act decides the request. A repetition makes the same decision.
func (p *Push) act(ctx context.Context, token string, a action, address string) error {
	d, active, err := p.device(ctx, a.Device)
	if err != nil {
		return err
	}
	allowed, admin, err := p.mayDecide(ctx, a)
	if err != nil {
		return err
	}
	if !active || d.User != a.User || !allowed {
		return handlers.Refuse(handlers.Conflict, "this device may not decide that any more")
	}
	name, _ := p.shown(d.Name, maxTitle)
	_, err = p.Decide(ctx, permission.Decide{
		Command: handlers.Command{ID: identify(actionPrefix, token), Actor: events.UserActor(a.User)},
		Chat:    a.Chat, Permission: a.Permission, Decision: a.Decision,
		ShownRequest: permission.ShownRequest{Request: a.Request, Files: a.Files},
		Client:       events.Client{Address: address, Device: name}, Admin: admin,
	})
	return err
}

func unknownButton() error { return handlers.Refuse(handlers.NotFound, "there is no such button") }

// useAction marks an action as used. If several callers try at once, one succeeds.
func (p *Push) useAction(ctx context.Context, token string) (a action, err error) {
	key := actionKey(token)
	old, found, err := p.Secrets.Get(ctx, key)
	if err != nil {
		return a, err
	}
	if !found || json.Unmarshal(old, &a) != nil {
		return a, unknownButton()
	}
	if a.Used {
		return a, handlers.Refuse(handlers.Conflict, "this button was used already")
	}
	if !time.Now().Before(a.Expires) {
		return a, handlers.Refuse(handlers.Conflict, "this button has expired: decide in the app")
	}
	a.Used = true
	value, err := json.Marshal(a)
	if err != nil {
		return a, fmt.Errorf("use a button: %w", err)
	}
	swapped, err := p.Secrets.Swap(ctx, key, old, value)
	if err == nil && !swapped {
		err = handlers.Refuse(handlers.Conflict, "this button was used already")
	}
	return a, err
}

// restoreAction marks an action as unused again.
func (p *Push) restoreAction(ctx context.Context, token string, a action) error {
	used, err := json.Marshal(a)
	if err != nil {
		return err
	}
	a.Used = false
	unused, err := json.Marshal(a)
	if err != nil {
		return err
	}
	_, err = p.Secrets.Swap(ctx, actionKey(token), used, unused)
	return err
}

// mayDecide reports whether the account still decides in the chat, and whether it is an administrator. The account
// must be active, no agent, and own the chat or be an administrator.
func (p *Push) mayDecide(ctx context.Context, a action) (allowed, admin bool, err error) {
	chat, found, err := p.Model.Chat(ctx, a.Chat)
	if err != nil || !found || chat.Removed {
		return false, false, err
	}
	all, err := p.Accounts.List(ctx)
	for _, one := range all {
		if one.ID == a.User {
			admin = !one.Disabled && one.Role == account.Admin
			return admin || !one.Disabled && one.Role == account.User && chat.User == a.User, admin, err
		}
	}
	return false, false, err
}

// sweep deletes expired actions, and forgets old withdrawals, periodically.
func (p *Push) sweep(ctx context.Context) {
	tick := time.NewTicker(sweepEvery)
	defer tick.Stop()
	for {
		if err := p.sweepOnce(ctx); err != nil && ctx.Err() == nil {
			p.Logger.Error("sweep buttons", "err", err)
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return
		}
	}
}

func (p *Push) sweepOnce(ctx context.Context) error {
	p.mu.Lock()
	maps.DeleteFunc(p.withdrawn, func(_ string, at time.Time) bool { return time.Since(at) >= maxWithdrawalAge })
	p.mu.Unlock()
	var expired []string
	err := p.Secrets.Watch(ctx, actionPrefix, func(key string, value []byte) error {
		var a action
		switch {
		case key == "":
			return events.ErrStop
		case value != nil && (json.Unmarshal(value, &a) != nil || !time.Now().Before(a.Expires)):
			expired = append(expired, key)
		}
		return nil
	})
	for _, key := range expired {
		if err := p.Secrets.Delete(ctx, key); err != nil {
			return err
		}
	}
	return err
}
