package conversation

import (
	"net/http"
	"strconv"

	"pocketcoder/web/api"
	"pocketcoder/web/pages/site"
)

// markSeen records that the account has seen a chat up to an event. Opening a chat records nothing: the end of the
// chat may be out of sight. seen.js sends this form when a person sees the end, and without script a button does.
func (c Conversation) markSeen(_ http.ResponseWriter, r *http.Request, caller api.Caller) (string, error) {
	chat := r.PathValue("id")
	seq, err := strconv.ParseInt(r.PostFormValue("seq"), 10, 64)
	if err != nil || seq < 0 {
		return "", api.BadField("seq", "validation_invalid_type", "want the sequence of an event, got %q",
			api.Truncate(r.PostFormValue("seq"), 40))
	}
	_, err = c.Records.Create(r.Context(), caller, "seen_positions", map[string]any{"chat": chat, "seq": seq})
	return site.ChatPath(chat), err
}
