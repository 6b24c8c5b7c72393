package routes

import (
	"cmp"
	"context"
	"errors"
	"io"
	"net/http"
	"strings"

	"pocketcoder/handlers/account"
	"pocketcoder/handlers/channel"
	"pocketcoder/web/api"
)

// Channels serves the routes of channels: the code that pairs the caller with a messenger, and webhooks. A request to a
// webhook is limited by its address like a login. Only a caller with the secret gets the reason of a refusal.
type Channels struct {
	API      *api.Server
	Channels *channel.Channels
}

// codeRequest names the channel with which the account of the caller is to be paired.
type codeRequest struct {
	Channel string `json:"channel"`        // id or name
	User    string `json:"user,omitempty"` // of another account; only for administrators
}

func (s *Channels) Routes() []api.Route {
	return []api.Route{
		{Method: "POST", Path: "/api/pocketcoder/pair", About: "A code that pairs the account of the caller with a messenger: it is sent to the bot, once, within ten minutes.", Access: api.Accounts, Body: codeRequest{}, Answer: channel.Code{}, Serve: s.code},
		{Method: "POST", Path: "/api/hooks/{id}", About: "Post a text to a webhook. The header X-Hub-Signature-256 has sha256= and the HMAC-SHA256 of the body, or Authorization has Bearer and the secret. A second request with the same Idempotency-Key has no effect.", Access: api.Anyone, Answer: channel.Received{}, Serve: s.post},
	}
}

func (s *Channels) code(w http.ResponseWriter, r *http.Request, caller api.Caller) error {
	var body codeRequest
	if err := api.DecodeBody(r, &body); err != nil {
		return err
	}
	if body.User != "" && body.User != caller.Account {
		if err := api.Admins(caller); err != nil {
			return err
		}
		caller.Identity = &account.Identity{Account: body.User}
	}
	code, err := s.Code(r.Context(), caller, body.Channel)
	if err != nil {
		return err
	}
	return api.WriteJSON(w, http.StatusOK, code)
}

// Code creates a code that pairs the account of the caller with a channel, by id or name.
func (s *Channels) Code(ctx context.Context, caller api.Caller, name string) (channel.Code, error) {
	return s.Channels.CreateCode(ctx, channel.NewCode{Channel: name, User: caller.Account})
}

// post serves a request to a webhook. The idempotency key is the header Idempotency-Key, or GitHub's X-GitHub-Delivery.
func (s *Channels) post(w http.ResponseWriter, r *http.Request, caller api.Caller) error {
	if err := s.API.Limit(caller.Client.Address); err != nil {
		return err
	}
	body, err := io.ReadAll(r.Body)
	if tooLong := (*http.MaxBytesError)(nil); errors.As(err, &tooLong) {
		return api.BadRequest("The body is too large.")
	}
	if err != nil {
		return err
	}
	token, _ := strings.CutPrefix(r.Header.Get("Authorization"), "Bearer ")
	key := r.Header.Get("Idempotency-Key")
	if key == "" {
		key = r.Header.Get("X-Github-Delivery")
	}
	received, err := s.Channels.Post(r.Context(), channel.Posted{Webhook: r.PathValue("id"), Body: body,
		Signature: cmp.Or(r.Header.Get("X-Hub-Signature-256"), r.Header.Get("X-PocketCoder-Signature")),
		Timestamp: r.Header.Get("X-PocketCoder-Timestamp"), Token: token, Key: key})
	if err != nil {
		return err
	}
	return api.WriteJSON(w, http.StatusOK, received)
}
