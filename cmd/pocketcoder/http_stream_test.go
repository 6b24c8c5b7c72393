package main

import (
	"bufio"
	"context"
	"encoding/json"
	"math"
	"strconv"
	"strings"
	"testing"

	"github.com/matryer/is"
)

func sequence(t *testing.T, f frame) uint64 {
	t.Helper()
	seq, err := strconv.ParseUint(f.id, 10, 64)
	if err != nil {
		t.Fatalf("frame %+v: %v", f, err)
	}
	return seq
}

func TestInterruptedStreamResumesExactly(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	p := sharedSystem(t)
	admin := p.admin(t)
	chat := admin.create(t, "chats", record{"title": "cut"})
	path, last := "/api/chats/"+chat+"/events", kind("updated", "the end")
	cut := newCutStream(t, path)
	ended := make(chan error, 1)
	go func() { ended <- cut.until(t.Context(), admin, last) }()

	admin.say(t, chat, "@@reason n=5 delay=10\n@@text n=30 delay=10\n"+
		bash("for i in 1 2 3; do echo $i; echo $i >&2; done"))
	admin.authorize(t, admin.awaitRequest(t, chat))
	p.turnEnds(t, chat)
	admin.end(t, chat)
	is.NoErr(<-ended)
	t.Logf("%d events in %d connections", len(cut.received), cut.cuts+1)
	is.True(cut.cuts > 2)

	whole := admin.whole(t, path, last)
	expectSameText(t, sent(cut.received), sent(whole)) // no gap, no duplicate, byte for byte
	to := cut.received[len(cut.received)-1].id
	stdout, _, code := p.cli(t, "", "replay", chat, "--json", "--to", to)
	is.Equal(code, 0)
	expectSameText(t, facts(cut.received), stdout)
	middle := whole[len(whole)/2].id
	rest, found, err := admin.read(t.Context(), path+"?after="+middle, "", math.MaxInt64, last)
	is.NoErr(err)
	is.True(found && strings.HasSuffix(sent(whole), sent(rest)) && rest[0].id != middle)
}

// The backlog ends once, and what follows is live: fragments only where they were asked for, and never with a place.
func TestStreamReportsOnceThatItHasCaughtUp(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	p := sharedSystem(t)
	admin := p.admin(t)
	chat := admin.create(t, "chats", record{"title": "deltas"})
	admin.say(t, chat, "@@say before")
	p.turnEnds(t, chat)
	path, last := "/api/chats/"+chat+"/events", kind("updated", "the end")

	ctx, cancel := context.WithTimeout(t.Context(), eventTimeout)
	defer cancel()
	stream, err := admin.follow(ctx, path+"?deltas=1", "")
	is.NoErr(err)
	defer stream.Close()
	r := bufio.NewReader(stream)
	var read []frame
	next := func() frame {
		f, err := nextFrame(r)
		is.NoErr(err)
		read = append(read, f)
		return f
	}
	for next().event != "caught-up" {
		is.True(read[len(read)-1].id != "") // the backlog has no fragments
	}
	is.True(len(read) > 10)
	backlog := len(read)
	var caughtUp struct{ Seq uint64 }
	is.NoErr(json.Unmarshal([]byte(read[backlog-1].data), &caughtUp))
	is.True(caughtUp.Seq >= sequence(t, read[backlog-2]))
	admin.say(t, chat, "@@text n=40 delay=10")
	p.turnEnds(t, chat)
	admin.end(t, chat)
	for !last(next()) {
	}
	fragments, first := 0, ""
	for _, f := range read[backlog:] {
		is.True(f.event != "caught-up")
		is.Equal(f.event == "delta", f.id == "")
		if first == "" && f.id != "" {
			first = f.id
			is.True(sequence(t, f) > caughtUp.Seq)
		}
		if f.event == "delta" && strings.Contains(f.data, `"type":"opencode.message.part.delta"`) {
			fragments++
		}
	}
	is.True(fragments > 0)
	plain := admin.whole(t, path, last)
	expectSameText(t, sent(read), sent(plain))
	for _, f := range plain {
		is.True(f.event != "delta")
	}
}
