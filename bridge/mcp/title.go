package mcp

import (
	"encoding/json"
	"errors"
	"io"
	"net/http"

	"pocketcoder/events"
	"pocketcoder/handlers"
	"pocketcoder/handlers/chat"
)

// TitlePath is the path to which the plugin in OpenCode reports what a request for a title cost.
const TitlePath = "/titles"

// maxTitleReport bounds a report, in bytes.
const maxTitleReport = 16 << 10

// countTitle stores the cost of a request for a title. The body is an events.TitleGenerated.
func (s *Server) countTitle(w http.ResponseWriter, r *http.Request) {
	var title events.TitleGenerated
	body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, maxTitleReport))
	if err == nil {
		err = json.Unmarshal(body, &title)
	}
	if r.Method != http.MethodPost || err != nil {
		http.Error(w, "want a POST with the cost of a title", http.StatusBadRequest)
		return
	}
	in, known := s.Chat(title.Session)
	if !known {
		http.Error(w, "this session belongs to no chat", http.StatusNotFound)
		return
	}
	_, err = s.Chats.CountTitle(r.Context(), chat.CountTitle{Command: s.command(), Chat: in, TitleGenerated: title})
	if refused := (handlers.Refused{}); errors.As(err, &refused) {
		http.Error(w, refused.Error(), http.StatusBadRequest)
		return
	}
	if err != nil {
		s.Logger.Error("count the cost of a title", "chat", in, "session", title.Session, "err", err)
		http.Error(w, "the cost could not be stored", http.StatusInternalServerError)
	}
}
