package recovery

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"pocketcoder/events/atomicfile"
	"pocketcoder/events/log"
)

const (
	noteFile   = "log-note.json"
	reportFile = "report.json"
	lossesDir  = "lost-events" // one directory for each loss
)

// note is what is known of the log outside its store.
type note struct {
	Created  time.Time              `json:"created"` // when the stream EVENTS was created
	Last     uint64                 `json:"last"`    // a sequence that the log has reached
	Blocks   map[string][]blockNote `json:"blocks"`  // by stream: the blocks that were read and are good
	Lost     []Loss                 `json:"lost"`
	Replaced bool                   `json:"replaced,omitempty"` // the read models may be those of another log

	// what followed from the events before this sequence may be lost; 0 if nothing is, or it was compared
	Uncertain uint64 `json:"uncertain,omitempty"`
}

// blockNote describes a good block file. A block whose size and time have not changed is not read again at a start.
type blockNote struct {
	Index    uint32    `json:"index"`
	Size     int64     `json:"size"`
	Modified time.Time `json:"modified"`
	First    uint64    `json:"first"` // sequence of the first and the last event; both are 0 if there is none
	Last     uint64    `json:"last"`
}

// Loss is damage of the log that was found once.
type Loss struct {
	Found     time.Time `json:"found"`
	Stream    string    `json:"stream"`
	Sequences Ranges    `json:"sequences"` // of the lost events; only for the stream EVENTS
	Reason    string    `json:"reason"`
	Directory string    `json:"directory"`           // of the report and the damaged files
	Reused    bool      `json:"reused,omitempty"`    // NATS gives the sequences to new events
	Forgotten bool      `json:"forgotten,omitempty"` // the read models do not show the lost events any more
}

// Acknowledged reports whether a person has removed the directory of the loss.
func (l Loss) Acknowledged() bool {
	_, err := os.Stat(l.Directory)
	return errors.Is(err, fs.ErrNotExist)
}

// after returns the sequence that follows the lost events, or the first one if new events get their sequences. It
// returns 0 if no event is lost.
func (l Loss) after() uint64 {
	switch {
	case len(l.Sequences) == 0:
		return 0
	case l.Reused:
		return l.Sequences[0].First
	}
	return l.Sequences.last() + 1
}

// String says what is lost, why, and where the damaged files are.
func (l Loss) String() string {
	what := "no event is lost"
	if n := l.Sequences.Count(); l.Stream != log.EventsStream {
		what = fmt.Sprintf("messages of the stream %s may be lost", l.Stream)
	} else if n == 1 {
		what = fmt.Sprintf("event %s is lost", l.Sequences)
	} else if n > 0 {
		what = fmt.Sprintf("%d events are lost: %s", n, l.Sequences)
	}
	text := fmt.Sprintf("%s; %s", what, l.Reason)
	if l.Reused {
		text += "; new events get these sequences again"
	}
	if !l.Acknowledged() {
		text += "; report and damaged files: " + l.Directory
	}
	return text
}

// Losses returns all losses that were found in the log of a data directory, acknowledged ones too.
func Losses(data string) ([]Loss, error) {
	n, err := readNote(data)
	return n.Lost, err
}

// Copies returns the directories with the files of losses that no person has acknowledged. They may hold any event.
func Copies(data string) ([]string, error) { return filepath.Glob(filepath.Join(data, lossesDir, "*")) }

// NoteRestored notes in a new data directory that its log was restored up to a sequence. What followed later is not in
// the log.
func NoteRestored(data string, last uint64) error {
	n, err := readNote(data)
	if err != nil {
		return err
	}
	n.Uncertain = last + 1
	return n.write(data)
}

// readNote returns an empty note if there is none.
func readNote(data string) (n note, err error) {
	path := filepath.Join(data, noteFile)
	text, err := os.ReadFile(path)
	if err == nil {
		err = json.Unmarshal(text, &n)
	}
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return note{}, fmt.Errorf("read note of the log %s: %w", path, err)
	}
	if n.Blocks == nil {
		n.Blocks = map[string][]blockNote{}
	}
	return n, nil
}

func (n note) write(data string) error {
	text, err := json.MarshalIndent(n, "", " ")
	if err != nil {
		return err
	}
	return atomicfile.Write(filepath.Join(data, noteFile), append(text, '\n'))
}

// lost returns the sequences of events that are known to be lost, up to last.
func (n note) lost(last uint64) (all Ranges) {
	for _, l := range n.Lost {
		if l.Stream == log.EventsStream && !l.Reused {
			all = all.union(l.Sequences)
		}
	}
	if last == 0 {
		return nil
	}
	return all.without(Ranges{{last + 1, ^uint64(0)}})
}

// Range is a range of sequences, both ends included.
type Range struct {
	First uint64 `json:"first"`
	Last  uint64 `json:"last"`
}

func (r Range) String() string {
	if r.First == r.Last {
		return fmt.Sprintf("#%d", r.First)
	}
	return fmt.Sprintf("#%d to #%d", r.First, r.Last)
}

// Ranges are ascending ranges that do not touch each other.
type Ranges []Range

func (rs Ranges) String() string {
	var all []string
	for _, r := range rs {
		all = append(all, r.String())
	}
	return strings.Join(all, ", ")
}

func (rs Ranges) Count() (n uint64) {
	for _, r := range rs {
		n += r.Last - r.First + 1
	}
	return n
}

// last returns the last sequence, 0 if there is none.
func (rs Ranges) last() uint64 {
	if len(rs) == 0 {
		return 0
	}
	return rs[len(rs)-1].Last
}

// add adds the sequence after the last one, or a higher one.
func (rs Ranges) add(seq uint64) Ranges {
	if n := len(rs); n > 0 && rs[n-1].Last+1 == seq {
		rs[n-1].Last = seq
		return rs
	}
	return append(rs, Range{seq, seq})
}

// union returns the sequences of both.
func (rs Ranges) union(others Ranges) (all Ranges) {
	both := slices.Concat(rs, others)
	slices.SortFunc(both, func(a, b Range) int { return cmp.Compare(a.First, b.First) })
	for _, r := range both {
		if n := len(all); n > 0 && r.First <= all[n-1].Last+1 {
			all[n-1].Last = max(all[n-1].Last, r.Last)
		} else {
			all = append(all, r)
		}
	}
	return all
}

// without returns the sequences that are not in others.
func (rs Ranges) without(others Ranges) (rest Ranges) {
	for _, r := range rs {
		for _, o := range others {
			if o.Last < r.First || o.First > r.Last {
				continue
			}
			if o.First > r.First {
				rest = append(rest, Range{r.First, o.First - 1})
			}
			r.First = o.Last + 1
		}
		if r.First <= r.Last {
			rest = append(rest, r)
		}
	}
	return rest
}
