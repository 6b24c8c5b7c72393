package api

import (
	"context"
	"net/http"
	"slices"
	"time"

	"pocketcoder/events"
	"pocketcoder/handlers/account"
)

// Push sends notifications to devices.
type Push struct {
	// public key with which browsers subscribe
	Key  string
	Send func(ctx context.Context, user string, n events.Notice) error // to an account, on the devices that it has chosen
	Test func(ctx context.Context, user, device string) error          // to one device of the account
	// carries out the action of a notification's button, once
	Act func(ctx context.Context, token, address string) (d events.Decision, e error)
}

type pushKey struct {
	Key string `json:"key"` // applicationServerKey of a subscription, base64url
}

func (s *Server) pushKey(w http.ResponseWriter, _ *http.Request, _ Caller) error {
	return WriteJSON(w, http.StatusOK, pushKey{s.Push.Key})
}

// pushRequest is a notification of a client's own making.
type pushRequest struct {
	User    string `json:"user_id"`
	Type    string `json:"type"` // by which the account can turn it off
	Title   string `json:"title,omitempty"`
	Message string `json:"message,omitempty"`
	Chat    string `json:"chat,omitempty"`
}

// PushAnswer says that a notification is queued. For a test with Wait it says how the test ended.
type PushAnswer struct {
	OK     bool   `json:"ok"`
	Sent   bool   `json:"sent,omitempty"`
	Failed string `json:"failed,omitempty"` // the reason; empty while it is still being tried
}

func (s *Server) sendPush(w http.ResponseWriter, r *http.Request, caller Caller) error {
	var body pushRequest
	if err := DecodeBody(r, &body); err != nil {
		return err
	}
	if body.User != caller.Account && !caller.Is(account.Admin) && !caller.Is(account.Agent) {
		return Forbidden("Only administrators and agents may notify others.")
	}
	if _, err := events.ParseID(body.Type); err != nil {
		return BadField("type", "validation_match_invalid", "want 1 to %d letters, digits, _ or -", events.MaxID)
	}
	all, err := s.Accounts.List(r.Context())
	if err != nil {
		return err
	}
	if !slices.ContainsFunc(all, func(a account.Account) bool { return a.ID == body.User }) {
		return BadField("user_id", "validation_missing_rel_records", "There is no such account.")
	}
	if body.Chat != "" && s.MayView(r.Context(), caller, "chats", body.Chat) != nil {
		return BadField("chat", "validation_missing_rel_records", "There is no such chat.")
	}
	if err := s.Push.Send(r.Context(), body.User, events.Notice{Type: body.Type, Title: body.Title, Message: body.Message,
		Chat: body.Chat}); err != nil {
		return err
	}
	return WriteJSON(w, http.StatusOK, PushAnswer{OK: true})
}

// pushTestRequest names a device of the caller's. For the operator it may be of any account.
type pushTestRequest struct {
	Device string `json:"device"`
	Wait   bool   `json:"wait,omitempty"` // answer when the push service has answered, after 15 s at the latest
}

// testTime is how long a test waits for the push service. Further tries are made afterwards.
const testTime = 15 * time.Second

func (s *Server) testPush(w http.ResponseWriter, r *http.Request, caller Caller) error {
	var body pushTestRequest
	if err := DecodeBody(r, &body); err != nil {
		return err
	}
	user := caller.Account
	if caller.IsOperator {
		device, err := s.Find(r.Context(), caller, "devices", body.Device)
		if err != nil {
			return err
		}
		user = device.Text("user")
	}
	after := s.Model.Seq()
	if err := s.Push.Test(r.Context(), user, body.Device); err != nil {
		return err
	}
	tested := PushAnswer{OK: true}
	if body.Wait {
		if err := s.awaitTest(r.Context(), user, body.Device, after, &tested); err != nil {
			return err
		}
	}
	return WriteJSON(w, http.StatusOK, tested)
}

// awaitTest waits until a device got the notification of a test, or did not.
func (s *Server) awaitTest(ctx context.Context, user, device string, after uint64, tested *PushAnswer) error {
	ctx, cancel := context.WithTimeout(ctx, testTime)
	defer cancel()
	err := s.Tail.Follow(ctx, after, events.UserSubject(user, "notification.*"), func(e events.Event) error {
		switch n, _ := events.Decode(e); n := n.(type) {
		case events.NotificationSent:
			tested.Sent = n.Device == device
		case events.NotificationFailed:
			if n.Device == device {
				tested.Failed = n.Reason
			}
		}
		if tested.Sent || tested.Failed != "" {
			return events.ErrStop
		}
		return nil
	}, func(uint64) error { return nil })
	if ctx.Err() != nil { // it is still being tried
		return nil
	}
	return err
}

// actAnswer says what a button did.
type actAnswer struct {
	OK     bool   `json:"ok"`
	Status string `json:"status"` // of the permission: authorized, denied
}

// act does what a button of a notification says. The token in the path is the only credential, so the address is
// limited as for logins.
func (s *Server) act(w http.ResponseWriter, r *http.Request, caller Caller) error {
	if err := s.Limit(caller.Client.Network()); err != nil {
		return err
	}
	decision, err := s.Push.Act(r.Context(), r.PathValue("token"), caller.Client.Address)
	if err != nil {
		return err
	}
	return WriteJSON(w, http.StatusOK, actAnswer{true, decision})
}
