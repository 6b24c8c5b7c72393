package channeltest

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"
	"unicode/utf16"
)

// BotToken is the token of the bot, and BotName its user name.
const (
	BotToken = "123456789:AAq7zk2xv9jh4WbdqTfmvXk3pZr8Lc"
	BotName  = "example_bot"
)

// Telegram is the Bot API for one bot.
type Telegram struct {
	*httptest.Server

	mu        sync.Mutex
	changed   chan struct{} // closed on each change
	updates   []map[string]any
	confirmed []map[string]any
	last      int64
	Offset    int64 // the largest that was asked for
	messages  []TelegramMessage
	said      []string // answers to presses of buttons
	before    func(method string, w http.ResponseWriter) (answered bool)
	after     func(method string)
	files     map[string][]byte
}

// TelegramMessage is a message that the bot has sent.
type TelegramMessage struct {
	ID      int
	Chat    string
	Text    string // of a document its caption
	Buttons []TelegramButton
	File    string // name of a document
	Content string // of the document
}

type TelegramButton struct{ Title, Data string }

// NewTelegram starts a server that ends with the test.
func NewTelegram(t testing.TB) *Telegram {
	s := &Telegram{changed: make(chan struct{}), last: 100, files: map[string][]byte{}}
	s.Server = httptest.NewServer(http.HandlerFunc(s.serve))
	t.Cleanup(s.Close)
	return s
}

// Close ends the requests for updates that wait, and then the server.
func (s *Telegram) Close() {
	s.CloseClientConnections()
	s.Server.Close()
}

// Before sets what is called before a method is carried out. It may answer in its place, and then returns true.
func (s *Telegram) Before(fn func(method string, w http.ResponseWriter) (answered bool)) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.before = fn
}

// After sets what is called before the answer to a method that was carried out.
func (s *Telegram) After(fn func(method string)) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.after = fn
}

func (s *Telegram) change() {
	close(s.changed)
	s.changed = make(chan struct{})
}

// Say adds the update of a message from a person in a conversation. Equal ids are a private conversation.
func (s *Telegram) Say(chat, from int64, text string) (update int64) {
	return s.add("message", s.message(chat, from, map[string]any{"text": text}))
}

// SayTexts adds the update of a message whose text is a list of texts, which is not what a bot knows.
func (s *Telegram) SayTexts(chat, from int64, texts ...string) (update int64) {
	return s.add("message", s.message(chat, from, map[string]any{"text": texts}))
}

// Migrate adds the update of a group that becomes a supergroup.
func (s *Telegram) Migrate(chat, from, to int64) (update int64) {
	return s.add("message", s.message(chat, from, map[string]any{"migrate_to_chat_id": to}))
}

// SendFile adds the update of a message with a document. Telegram states the size of the file.
func (s *Telegram) SendFile(chat, from int64, name, typ string, body []byte, size int) (update int64) {
	s.mu.Lock()
	id := fmt.Sprintf("file%d", len(s.files))
	s.files[id] = body
	s.mu.Unlock()
	document := map[string]any{"file_id": id, "file_unique_id": id, "file_name": name, "mime_type": typ, "file_size": size}
	return s.add("message", s.message(chat, from, map[string]any{"document": document}))
}

func (s *Telegram) message(chat, from int64, content map[string]any) map[string]any {
	typ := "private"
	if chat != from {
		typ = "group"
	}
	content["message_id"], content["date"] = from, 1
	content["chat"] = map[string]any{"id": chat, "type": typ}
	content["from"] = map[string]any{"id": from, "is_bot": false, "first_name": fmt.Sprintf("Person %d", from)}
	return content
}

// Press adds the update of a person who presses a button of a message.
func (s *Telegram) Press(m TelegramMessage, from int64, title string) (update int64) {
	chat, _ := strconv.ParseInt(m.Chat, 10, 64)
	data := ""
	for _, b := range m.Buttons {
		if b.Title == title {
			data = b.Data
		}
	}
	return s.add("callback_query", map[string]any{
		"id": fmt.Sprint(from, title), "data": data, "chat_instance": "1", "from": map[string]any{"id": from, "is_bot": false, "first_name": "P"},
		"message": map[string]any{"message_id": m.ID, "date": 1, "chat": map[string]any{"id": chat, "type": "private"}},
	})
}

func (s *Telegram) add(kind string, body map[string]any) int64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.last++
	s.updates = append(s.updates, map[string]any{"update_id": s.last, kind: body})
	s.change()
	return s.last
}

// Forget takes back that updates from an id on are confirmed: the bot gets those again that Telegram has kept.
func (s *Telegram) Forget(update int64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, u := range s.confirmed {
		if u["update_id"].(int64) >= update {
			s.updates = append(s.updates, u)
		}
	}
	s.change()
}

// Await waits until the sent messages are as wanted, and returns them.
func (s *Telegram) Await(t testing.TB, what string, is func([]TelegramMessage) bool) []TelegramMessage {
	t.Helper()
	s.await(t, what, func() bool { return is(s.messages) })
	return s.Messages()
}

// AwaitText waits for a message with a text, and returns the newest.
func (s *Telegram) AwaitText(t testing.TB, text string) (found TelegramMessage) {
	t.Helper()
	s.await(t, fmt.Sprintf("a message has %q", text), func() bool {
		for _, m := range slices.Backward(s.messages) {
			if strings.Contains(m.Text, text) {
				found = m
				return true
			}
		}
		return false
	})
	return found
}

// AwaitSaid waits for n answers to presses of buttons, and returns them.
func (s *Telegram) AwaitSaid(t testing.TB, n int) []string {
	t.Helper()
	s.await(t, fmt.Sprintf("%d buttons are answered", n), func() bool { return len(s.said) >= n })
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.said)
}

// AwaitConfirmed waits until an update is confirmed.
func (s *Telegram) AwaitConfirmed(t testing.TB, update int64) {
	t.Helper()
	s.await(t, fmt.Sprintf("update %d is confirmed", update), func() bool { return s.Offset > update })
}

func (s *Telegram) await(t testing.TB, what string, is func() bool) {
	t.Helper()
	limit := time.After(90 * time.Second)
	for {
		s.mu.Lock()
		ok, changed, messages := is(), s.changed, slices.Clone(s.messages)
		s.mu.Unlock()
		if ok {
			return
		}
		select {
		case <-changed:
		case <-limit:
			t.Fatalf("not within 90 s: %s; the bot has sent %+v", what, messages)
		case <-t.Context().Done():
			t.Fatal(t.Context().Err())
		}
	}
}

// Messages returns the messages that the bot has sent.
func (s *Telegram) Messages() []TelegramMessage {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.messages)
}

func (s *Telegram) serve(w http.ResponseWriter, r *http.Request) {
	if id, ok := strings.CutPrefix(r.URL.Path, "/file/bot"+BotToken+"/"); ok {
		s.mu.Lock()
		body := s.files[id]
		s.mu.Unlock()
		w.Write(body)
		return
	}
	method, ok := strings.CutPrefix(r.URL.Path, "/bot"+BotToken+"/")
	if !ok {
		Refuse(w, http.StatusUnauthorized, "Unauthorized", 0)
		return
	}
	_ = r.FormValue("x") // reads the form, of either type
	s.mu.Lock()
	before, after := s.before, s.after
	s.mu.Unlock()
	if before != nil && before(method, w) {
		return
	}
	result, problem := s.carryOut(r, method)
	if problem != "" {
		Refuse(w, http.StatusBadRequest, "Bad Request: "+problem, 0)
		return
	}
	if after != nil {
		after(method)
	}
	json.NewEncoder(w).Encode(map[string]any{"ok": true, "result": result})
}

// Refuse answers as Telegram refuses a request. retryAfter is in seconds.
func Refuse(w http.ResponseWriter, code int, description string, retryAfter int) {
	w.WriteHeader(code)
	body := map[string]any{"ok": false, "error_code": code, "description": description}
	if retryAfter > 0 {
		body["parameters"] = map[string]any{"retry_after": retryAfter}
	}
	json.NewEncoder(w).Encode(body)
}

// RefuseAll refuses each request of a method until Before is called.
func (s *Telegram) RefuseAll(method string, code int, description string, retryAfter int) {
	s.Before(func(called string, w http.ResponseWriter) bool {
		if called == method {
			Refuse(w, code, description, retryAfter)
		}
		return called == method
	})
}

func (s *Telegram) carryOut(r *http.Request, method string) (result any, problem string) {
	switch method {
	case "getMe":
		return map[string]any{"id": 123456789, "is_bot": true, "first_name": "Example", "username": BotName}, ""
	case "getUpdates":
		return s.getUpdates(r), ""
	case "sendMessage":
		return s.sendMessage(r)
	case "sendDocument":
		return s.sendDocument(r)
	case "getFile":
		id := r.FormValue("file_id")
		return map[string]any{"file_id": id, "file_unique_id": id, "file_path": id}, ""
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	switch method {
	case "answerCallbackQuery":
		s.said = append(s.said, r.FormValue("text"))
	case "sendChatAction", "editMessageReplyMarkup":
	default:
		return nil, "method not found"
	}
	s.change()
	return true, ""
}

func (s *Telegram) getUpdates(r *http.Request) any {
	offset, _ := strconv.ParseInt(r.FormValue("offset"), 10, 64)
	seconds, _ := strconv.Atoi(r.FormValue("timeout"))
	most, err := strconv.Atoi(r.FormValue("limit"))
	if err != nil {
		most = 100
	}
	limit := time.After(time.Duration(seconds) * time.Second)
	s.confirm(offset) // once: a request of a bot that is gone must not confirm what Forget takes back meanwhile
	for {
		s.mu.Lock()
		list, changed := slices.Clone(s.updates), s.changed
		s.mu.Unlock()
		if len(list) > 0 {
			return list[:min(len(list), most)]
		}
		select {
		case <-changed:
		case <-limit:
			return []any{}
		case <-r.Context().Done():
			return []any{}
		}
	}
}

// confirm notes that the bot has all updates before an offset.
func (s *Telegram) confirm(offset int64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.updates = slices.DeleteFunc(s.updates, func(u map[string]any) bool {
		if u["update_id"].(int64) < offset {
			s.confirmed = append(s.confirmed, u)
			return true
		}
		return false
	})
	if offset > s.Offset {
		s.Offset = offset
		s.change()
	}
}

func (s *Telegram) sendMessage(r *http.Request) (any, string) {
	text := r.FormValue("text")
	switch {
	case strings.TrimSpace(text) == "":
		return nil, "message text is empty"
	case len(utf16.Encode([]rune(text))) > 4096:
		return nil, "message is too long"
	}
	var markup struct {
		Rows [][]struct {
			Text string `json:"text"`
			Data string `json:"callback_data"`
		} `json:"inline_keyboard"`
	}
	_ = json.Unmarshal([]byte(r.FormValue("reply_markup")), &markup)
	m := TelegramMessage{Chat: r.FormValue("chat_id"), Text: text}
	for _, row := range markup.Rows {
		for _, b := range row {
			if len(b.Data) > 64 || b.Data == "" {
				return nil, "BUTTON_DATA_INVALID"
			}
			m.Buttons = append(m.Buttons, TelegramButton{b.Text, b.Data})
		}
	}
	return s.sent(m), ""
}

func (s *Telegram) sendDocument(r *http.Request) (any, string) {
	m := TelegramMessage{Chat: r.FormValue("chat_id"), Text: r.FormValue("caption")}
	f, header, err := r.FormFile("document")
	if err != nil {
		return nil, "there is no document in the request"
	}
	defer f.Close()
	content, err := io.ReadAll(f)
	switch {
	case err != nil || len(content) == 0:
		return nil, "file must be non-empty"
	case len(utf16.Encode([]rune(m.Text))) > 1024:
		return nil, "message caption is too long"
	}
	m.File, m.Content = header.Filename, string(content)
	return s.sent(m), ""
}

// sent stores a message, and returns it as the Bot API does.
func (s *Telegram) sent(m TelegramMessage) any {
	s.mu.Lock()
	defer s.mu.Unlock()
	m.ID = 1000 + len(s.messages)
	s.messages = append(s.messages, m)
	s.change()
	chat, _ := strconv.ParseInt(m.Chat, 10, 64)
	at := map[string]any{"id": chat, "type": "private"}
	return map[string]any{"message_id": m.ID, "date": 1, "chat": at}
}
