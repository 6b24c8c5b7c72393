package chat

import (
	"context"
	"time"
	"unicode/utf8"

	"pocketcoder/events"
	"pocketcoder/handlers"
)

// SendFile sends a file to the person. Content is set when the command is carried out: a refused file is not stored.
type SendFile struct {
	handlers.Command
	Chat  string
	Bytes []byte // of the file
	events.FileSent
}

// MaxSentFile is the size of the largest file that is sent, in bytes. As base64 in a mail it has less than the
// 10,240,000 bytes that Postfix accepts by default (message_size_limit). Telegram accepts 50 MB from a bot
// (https://core.telegram.org/bots/api#senddocument).
const MaxSentFile = 7 << 20

// The limits of what is sent with send_file.
const (
	maxCaption = 1000 // bytes; Telegram accepts 1024 characters
	maxFiles   = 20   // of a chat within an hour
)

// sentFiles has the times at which files were sent.
type sentFiles struct {
	handlers.ChatState
	times []time.Time
}

func (s *sentFiles) Apply(e events.Event) {
	s.ChatState.Apply(e)
	if e.Subject.Kind == (events.FileSent{}).Kind() {
		s.times = append(s.times, e.Time)
	}
}

// SendFile refuses more than maxFiles files of a chat within an hour.
func (h *Chats) SendFile(ctx context.Context, c SendFile) (uint64, error) {
	if len(c.Caption) > maxCaption || !utf8.ValidString(c.Caption) {
		return 0, handlers.RefuseField(handlers.Invalid, "caption", "caption: want at most %d bytes of UTF-8, got %d",
			maxCaption, len(c.Caption))
	}
	if err := handlers.CheckChat(c.Chat); err != nil {
		return 0, err
	}
	f := handlers.NewFold(&sentFiles{}, events.ChatSubject(c.Chat, c.Kind()), handlers.ChatFilter(c.Chat))
	return f.ExecuteOne(ctx, h.Log, c.Chat, c.Command, func(s *sentFiles) (events.Data, uint64, error) {
		if err := s.Missing(c.Chat); err != nil {
			return nil, 0, err
		}
		if i := len(s.times) - maxFiles; i >= 0 && time.Since(s.times[i]) < time.Hour {
			return nil, 0, handlers.Refuse(handlers.Conflict,
				"%d files were sent in this chat within an hour, which is the limit. Pack several files into one archive, or wait.", maxFiles)
		}
		content, err := h.Log.Blobs.PutByHash(ctx, c.Bytes)
		c.Content = content
		return c.FileSent, 0, err
	})
}
