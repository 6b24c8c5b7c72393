package events

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/nats-io/nats.go"
)

// TimeFormat is the format of every time in a record or row: UTC, with milliseconds, sortable as text. It is
// PocketBase's format.
const TimeFormat = "2006-01-02 15:04:05.000Z"

// FormatTime returns a time in TimeFormat, "" for the zero time.
func FormatTime(t time.Time) string {
	if t.IsZero() {
		return ""
	}
	return t.UTC().Format(TimeFormat)
}

// Redacted stands in a stored event where a secret stood.
const Redacted = "[redacted]"

// ErrStop is returned by the function that reads events or secrets, to stop reading without an error.
var ErrStop = errors.New("stop reading")

// Headers of a stored event: CloudEvents 1.0 in NATS binary mode, its NATS protocol binding, plus two of our own.
const (
	headerSpecVersion = "ce-specversion"
	headerID          = "ce-id"
	HeaderType        = "ce-type"
	headerSource      = "ce-source"
	headerTime        = "ce-time"
	headerActor       = "ce-actor"
	headerCause       = "ce-causationid"
	headerCorrelation = "ce-correlationid"
	headerForm        = "ce-dataversion" // of the body; see forms.go
	headerOpenCodeSeq = "opencode-seq"
	HeaderBlob        = "pocketcoder-blob" // "1": the body is a Blob, the event's JSON is in BLOBS

	specVersion = "1.0"
)

// Sources of events.
const (
	SourceSelf      = "pocketcoder"
	SourceReconcile = "reconcile" // fetched from OpenCode after the fact, because the live stream was not there
)

// Actors. Users, engines and schedules add their id.
const (
	ActorPolicy  = "policy"
	ActorSandbox = "sandbox"
	ActorSystem  = "system" // PocketCoder itself, without a user's command
	ActorNobody  = "anonymous"
)

func UserActor(id string) string { return "user:" + id }

// IsOfPerson reports whether a person caused the event.
func (e Event) IsOfPerson() bool { return strings.HasPrefix(e.Actor, UserActor("")) }

// EngineActor is engine:<id>. It is also the ce-source of the events that this OpenCode reported live.
func EngineActor(id string) string { return "engine:" + id }

// Event is a fact with its envelope. Seq is 0 before the event is appended.
type Event struct {
	Seq         uint64 // in the stream
	Subject     Subject
	RawSubject  string
	ID          string
	Time        time.Time // UTC, of the writer; never used for order
	Source      string
	Actor       string
	Cause       string // id of the event or command that led here
	Correlation string
	OpenCodeSeq int64 // sequence in OpenCode's session history, -1 for an event that is not durable there
	// version of the stored body, 0 for none; of a durable event of OpenCode's, the one that OpenCode stated
	Form   int
	Data   json.RawMessage // the body in its newest form
	stored json.RawMessage // the body as it is stored, if that is an older form

	// Malformed says why the event cannot be read: its message is not a valid event, its form is newer than this program,
	// or its body is lost or damaged. Readers skip it, and the read models keep it as a dead letter. It is an Erased if
	// an operator erased the body; then readers skip the event, too, and nothing is wrong.
	Malformed error
}

// OpenCode is the body of an OpenCode event: its properties, exactly as OpenCode sent them.
type OpenCode struct {
	Type       string
	Form       int // the version of the properties that OpenCode states of a durable event, 0 for none
	Properties json.RawMessage
}

func (o OpenCode) Kind() string { return openCode + o.Type }

func New(chat, actor string, d Data) (Event, error) {
	return own(ChatSubject(chat, d.Kind()), actor, d)
}

// NewConfig returns an event about a record of a collection.
func NewConfig(collection, id, actor string, d Data) (Event, error) {
	return own(ConfigSubject(collection, id, d.Kind()), actor, d)
}

// NewUser returns an event about an account.
func NewUser(user, actor string, d Data) (Event, error) {
	return own(UserSubject(user, d.Kind()), actor, d)
}

// NewAudit returns an event about no chat, record or account.
func NewAudit(actor string, d Data) (Event, error) {
	return own(AuditSubject(d.Kind()), actor, d)
}

func own(subject, actor string, d Data) (Event, error) {
	body, err := Encode(d)
	if err != nil {
		return Event{}, fmt.Errorf("encode %s: %w", d.Kind(), err)
	}
	return build(subject, d.Kind(), Event{ID: NewID(), Source: SourceSelf, Actor: actor, OpenCodeSeq: -1,
		Form: newestForm(d.Kind()), Data: body})
}

// NewOpenCode returns the event of an OpenCode event: about a chat, or about the engine if chat is empty. id
// is OpenCode's event id and seq its durable sequence, -1 when it has none.
func NewOpenCode(chat, engine, id string, seq int64, o OpenCode) (Event, error) {
	subject := ChatOpenCodeSubject(chat, o.Type)
	if chat == "" {
		subject = EngineOpenCodeSubject(engine, o.Type)
	}
	actor := EngineActor(engine)
	return build(subject, o.Kind(), Event{ID: id, Source: actor, Actor: actor, OpenCodeSeq: seq, Form: o.Form,
		Data: o.Properties})
}

// Encode returns v as JSON on one line. It does not escape <, > and &, because people read commands there.
func Encode(v any) ([]byte, error) {
	var b bytes.Buffer
	encoder := json.NewEncoder(&b)
	encoder.SetEscapeHTML(false)
	err := encoder.Encode(v)
	return bytes.TrimSuffix(b.Bytes(), []byte("\n")), err
}

// MustEncode is Encode for values that always encode, such as strings, numbers, valid JSON, and lists and maps of them.
func MustEncode(v any) []byte {
	b, err := Encode(v)
	if err != nil {
		panic(err)
	}
	return b
}

func build(subject, kind string, e Event) (Event, error) {
	s, err := ParseSubject(subject)
	if err != nil {
		return Event{}, err
	}
	if s.Kind != kind { // an id with a dot moved it
		return Event{}, fmt.Errorf("make event %s: its kind would be %q, not %q", subject, s.Kind, kind)
	}
	if e.ID == "" {
		return Event{}, fmt.Errorf("make event %s: no id", subject)
	}
	if !json.Valid(e.Data) {
		return Event{}, fmt.Errorf("make event %s: body is not JSON", subject)
	}
	e.Subject, e.RawSubject, e.Time = s, subject, time.Now().UTC()
	return e, nil
}

// CausedBy names the event or command that led to e.
func (e Event) CausedBy(id string) Event { e.Cause = id; return e }

// Reconciled marks e as fetched from OpenCode after the fact.
func (e Event) Reconciled() Event { e.Source = SourceReconcile; return e }

func Message(e Event, body []byte) *nats.Msg {
	h := nats.Header{}
	h.Set(headerSpecVersion, specVersion)
	h.Set(headerID, e.ID)
	h.Set(nats.MsgIdHdr, e.ID)
	h.Set(HeaderType, e.Subject.Kind)
	h.Set(headerSource, e.Source)
	h.Set(headerTime, e.Time.Format(time.RFC3339Nano))
	h.Set(headerActor, e.Actor)
	for name, v := range map[string]string{headerCause: e.Cause, headerCorrelation: e.Correlation} {
		if v != "" {
			h.Set(name, v)
		}
	}
	if e.Form > 0 {
		h.Set(headerForm, strconv.Itoa(e.Form))
	}
	if e.OpenCodeSeq >= 0 {
		h.Set(headerOpenCodeSeq, strconv.FormatInt(e.OpenCodeSeq, 10))
	}
	return &nats.Msg{Subject: e.RawSubject, Header: h, Data: body}
}

// FromMessage returns the event of a stored message. stored is the time at which the server stored it; a message
// without ce-time gets that time.
func FromMessage(subject string, h nats.Header, data []byte, seq uint64, stored time.Time) Event {
	e := Event{
		Seq: seq, RawSubject: subject, Data: data, OpenCodeSeq: -1, Time: stored.UTC(),
		ID: h.Get(headerID), Source: h.Get(headerSource), Actor: h.Get(headerActor),
		Cause: h.Get(headerCause), Correlation: h.Get(headerCorrelation),
	}
	fail := func(err error) Event {
		e.Malformed = fmt.Errorf("decode #%d %s: %w", seq, subject, err)
		return e
	}
	var err error
	if e.Subject, err = ParseSubject(subject); err != nil {
		return fail(err)
	}
	if e.ID == "" || h.Get(HeaderType) != e.Subject.Kind {
		return fail(fmt.Errorf("ce-id %q and ce-type %q do not belong to the subject", e.ID, h.Get(HeaderType)))
	}
	if e.Time, err = time.Parse(time.RFC3339Nano, h.Get(headerTime)); err != nil {
		return fail(err)
	}
	if s := h.Get(headerOpenCodeSeq); s != "" {
		if e.OpenCodeSeq, err = strconv.ParseInt(s, 10, 64); err != nil {
			return fail(err)
		}
	}
	if s := h.Get(headerForm); s != "" {
		if e.Form, err = strconv.Atoi(s); err != nil || e.Form < 1 {
			return fail(fmt.Errorf("%s %q is no version", headerForm, s))
		}
	}
	if erased, ok := ReadErased(data); ok {
		e.Malformed = erased
		return e
	}
	if !json.Valid(data) {
		return fail(fmt.Errorf("body is not JSON"))
	}
	newest, err := upcast(e.Subject, e.Form, data)
	if err != nil {
		return fail(err)
	}
	if e.Data = newest; len(upcasts[e.Subject.Kind]) > e.Form {
		e.stored = data
	}
	return e
}

// IsErased reports whether an operator erased the body.
func (e Event) IsErased() bool { return errors.As(e.Malformed, new(Erased)) }

// WithoutBody returns e as malformed, with what is stored instead of its body.
func (e Event) WithoutBody(stored json.RawMessage, why error) Event {
	e.Data, e.stored, e.Malformed = stored, nil, why
	return e
}

// MarshalJSON returns the CloudEvents JSON form (structured mode): the attributes, the log sequence as "sequence", and
// the body as it is stored under "data".
func (e Event) MarshalJSON() ([]byte, error) {
	v := cloudEvent{specVersion, e.Seq, e.ID, e.Subject.Kind, e.Source, e.RawSubject, e.Time, e.Actor, e.Cause,
		e.Correlation, nil, e.Form, "", "", e.Data}
	if e.OpenCodeSeq >= 0 {
		v.OpenCodeSeq = &e.OpenCodeSeq
	}
	if e.IsErased() {
		v.Erased = e.Malformed.Error()
	} else if e.Malformed != nil {
		v.Malformed = e.Malformed.Error()
	}
	if e.stored != nil {
		v.Data = e.stored
	}
	if !json.Valid(v.Data) {
		v.Data, _ = json.Marshal(string(e.Data))
	}
	return json.Marshal(v)
}

// UnmarshalJSON reads the form that MarshalJSON returns.
func (e *Event) UnmarshalJSON(b []byte) error {
	var v cloudEvent
	if err := json.Unmarshal(b, &v); err != nil {
		return err
	}
	of := Event{ID: v.ID, Subject: Subject{Kind: v.Type}, Source: v.Source, Time: v.Time, Actor: v.Actor, Cause: v.Cause,
		Correlation: v.Correlation, OpenCodeSeq: -1, Form: v.Form}
	if v.OpenCodeSeq != nil {
		of.OpenCodeSeq = *v.OpenCodeSeq
	}
	*e = FromMessage(v.Subject, Message(of, nil).Header, v.Data, v.Sequence, v.Time)
	if v.Malformed != "" {
		*e = e.WithoutBody(v.Data, errors.New(v.Malformed))
	}
	return nil
}

// cloudEvent is an event in the structured mode of CloudEvents.
type cloudEvent struct {
	SpecVersion string          `json:"specversion"`
	Sequence    uint64          `json:"sequence"`
	ID          string          `json:"id"`
	Type        string          `json:"type"`
	Source      string          `json:"source"`
	Subject     string          `json:"subject"`
	Time        time.Time       `json:"time"`
	Actor       string          `json:"actor,omitempty"`
	Cause       string          `json:"causationid,omitempty"`
	Correlation string          `json:"correlationid,omitempty"`
	OpenCodeSeq *int64          `json:"opencodeseq,omitempty"`
	Form        int             `json:"dataversion,omitempty"`
	Malformed   string          `json:"malformed,omitempty"` // why data is not the body
	Erased      string          `json:"erased,omitempty"`    // why data is a mark
	Data        json.RawMessage `json:"data"`
}
