package recovery_test

import (
	"bytes"
	"context"
	"encoding/binary"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io/fs"
	"log/slog"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/matryer/is"
	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"pocketcoder/events/eventstest"
	"pocketcoder/events/log"
	"pocketcoder/events/recovery"
	"pocketcoder/ops/expect"
)

// total is the number of events of the test log, which has three blocks: two compressed ones and the one that NATS
// writes to.
const total = 2300

// system is the log of a data directory: its files, and the guard of this start.
type system struct {
	testing.TB
	data   string
	guard  *recovery.Guard
	server *server.Server
	js     jetstream.JetStream
}

func (s *system) stream(path ...string) string {
	return filepath.Join(append([]string{s.data, "nats", "jetstream", "$G", "streams", "EVENTS"}, path...)...)
}

func (s *system) block(n int) string { return s.stream("msgs", fmt.Sprintf("%d.blk", n)) }

// start checks the files, starts NATS and compares the opened stream with the note.
func (s *system) start(applied uint64) {
	s.Helper()
	s.check(applied)
	s.open()
	is.New(s).NoErr(s.guard.Observe(s.Context(), s.js))
}

func (s *system) check(applied uint64) {
	s.Helper()
	is := is.New(s)
	var err error
	s.guard, err = recovery.Open(s.data, slog.New(slog.DiscardHandler))
	is.NoErr(err)
	is.NoErr(s.guard.Check(s.Context(), filepath.Dir(s.stream()), applied))
}

func (s *system) open() {
	s.Helper()
	is := is.New(s)
	s.server = eventstest.Server(s, filepath.Join(s.data, "nats"))
	nc := eventstest.Conn(s, s.server)
	var err error
	s.js, err = jetstream.New(nc, jetstream.WithDefaultTimeout(time.Minute)) // the machine may be busy
	is.NoErr(err)
	_, err = s.js.CreateOrUpdateStream(s.Context(), log.EventsConfig(log.DefaultOptions))
	is.NoErr(err)
}

// stop notes the last sequence and stops NATS.
func (s *system) stop() {
	s.Helper()
	is.New(s).NoErr(s.guard.Observe(s.Context(), s.js))
	s.server.Shutdown()
	s.server.WaitForShutdown()
}

// contents are the bodies of the events, by sequence.
var contents = sync.OnceValue(func() (all [total + 4][]byte) {
	for seq := range all {
		all[seq] = content(seq)
	}
	return all
})

func content(seq int) []byte {
	r := rand.New(rand.NewPCG(uint64(seq), 1))
	text := fmt.Appendf(nil, "%d", seq)
	for len(text) < 8000 {
		text = fmt.Appendf(text, " %s-%d", []string{"alpha", "beta", "gamma", "delta"}[r.IntN(4)], r.IntN(1000))
	}
	return text
}

func (s *system) append(seqs ...int) {
	s.Helper()
	for _, seq := range seqs {
		m := nats.NewMsg(fmt.Sprintf("evt.chat.c%d.x", seq%10))
		m.Header.Set("ce-id", fmt.Sprint(seq))
		m.Data = contents()[seq]
		ack, err := s.js.PublishMsg(s.Context(), m)
		is.New(s).NoErr(err)
		is.New(s).Equal(ack.Sequence, uint64(seq))
	}
}

// missing reads the log to its end, and checks that it holds what was appended. It returns the others.
func (s *system) missing() (missing recovery.Ranges) {
	s.Helper()
	is := is.New(s)
	stream, err := s.js.Stream(s.Context(), "EVENTS")
	is.NoErr(err)
	next := uint64(1)
	skip := func(to uint64) {
		if next <= to {
			missing = append(missing, recovery.Range{First: next, Last: to})
		}
		next = to + 1
	}
	state := stream.CachedInfo().State
	if state.Msgs > 0 {
		consumer, err := stream.OrderedConsumer(s.Context(), jetstream.OrderedConsumerConfig{})
		is.NoErr(err)
		messages, err := consumer.Messages()
		is.NoErr(err)
		defer messages.Stop()
		for behind := uint64(1); behind > 0; {
			m, err := messages.Next(jetstream.NextMaxWait(10 * time.Second))
			is.NoErr(err)
			meta, err := m.Metadata()
			is.NoErr(err)
			seq := meta.Sequence.Stream
			skip(seq - 1)
			next, behind = seq+1, meta.NumPending
			if !bytes.Equal(m.Data(), contents()[seq]) || m.Headers().Get("ce-id") != fmt.Sprint(seq) {
				s.Fatalf("event #%d is not what was appended", seq)
			}
		}
	}
	skip(state.LastSeq)
	return missing
}

// lost are the sequences that the guard reports, without those that a person has acknowledged.
func (s *system) lost() (all recovery.Ranges) {
	for _, l := range s.guard.Losses() {
		if !l.Acknowledged() && l.Stream == "EVENTS" {
			all = append(all, l.Sequences...)
		}
	}
	return all
}

// filled is a data directory with a log that was stopped in order.
var filled = sync.OnceValues(func() (string, error) {
	memory := "/dev/shm"
	if _, err := os.Stat(memory); err != nil {
		memory = ""
	}
	return os.MkdirTemp(memory, "pocketcoder-recovery-*")
})

var fill sync.Once

func TestMain(m *testing.M) {
	code := m.Run()
	if dir, err := filled(); err == nil {
		os.RemoveAll(dir)
	}
	os.Exit(code)
}

// stopped returns the log of a stopped system, with total events.
func stopped(t *testing.T) *system {
	t.Helper()
	is := is.New(t)
	base, err := filled()
	is.NoErr(err)
	fill.Do(func() {
		s := &system{TB: t, data: base}
		s.start(0)
		for seq := 1; seq <= total; seq++ {
			m := nats.NewMsg(fmt.Sprintf("evt.chat.c%d.x", seq%10))
			m.Header.Set("ce-id", fmt.Sprint(seq))
			m.Data = contents()[seq]
			_, err := s.js.PublishMsgAsync(m)
			is.NoErr(err)
		}
		<-s.js.PublishAsyncComplete()
		s.stop()
		s.check(0)
	})
	s := &system{TB: t, data: expect.MemoryDir(t)}
	is.NoErr(filepath.WalkDir(base, func(path string, e fs.DirEntry, err error) error {
		is.NoErr(err)
		info, err := e.Info()
		is.NoErr(err)
		to := s.data + strings.TrimPrefix(path, base)
		if e.IsDir() {
			return os.MkdirAll(to, 0o700)
		}
		text, err := os.ReadFile(path)
		is.NoErr(err)
		is.NoErr(os.WriteFile(to, text, 0o600))
		return os.Chtimes(to, info.ModTime(), info.ModTime())
	}))
	return s
}

type damage func(s *system)

// flip changes 16 bytes of a block, at a part of its size or, if negative, as far from its end.
func flip(block int, at float64) damage {
	return func(s *system) {
		text, err := os.ReadFile(s.block(block))
		is.New(s).NoErr(err)
		offset := int(at * float64(len(text)))
		if at < 0 {
			offset = len(text) + int(at)
		}
		for i := range 16 {
			text[offset+i] ^= 0x5a
		}
		is.New(s).NoErr(os.WriteFile(s.block(block), text, 0o600))
	}
}

func truncate(block int) damage {
	return func(s *system) {
		info, err := os.Stat(s.block(block))
		is.New(s).NoErr(err)
		is.New(s).NoErr(os.Truncate(s.block(block), info.Size()/2))
	}
}

func remove(paths ...string) damage {
	return func(s *system) {
		for _, p := range paths {
			_, err := os.Stat(s.stream(p))
			is.New(s).NoErr(err)
			is.New(s).NoErr(os.RemoveAll(s.stream(p)))
		}
	}
}

func noIndex(d damage) damage {
	return func(s *system) { remove("msgs/index.db")(s); d(s) }
}

// firstRecord begins a block with the event after the last one. It writes so many bytes of the event.
func firstRecord(written int) damage {
	return func(s *system) {
		record := binary.LittleEndian.AppendUint32(nil, 8000)
		record = binary.LittleEndian.AppendUint64(record, total+1)
		record = binary.LittleEndian.AppendUint64(record, uint64(time.Now().UnixNano()))
		record = append(binary.LittleEndian.AppendUint16(record, 10), "evt.chat.c"...)
		record = append(record, make([]byte, 8000-len(record))...)
		is.New(s).NoErr(os.WriteFile(s.block(4), record[:written], 0o600))
	}
}

// bounds returns the first sequences of the blocks of the test log.
func bounds(t *testing.T) (first [4]uint64) {
	text, err := os.ReadFile(filepath.Join(stopped(t).data, "log-note.json"))
	is.New(t).NoErr(err)
	var note struct {
		Blocks map[string][]struct{ Index, First uint64 }
	}
	is.New(t).NoErr(json.Unmarshal(text, &note))
	is.New(t).Equal(len(note.Blocks["EVENTS"]), 3)
	for _, b := range note.Blocks["EVENTS"] {
		first[b.Index] = b.First
	}
	return first
}

// Each damage costs up to three starts of NATS on a log of 18 MB.
var allDamages = flag.Bool("damage.all", false, "try every damage of the next two tests instead of the usual ones")

var usualDamages = []string{
	"bytes in a compressed block", "bytes of the last event", "half of the last block, no index", "the first block",
	"the last block", "the whole stream", "blocks 1 and 3, and bytes in 2",
	"all three", "the note as well", "a record that was not written to its end",
}

// isTried reports whether this run tries a damage.
func isTried(name string) bool { return *allDamages || slices.Contains(usualDamages, name) }

func TestDamageLosesOnlyWhatItSays(t *testing.T) {
	t.Parallel()
	first := bounds(t)
	fault := expect.CountFault(t, "events lost", "events reported as lost")
	between := func(from, to uint64) recovery.Ranges { return recovery.Ranges{{First: from, Last: to}} }
	for name, c := range map[string]struct {
		damage damage
		lost   recovery.Ranges // nil if only their number is known
		most   uint64          // of lost events
	}{
		"bytes in a compressed block":               {flip(1, .5), nil, 200},
		"bytes in a compressed block, no index":     {noIndex(flip(1, .5)), nil, 200},
		"bytes at the start of a compressed block":  {flip(1, 0), nil, 0}, // what they say is known
		"bytes at the end of a compressed block":    {flip(2, -16), nil, 200},
		"bytes of a frame's header":                 {flip(2, 12./2500000), nil, 200},
		"bytes in the last block":                   {flip(3, .5), nil, 2},
		"bytes in the last block, no index":         {noIndex(flip(3, .5)), nil, 2},
		"bytes of the last event":                   {flip(3, -100), between(total, total), 1},
		"bytes of the last event, no index":         {noIndex(flip(3, -100)), between(total, total), 1},
		"bytes of the last event's header":          {flip(3, -8100), nil, 2},
		"half of a compressed block":                {truncate(1), nil, 700},
		"half of a compressed block, no index":      {noIndex(truncate(1)), nil, 700},
		"half of the last block":                    {truncate(3), nil, 120},
		"half of the last block, no index":          {noIndex(truncate(3)), nil, 120},
		"the first block":                           {remove("msgs/1.blk"), between(1, first[2]-1), total},
		"the middle block":                          {remove("msgs/2.blk"), between(first[2], first[3]-1), total},
		"the middle block, no index":                {noIndex(remove("msgs/2.blk")), between(first[2], first[3]-1), total},
		"the last block":                            {remove("msgs/3.blk"), between(first[3], total), total},
		"the last block, no index":                  {noIndex(remove("msgs/3.blk")), between(first[3], total), total},
		"all blocks":                                {remove("msgs"), between(1, total), total},
		"the whole stream":                          {remove(""), between(1, total), total},
		"blocks 1 and 3, and bytes in 2":            {func(s *system) { remove("msgs/1.blk", "msgs/3.blk")(s); flip(2, .5)(s) }, nil, total - 500},
		"the last block, but for half of a record":  {func(s *system) { remove("msgs/3.blk")(s); firstRecord(4000)(s) }, between(first[3], total), total},
		"bytes of the first record of a block":      {firstRecord(8000), nil, 0},
		"bytes in blocks 1 and 3, no configuration": {func(s *system) { remove("meta.inf", "meta.sum")(s); flip(1, .5)(s); flip(3, .5)(s) }, nil, 202},
	} {
		if !isTried(name) {
			continue
		}
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			is := is.New(t)
			s := stopped(t)
			c.damage(s)
			before := files(t, s.stream())
			s.start(0)
			lost := s.missing()
			t.Log("lost:", lost.Count(), lost)
			is.Equal(lost.Count() > 0, c.most > 0)
			is.True(lost.Count() <= c.most)
			if c.lost != nil {
				is.Equal(lost, c.lost)
			}
			reported := s.lost()
			is.Equal(reported, lost)
			is.Equal(len(s.guard.Losses()), 1)
			after := uint64(0)
			if n := len(lost); n > 0 {
				after = lost[n-1].Last + 1
			}
			is.Equal(s.guard.Uncertain(), after)
			for _, want := range []string{fmt.Sprint(lost.Count()), lost.String(), s.guard.Losses()[0].Directory} {
				if lost.Count() > 1 {
					expect.Contains(t, s.guard.Trouble(), want)
				}
			}
			copied := files(t, filepath.Join(s.guard.Losses()[0].Directory, "EVENTS"))
			for path, text := range before {
				is.True(bytes.Equal(copied[path], text)) // the copy has each file
			}

			s.append(total + 1) // no sequence is used again
			s.stop()
			s.start(0) // and nothing more is lost, or said
			is.Equal(s.lost(), lost)
			s.server.Shutdown()
			s.server.WaitForShutdown()
			is.NoErr(os.Remove(s.stream("msgs", "index.db"))) // NATS reads its blocks
			s.start(0)
			is.Equal(s.missing(), lost)
			is.Equal(s.lost(), lost)
			is.Equal(s.guard.Uncertain(), after)
			is.NoErr(s.guard.MarkCompared(after))
			is.Equal(s.guard.Uncertain(), uint64(0))

			is.NoErr(os.RemoveAll(s.guard.Losses()[0].Directory))
			is.Equal(s.guard.Trouble(), "") // acknowledged
			is.Equal(len(s.guard.Losses()), 1)
			fault.Tried()
			fault.Saw(int(lost.Count()), int(reported.Count()))
		})
	}
}

func TestWithoutNATSOwnFilesNothingIsLostAndNothingIsSaid(t *testing.T) {
	t.Parallel()
	for name, d := range map[string]damage{
		"nothing":       func(*system) {},
		"index":         remove("msgs/index.db"),
		"configuration": remove("meta.inf"),
		"its checksum":  remove("meta.sum"),
		"all three":     remove("msgs/index.db", "meta.inf", "meta.sum"),
		"the note as well": func(s *system) {
			remove("msgs/index.db")(s)
			is.New(s).NoErr(os.Remove(filepath.Join(s.data, "log-note.json")))
		},
		"a broken index": func(s *system) {
			is.New(s).NoErr(os.WriteFile(s.stream("msgs", "index.db"), bytes.Repeat([]byte("x"), 100), 0o600))
		},
		"a broken note": func(s *system) {
			is.New(s).NoErr(os.WriteFile(filepath.Join(s.data, "log-note.json"), []byte("{"), 0o600))
		},
		"a record that was not written to its end": func(s *system) {
			remove("msgs/index.db")(s)
			text, err := os.ReadFile(s.block(3))
			is.New(s).NoErr(err)
			is.New(s).NoErr(os.WriteFile(s.block(3), append(text, text[:4000]...), 0o600))
		},
		"the first record of a block that was not written to its end":           firstRecord(4000),
		"the first record of a block that was not written to its end, no index": noIndex(firstRecord(4000)),
	} {
		if !isTried(name) {
			continue
		}
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			is := is.New(t)
			s := stopped(t)
			d(s)
			s.start(0)
			is.Equal(s.missing(), nil)
			is.Equal(s.guard.Trouble(), "")
			s.append(total + 1)
			s.stop()
			s.start(0)
			is.Equal(s.missing(), nil)
			is.Equal(len(s.guard.Losses()), 0)
		})
	}
}

// files returns the files below a directory, by their path in it.
func files(t *testing.T, dir string) map[string][]byte {
	all := map[string][]byte{}
	_ = filepath.WalkDir(dir, func(path string, e fs.DirEntry, err error) error {
		if err == nil && !e.IsDir() {
			all[strings.TrimPrefix(path, dir)], err = os.ReadFile(path)
		}
		return err
	})
	return all
}

// After kill -9 the note and NATS's index are old. The read models know of events that came later.
func TestAfterACrashTheReadModelsKnowWhatTheNoteDoesNot(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	s := stopped(t)
	s.start(0)
	s.append(total+1, total+2)
	s.server.Shutdown() // the note does not learn of them
	s.server.WaitForShutdown()
	remove("msgs/index.db")(s)
	text, err := os.ReadFile(s.block(3))
	is.NoErr(err)
	is.NoErr(os.Truncate(s.block(3), int64(len(text)-12000))) // into the event before the last
	s.start(total + 2)
	lost := recovery.Ranges{{First: total + 1, Last: total + 2}}
	is.Equal(s.missing(), lost)
	is.Equal(s.lost(), lost)
	s.append(total + 3)
}

// A start is fast because it trusts the blocks that it has read before. It reads them again if NATS does, which
// forgets what it cannot read.
func TestAStartReadsTheLastBlockAndAllIfNATSDoes(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	rot := func(block int) *system { // changes bytes without a write
		s := stopped(t)
		info, err := os.Stat(s.block(block))
		is.NoErr(err)
		flip(block, .5)(s)
		is.NoErr(os.Chtimes(s.block(block), info.ModTime(), info.ModTime()))
		s.check(0)
		return s
	}
	is.Equal(len(rot(3).guard.Losses()), 1)
	s := rot(1)
	is.Equal(len(s.guard.Losses()), 0)
	remove("msgs/index.db")(s)
	s.check(0)
	is.Equal(len(s.guard.Losses()), 1)
}

// endsWithout is a context that ends when a file is gone.
type endsWithout struct {
	context.Context
	path string
}

func (c endsWithout) Err() error {
	if _, err := os.Stat(c.path); err != nil {
		return context.Canceled
	}
	return nil
}

// NATS trusts an index that fits the last block, so a repair that was interrupted must leave none.
func TestARepairThatIsInterruptedIsRepeated(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	s := stopped(t)
	flip(2, .5)(s)
	guard, err := recovery.Open(s.data, slog.New(slog.DiscardHandler))
	is.NoErr(err)
	interrupted := endsWithout{t.Context(), s.stream("msgs", "index.db")}
	err = guard.Check(interrupted, filepath.Dir(s.stream()), 0)
	is.True(errors.Is(err, context.Canceled))
	_, err = os.Stat(interrupted.path)
	is.True(errors.Is(err, fs.ErrNotExist))
	s.start(0)
	is.Equal(s.missing(), s.lost())
	is.True(s.lost().Count() > 0)
}

func TestALogElsewhereThatIsShorterOrAnotherIsNoticed(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	s := stopped(t)
	is.NoErr(os.Remove(s.block(3)))
	is.NoErr(os.Remove(s.stream("msgs", "index.db")))
	var err error
	s.guard, err = recovery.Open(s.data, slog.New(slog.DiscardHandler))
	is.NoErr(err)
	s.open() // as an external NATS does, unchecked
	is.NoErr(s.guard.Observe(t.Context(), s.js))
	is.Equal(len(s.guard.Losses()), 1)
	l := s.guard.Losses()[0]
	is.True(l.Reused)
	is.Equal(l.Sequences[0].Last, uint64(total))
	is.Equal(s.guard.Uncertain(), l.Sequences[0].First) // the sequences of later events follow it again
	dir, stale, err := s.guard.Stale()
	is.NoErr(err)
	is.True(stale)
	is.Equal(dir, l.Directory)
	is.NoErr(s.guard.MarkReadModelsRenewed())
	_, stale, err = s.guard.Stale()
	is.NoErr(err)
	is.True(!stale)
}

// A disk can change a byte by itself. NATS then cannot read the block.
func TestDamageThatNoStartSeesIsFoundWhileTheLogIsServed(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	s := stopped(t)
	s.start(0)
	info, err := os.Stat(s.block(1))
	is.NoErr(err)
	flip(1, .5)(s)
	is.NoErr(os.Chtimes(s.block(1), info.ModTime(), info.ModTime()))
	go s.guard.Verify(t.Context())
	expect.Eventually(t, "the damage is found", s.guard.HasDamage)
	expect.Contains(t, s.guard.Trouble(), "1.blk")
	s.stop()
	s.start(0)
	is.Equal(s.missing(), s.lost())
	is.Equal(s.lost().Count(), uint64(1))
	is.True(!s.guard.HasDamage())
}

// Reading a damaged block can take minutes. Health must be told meanwhile, and a process that ends must not wait.
func TestACheckOfADamagedBlockBlocksNobodyAndEndsWithItsContext(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	s := stopped(t)
	is.NoErr(os.Remove(s.block(1)))
	is.NoErr(syscall.Mkfifo(s.block(1), 0o600))
	guard, err := recovery.Open(s.data, slog.New(slog.DiscardHandler))
	is.NoErr(err)
	ctx, cancel := context.WithCancel(t.Context())
	checked := make(chan error, 1)
	go func() { checked <- guard.Check(ctx, filepath.Dir(s.stream()), 0) }()
	block, err := os.OpenFile(s.block(1), os.O_WRONLY, 0) // returns when the check reads it
	is.NoErr(err)
	requests := make(chan string, 1)
	go func() { requests <- guard.Trouble() }()
	within(t, "the guard answers", requests)

	slow := bytes.Repeat([]byte{0, 0, 0x40, 0, 0, 0, 0, 0, 0, 0, 0, 0}, 700_000) // each could begin a record of 4 MiB
	_, err = block.Write(slow)
	is.NoErr(errors.Join(err, block.Close()))
	cancel()
	is.True(errors.Is(within(t, "the check ends", checked), context.Canceled))
	is.NoErr(os.Remove(s.block(1)))
}

// within returns what comes within 20 s.
func within[T any](t *testing.T, what string, c <-chan T) (v T) {
	t.Helper()
	select {
	case v = <-c:
	case <-time.After(time.Minute):
		t.Fatalf("not within a minute: %s", what)
	}
	return v
}

// A disk can refuse to read a sector. A directory in place of a file cannot be read either.
func TestABlockThatCannotBeReadIsNamedAndTheOthersAreVerified(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	s := stopped(t)
	s.start(0)
	is.NoErr(os.Rename(s.block(3), s.block(9))) // NATS has it open; Verify leaves out the last two
	is.NoErr(os.Mkdir(s.block(8), 0o700))
	is.NoErr(os.Remove(s.block(1)))
	is.NoErr(os.Mkdir(s.block(1), 0o700))
	info, err := os.Stat(s.block(2))
	is.NoErr(err)
	flip(2, .5)(s)
	is.NoErr(os.Chtimes(s.block(2), info.ModTime(), info.ModTime()))
	go s.guard.Verify(t.Context())
	expect.Eventually(t, "the second block is found damaged", s.guard.HasDamage)
	trouble := s.guard.Trouble()
	expect.Contains(t, trouble, "repaired when it is opened again: "+s.block(2))
	expect.Contains(t, trouble, "a file of the log cannot be read: ")
	expect.Contains(t, trouble, s.block(1))

	guard, err := recovery.Open(s.data, slog.New(slog.DiscardHandler))
	is.NoErr(err)
	err = guard.Check(t.Context(), filepath.Dir(s.stream()), 0)
	is.True(err != nil)
	expect.Contains(t, err.Error(), s.block(1))
	expect.Contains(t, err.Error(), "copy the data directory to another disk and start there, or restore a backup")
}

// NATS creates a stream that has no files, and says nothing.
func TestAStreamWhoseDirectoryWasRemovedIsALoss(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	s := stopped(t)
	s.start(0)
	_, err := s.js.CreateKeyValue(t.Context(), jetstream.KeyValueConfig{Bucket: "SECRETS"})
	is.NoErr(err)
	_, err = s.js.CreateOrUpdateStream(t.Context(), log.DeltasConfig(log.DefaultOptions))
	is.NoErr(err)
	s.stop()
	s.check(0)
	is.Equal(s.guard.Trouble(), "")
	for _, name := range []string{"KV_SECRETS", "DELTAS"} {
		is.NoErr(os.RemoveAll(filepath.Join(filepath.Dir(s.stream()), name)))
	}
	s.check(0)
	is.Equal(len(s.guard.Losses()), 1)
	expect.Contains(t, s.guard.Trouble(), "messages of the stream KV_SECRETS may be lost; the directory of the stream is missing")
	s.start(0)
	is.Equal(len(s.guard.Losses()), 1) // reported once
	is.Equal(s.missing(), nil)
}

// A copy that failed would look like the files of a loss.
func TestACopyThatFailedIsRemoved(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	s := stopped(t)
	flip(2, .5)(s)
	is.NoErr(os.Symlink("nowhere", s.stream("msgs", "9"))) // cannot be copied
	guard, err := recovery.Open(s.data, slog.New(slog.DiscardHandler))
	is.NoErr(err)
	is.True(guard.Check(t.Context(), filepath.Dir(s.stream()), 0) != nil)
	copies, err := recovery.Copies(s.data)
	is.NoErr(err)
	is.Equal(copies, nil)
	is.NoErr(os.Remove(s.stream("msgs", "9")))
	s.start(0)
	is.Equal(s.missing(), s.lost())
}

// replace makes the log replace another one, which had reached a sequence.
func (s *system) replace(last uint64) {
	s.Helper()
	is := is.New(s)
	path := filepath.Join(s.data, "log-note.json")
	text, err := os.ReadFile(path)
	is.NoErr(err)
	var note map[string]any
	is.NoErr(json.Unmarshal(text, &note))
	note["created"], note["last"] = time.Now().Add(-time.Hour), last
	text, err = json.Marshal(note)
	is.NoErr(err)
	is.NoErr(os.WriteFile(path, text, 0o600))
}

// A backup that was restored has another time of creation, and so has the log after an erasure.
func TestTheReadModelsOfAnotherLogAreNotUsed(t *testing.T) {
	t.Parallel()
	for name, start := range map[string]func(*system){
		"embedded": func(s *system) {
			s.replace(total)
			s.start(total + 100)
		},
		"elsewhere": func(s *system) {
			s.replace(total + 100)
			var err error
			s.guard, err = recovery.Open(s.data, slog.New(slog.DiscardHandler))
			is.New(s).NoErr(err)
			s.open()
			is.New(s).NoErr(s.guard.Observe(s.Context(), s.js))
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			is := is.New(t)
			s := stopped(t)
			start(s)
			is.Equal(len(s.guard.Losses()), 0)
			dir, stale, err := s.guard.Stale()
			is.NoErr(err)
			is.True(stale)
			is.Equal(dir, "")
			// an erased log, which an embedded NATS has, is complete
			is.Equal(s.guard.Uncertain(), map[string]uint64{"elsewhere": total + 1}[name])
			is.NoErr(s.guard.MarkReadModelsRenewed())
			s.append(total + 1)
			s.stop()
			s.start(0)
			_, stale, err = s.guard.Stale()
			is.NoErr(err)
			is.True(!stale)
		})
	}
}

func TestAnOlderCopyThatReplacesAnErasedLogIsALoss(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	s := stopped(t)
	s.replace(total + 2)
	s.start(0)
	is.Equal(s.lost(), recovery.Ranges{{First: total + 1, Last: total + 2}})
	is.Equal(s.guard.Uncertain(), uint64(total+3))
	_, stale, err := s.guard.Stale()
	is.NoErr(err)
	is.True(stale)
	s.append(total + 3) // no event gets the sequence of a lost one
	s.stop()
	s.start(0)
	is.Equal(len(s.guard.Losses()), 1)
}
