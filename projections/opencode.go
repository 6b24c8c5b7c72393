package projections

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"slices"

	"pocketcoder/events"
	"pocketcoder/projections/store"
)

// The OpenCode payloads that read models follow, with the fields they use (OpenCode 1.18, `GET /doc`, and recordings of
// it); asks and questions are read as the events package has them. Of any other type only the session is read.
type (
	sessionInfo struct {
		ID        string `json:"id"`
		ParentID  string `json:"parentID"`
		Directory string `json:"directory"`
		Title     string `json:"title"`
		Agent     string `json:"agent"`
		Time      struct {
			Created int64 `json:"created"` // Unix ms
		} `json:"time"`
	}
	// session.created and session.updated.
	ocSession struct {
		SessionID string      `json:"sessionID"`
		Info      sessionInfo `json:"info"`
	}
	// session.status: idle, busy, or retry with attempt, message and next (Unix ms).
	ocStatus struct {
		SessionID string `json:"sessionID"`
		Status    struct {
			Type    string  `json:"type"`
			Attempt int64   `json:"attempt"`
			Message string  `json:"message"`
			Next    float64 `json:"next"` // computed from a header that may hold a fraction
		} `json:"status"`
	}
	// session.error: error is {name, data}.
	ocError struct {
		SessionID string          `json:"sessionID"`
		Error     json.RawMessage `json:"error"`
	}
	messageInfo struct {
		ID         string  `json:"id"`
		Role       string  `json:"role"`
		ParentID   string  `json:"parentID"`
		Agent      string  `json:"agent"`
		ProviderID string  `json:"providerID"`
		ModelID    string  `json:"modelID"`
		Cost       float64 `json:"cost"`
		Finish     string  `json:"finish"`
		Tokens     struct {
			Input     int64 `json:"input"`
			Output    int64 `json:"output"`
			Reasoning int64 `json:"reasoning"`
			Cache     struct {
				Read  int64 `json:"read"`
				Write int64 `json:"write"`
			} `json:"cache"`
		} `json:"tokens"`
		Time struct { // Unix ms
			Created   int64 `json:"created"`
			Completed int64 `json:"completed"`
		} `json:"time"`
		Error json.RawMessage `json:"error"`
	}
	// message.updated.
	ocMessage struct {
		SessionID string      `json:"sessionID"`
		Info      messageInfo `json:"info"`
	}
	// message.part.updated.
	ocPart struct {
		SessionID string   `json:"sessionID"`
		Part      openPart `json:"part"`
	}
	// openPart is the part as OpenCode sent it, and what we read of it.
	openPart struct {
		data store.JSON
		info partInfo
	}
	partInfo struct {
		ID        string `json:"id"`
		MessageID string `json:"messageID"`
		Type      string `json:"type"`
		Text      string `json:"text"`
		Synthetic bool   `json:"synthetic"`

		Tool   string          `json:"tool"`
		CallID string          `json:"callID"`
		State  json.RawMessage `json:"state"` // of a tool: an object
	}
	// message.removed, and with a PartID message.part.removed.
	ocRemoved struct {
		SessionID string `json:"sessionID"`
		MessageID string `json:"messageID"`
		PartID    string `json:"partID"`
	}
	// permission.replied: reply is once, always or reject.
	ocReply struct {
		SessionID string `json:"sessionID"`
		RequestID string `json:"requestID"`
		Reply     string `json:"reply"`
	}
	// question.replied, and without answers question.rejected.
	ocAnswer struct {
		SessionID string     `json:"sessionID"`
		RequestID string     `json:"requestID"`
		Answers   [][]string `json:"answers"`
	}
	// session.deleted.
	ocSessionDeleted struct {
		SessionID string `json:"sessionID"`
	}
	// Any other type; without a session when it is about none.
	ocOther struct {
		SessionID string `json:"sessionID"`
	}
)

// called returns a hash of the call's id, tool and the arguments that the gate reads, empty for a part that is no call or whose arguments are
// not known yet. Two calls of one message with the same id share a part, so a part whose call changes stands for several calls.
func (p partInfo) called() string {
	var state struct {
		Status string `json:"status"`
		Input  struct {
			Command  json.RawMessage `json:"command"`
			Workdir  json.RawMessage `json:"workdir"`
			FilePath json.RawMessage `json:"filePath"`
		} `json:"input"`
	}
	if p.Type != "tool" || json.Unmarshal(p.State, &state) != nil || state.Status == "pending" {
		return ""
	}
	in := state.Input
	sum := sha256.Sum256([]byte(encoded([]any{p.CallID, p.Tool, in.Command, in.Workdir, in.FilePath})))
	return hex.EncodeToString(sum[:16])
}

func (p *openPart) UnmarshalJSON(b []byte) error {
	p.data = store.JSON(b)
	return json.Unmarshal(b, &p.info)
}

// decode gives the body of an event, with the payload of an OpenCode event as one of the types above.
func decode(e events.Event) (any, error) {
	d, err := events.Decode(e)
	if err != nil {
		return nil, err
	}
	oc, ok := d.(events.OpenCode)
	if !ok {
		return d, nil
	}
	body, err := decodeOpenCode(oc)
	if err != nil {
		return nil, fmt.Errorf("decode #%d %s: %w", e.Seq, e.RawSubject, err)
	}
	return body, nil
}

func decodeOpenCode(oc events.OpenCode) (any, error) {
	switch oc.Type {
	case "session.created", "session.updated":
		return payload(oc, func(p ocSession) []string { return []string{p.SessionID} })
	case "session.status":
		return payload(oc, func(p ocStatus) []string { return []string{p.SessionID, p.Status.Type} })
	case "session.error":
		return payload(oc, func(p ocError) []string { return nil }) // also comes without a session
	case "session.deleted":
		return payload(oc, func(p ocSessionDeleted) []string { return []string{p.SessionID} })
	case "message.updated":
		return payload(oc, func(p ocMessage) []string { return []string{p.SessionID, p.Info.ID, p.Info.Role} })
	case "message.part.updated":
		return payload(oc, func(p ocPart) []string {
			return []string{p.SessionID, p.Part.info.ID, p.Part.info.MessageID, p.Part.info.Type}
		})
	case "message.removed":
		return payload(oc, func(p ocRemoved) []string { return []string{p.SessionID, p.MessageID} })
	case "message.part.removed":
		return payload(oc, func(p ocRemoved) []string { return []string{p.SessionID, p.MessageID, p.PartID} })
	case events.PermissionAsked:
		return payload(oc, func(p events.PermissionAsk) []string { return []string{p.SessionID, p.ID, p.Permission} })
	case events.PermissionReplied:
		return payload(oc, func(p ocReply) []string { return []string{p.SessionID, p.RequestID, p.Reply} })
	case events.QuestionAsked:
		return payload(oc, func(p events.QuestionAsk) []string { return []string{p.SessionID, p.ID} })
	case events.QuestionReplied, events.QuestionRejected:
		return payload(oc, func(p ocAnswer) []string { return []string{p.SessionID, p.RequestID} })
	}
	return payload(oc, func(ocOther) []string { return nil })
}

// payload reads the properties as a T and refuses one that lacks what required names: rows are found by it.
func payload[T any](oc events.OpenCode, required func(T) []string) (any, error) {
	var p T
	if err := json.Unmarshal(oc.Properties, &p); err != nil {
		return nil, err
	}
	if slices.Contains(required(p), "") {
		return nil, fmt.Errorf("a %s without its ids", oc.Type)
	}
	return p, nil
}
