package routes

import (
	"net/http"
	"strconv"

	"github.com/pocketbase/dbx"

	"pocketcoder/projections/timeline"
	"pocketcoder/web/api"
)

// newsOfChat says what happened in a chat since the account saw it.
func (s *Chats) newsOfChat(w http.ResponseWriter, r *http.Request, caller api.Caller) error {
	id := r.PathValue("id")
	if err := s.API.MayView(r.Context(), caller, "chats", id); err != nil {
		return err
	}
	after, err := int64(0), error(nil)
	text := r.URL.Query().Get("after")
	if text != "" {
		if after, err = strconv.ParseInt(text, 10, 64); err != nil || after < 0 {
			return api.BadField("after", "validation_invalid_type", "want the sequence of an event, got %q",
				api.Truncate(text, 40))
		}
	}
	var news timeline.News
	err = s.API.SlowView(r.Context(), caller.Key(), func(db dbx.Builder, _ uint64) error {
		if text == "" {
			found, err := timeline.Chats(r.Context(), db, caller.Account, []string{id})
			if err != nil {
				return err
			}
			after = found[0].Seen // rows stay, so it is there
		}
		news, err = timeline.NewsOf(r.Context(), db, []string{id}, after)
		return err
	})
	if err != nil {
		return err
	}
	return api.WriteJSON(w, http.StatusOK, news)
}
