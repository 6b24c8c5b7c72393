package outbox

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/matryer/is"
	"pgregory.net/rapid"

	"pocketcoder/ops/expect"
	"pocketcoder/projections"
)

// queues is what the log says of the chats of some accounts.
type queues struct {
	owners      map[string]string // by chat
	waiting     map[string][]int  // positions of messages, by chat
	running     map[string]bool   // chats
	chatStarted map[string]int64
	userStarted map[string]int64
	seq         int64
}

// open lists the messages that wait, as openEffects does.
func (q *queues) open() (open []effect) {
	for chat, positions := range q.waiting {
		for _, p := range positions {
			m := &projections.PendingMessage{ChatUser: q.owners[chat], Free: !q.running[chat], ChatStarted: q.chatStarted[chat],
				UserStarted: q.userStarted[q.owners[chat]], Message: projections.Message{Chat: chat, Position: int64(p)}}
			m.ID, m.First = fmt.Sprint(p), int64(p)
			open = append(open, effect{Key: m.ID, Target: chat, Of: work{kind: messageKind, seq: int64(p), message: m}})
		}
	}
	slices.SortFunc(open, func(a, b effect) int { return int(a.Of.seq - b.Of.seq) })
	return open
}

// start starts what a new process would start, and returns the messages by chat.
func (q *queues) start(maxTurns int) map[string][]effect {
	started := map[string][]effect{}
	for _, e := range plan(q.open(), nil, q.perUser(), maxTurns, time.Time{}) {
		started[e.Target] = append(started[e.Target], e)
	}
	return started
}

func (q *queues) perUser() map[string]int {
	n := map[string]int{}
	for chat := range q.running {
		n[q.owners[chat]]++
	}
	return n
}

// Whatever is submitted and however turns end, and although a new process decides each time: the messages of a chat
// are sent in their order, one turn of a chat runs at a time, no limit is exceeded, and no chat starves: while an
// account is below its share, a chat of it that is first in line waits for at most one turn of each chat of its
// account, and between two of them for one turn of each other account.
func TestTurnsAreInOrderAndFair(t *testing.T) {
	t.Parallel()
	expect.Property(t, func(t *rapid.T) {
		maxTurns := rapid.IntRange(1, 8).Draw(t, "max turns")
		accounts := rapid.IntRange(1, 4).Draw(t, "accounts")
		q := &queues{owners: map[string]string{}, waiting: map[string][]int{}, running: map[string]bool{},
			chatStarted: map[string]int64{}, userStarted: map[string]int64{}}
		perUser := map[string]int{}
		for i := range rapid.IntRange(1, 10).Draw(t, "chats") {
			user := fmt.Sprint("u", rapid.IntRange(1, accounts).Draw(t, "owner"))
			q.owners[fmt.Sprint("c", i)] = user
			perUser[user]++
		}
		chats := sortedKeys(q.owners)
		passed, last := map[string]int{}, map[string]int{}
		share := max(1, maxTurns-maxTurns/4)
		for range rapid.IntRange(1, 120).Draw(t, "steps") {
			for range rapid.IntRange(0, 4).Draw(t, "submitted") {
				chat := rapid.SampledFrom(chats).Draw(t, "chat")
				q.seq++
				q.waiting[chat] = append(q.waiting[chat], int(q.seq))
			}
			for _, chat := range chats {
				if q.running[chat] && rapid.Bool().Draw(t, "ends") {
					delete(q.running, chat)
				}
			}
			before := q.perUser()
			started := q.start(maxTurns)
			for _, chat := range sortedKeys(started) {
				if len(started[chat]) != 1 || q.running[chat] {
					t.Fatalf("chat %s: %d messages are sent, running: %v", chat, len(started[chat]), q.running[chat])
				}
				position := q.waiting[chat][0]
				if started[chat][0].Key != fmt.Sprint(position) || position < last[chat] {
					t.Fatalf("chat %s: message %s is sent before %d", chat, started[chat][0].Key, position)
				}
				q.seq++
				q.waiting[chat], q.running[chat], last[chat], passed[chat] = q.waiting[chat][1:], true, position, 0
				q.chatStarted[chat], q.userStarted[q.owners[chat]] = q.seq, q.seq
			}
			now, all := q.perUser(), 0
			for user, n := range now {
				all += n
				if n > share && accounts > 1 && n > before[user] {
					t.Fatalf("account %s has %d of %d turns", user, n, maxTurns)
				}
			}
			if all > maxTurns {
				t.Fatalf("%d turns run, of %d", all, maxTurns)
			}
			for _, chat := range chats {
				user := q.owners[chat]
				switch {
				case len(q.waiting[chat]) == 0 || q.running[chat]:
					passed[chat] = 0
				case before[user] < share && now[user] < share:
					if all < maxTurns {
						t.Fatalf("chat %s waits although a turn is free", chat)
					}
					passed[chat] += len(started)
				}
				if most := perUser[user]*accounts + maxTurns; passed[chat] > most {
					t.Fatalf("chat %s waited for %d turns of others, more than %d", chat, passed[chat], most)
				}
			}
		}
	})
}

func sortedKeys[V any](m map[string]V) (keys []string) {
	for key := range m {
		keys = append(keys, key)
	}
	slices.Sort(keys)
	return keys
}

// A message that waits for the turn of its own chat must not use up the turn of another chat of its account.
func TestALongTurnDoesNotHoldBackTheOtherChatsOfItsAccount(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	q := &queues{owners: map[string]string{"long": "u1", "short": "u1", "other": "u2"}, running: map[string]bool{"long": true},
		waiting:     map[string][]int{"long": {10}, "short": {12}, "other": {11}},
		chatStarted: map[string]int64{"long": 1, "short": 2, "other": 3}, userStarted: map[string]int64{"u1": 2, "u2": 3}}
	started := q.start(2)
	is.Equal(sortedKeys(started), []string{"short"})
}
