package api

import (
	"context"
	"net/http"
	"slices"

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

type pushAnswer struct {
	OK bool `json:"ok"`
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
	return WriteJSON(w, http.StatusOK, pushAnswer{true})
}

// pushTestRequest names a device of the caller's.
type pushTestRequest struct {
	Device string `json:"device"`
}

func (s *Server) testPush(w http.ResponseWriter, r *http.Request, caller Caller) error {
	var body pushTestRequest
	if err := DecodeBody(r, &body); err != nil {
		return err
	}
	if err := s.Push.Test(r.Context(), caller.Account, body.Device); err != nil {
		return err
	}
	return WriteJSON(w, http.StatusOK, pushAnswer{true})
}

// actAnswer says what a button did.
type actAnswer struct {
	OK     bool   `json:"ok"`
	Status string `json:"status"` // of the permission: authorized, denied
}

// act does what a button of a notification says. The token in the path is the only credential, so the address is
// limited as for logins.
func (s *Server) act(w http.ResponseWriter, r *http.Request, caller Caller) error {
	if err := s.Limit(caller.Client.Address); err != nil {
		return err
	}
	decision, err := s.Push.Act(r.Context(), r.PathValue("token"), caller.Client.Address)
	if err != nil {
		return err
	}
	return WriteJSON(w, http.StatusOK, actAnswer{true, string(decision)})
}
