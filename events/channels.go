package events

import "strings"

// Channels: what a conversation in a messenger sends and receives. The events are about the chat of the conversation.

// Origin is where a message comes from that a person wrote in a messenger. The platform says who the sender is.
type Origin struct {
	Channel string `json:"channel"`           // record of the collection channels
	Name    string `json:"name"`              // of the channel
	Sender  string `json:"sender"`            // name of the sender, as the platform shows it
	Message string `json:"message,omitempty"` // the platform's id of the message, to which an answer refers
}

// ChannelQueued means that a message is to leave through a channel.
type ChannelQueued struct {
	Message string `json:"message"` // id of the outgoing message
	Channel string `json:"channel"` // record of the collection channels
	Place   string `json:"place"`   // the platform's id of the conversation
	// answer, error, permission, question, file, or notice (of PocketCoder's own)
	Type  string `json:"type"`
	Text  string `json:"text"`            // of a file its caption
	About string `json:"about,omitempty"` // the assistant's message, request, question or file; empty for a notice
	Whole bool   `json:"whole,omitempty"` // permission: the text shows all that an approval would allow
}

// ChannelSending means that the message is being handed to the platform. Without a later event about
// it, it is not known whether the platform has it.
type ChannelSending struct {
	Message string `json:"message"`
}

// ChannelDelayed means that the platform does not have the message, and that it is sent again later.
type ChannelDelayed struct {
	Message  string `json:"message"`
	Reason   string `json:"reason"`
	Attempts int    `json:"attempts"`
}

// ChannelSent means that the platform has accepted the message.
type ChannelSent struct {
	Message  string `json:"message"`
	Receipt  string `json:"receipt,omitempty"` // the platform's id of the message
	Attempts int    `json:"attempts"`
}

// ChannelFailed means that the message is not sent, and is not tried again.
type ChannelFailed struct {
	Message  string `json:"message"`
	Reason   string `json:"reason"`
	Attempts int    `json:"attempts,omitempty"`
	Unknown  bool   `json:"unknown,omitempty"` // the platform may have it nevertheless
}

func (ChannelQueued) Kind() string  { return "channel.queued" }
func (ChannelSending) Kind() string { return "channel.sending" }
func (ChannelDelayed) Kind() string { return "channel.delayed" }
func (ChannelSent) Kind() string    { return "channel.sent" }
func (ChannelFailed) Kind() string  { return "channel.failed" }

// Types of an outgoing message.
const (
	OutgoingAnswer     = "answer"
	OutgoingError      = "error"
	OutgoingPermission = "permission"
	OutgoingQuestion   = "question"
	OutgoingFile       = "file"
	OutgoingNotice     = "notice"
)

// ChannelID returns an id that follows from what it names, such as a conversation or an update of a platform. The same
// names have the same id.
func ChannelID(names ...string) string { return idOf("channel", strings.Join(names, "\x00")) }
