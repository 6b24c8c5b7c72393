package ingest

import (
	"sync"

	"pocketcoder/handlers/permission"
)

// trackedSession is what Ingest knows of an OpenCode session.
type trackedSession struct {
	chat      string
	parent    string
	directory string
	progress
}

// progress is what the log has of a session.
type progress struct {
	seq    int64  // last durable sequence, -1 for none
	answer string // id of the newest answer that has begun since this process started
}

// tracker holds every session of the engine. Ingest adds a session when its chat is known, before the first event of
// the session is appended. It is safe for concurrent use.
type tracker struct {
	mu sync.RWMutex
	by map[string]trackedSession
}

func (t *tracker) get(session string) (trackedSession, bool) {
	t.mu.RLock()
	defer t.mu.RUnlock()
	s, ok := t.by[session]
	return s, ok
}

func (t *tracker) put(session string, s trackedSession) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.by == nil {
		t.by = map[string]trackedSession{}
	}
	t.by[session] = s
}

// advance sets what the log has of a session.
func (t *tracker) advance(session string, reached progress) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if s, ok := t.by[session]; ok && reached.seq > s.seq {
		s.progress = reached
		t.by[session] = s
	}
}

// seqs returns the last durable sequence of every session.
func (t *tracker) seqs() map[string]int64 {
	t.mu.RLock()
	defer t.mu.RUnlock()
	all := make(map[string]int64, len(t.by))
	for id, s := range t.by {
		all[id] = s.seq
	}
	return all
}

// roots returns the sessions of a chat, without those of subagents.
func (t *tracker) roots(chat string) (all []string) {
	t.mu.RLock()
	defer t.mu.RUnlock()
	for id, s := range t.by {
		if s.chat == chat && s.parent == "" {
			all = append(all, id)
		}
	}
	return all
}

func (t *tracker) directories() map[string]bool {
	t.mu.RLock()
	defer t.mu.RUnlock()
	all := map[string]bool{}
	for _, s := range t.by {
		all[s.directory] = true
	}
	return all
}

// Session returns the chat and the directory of a session.
func (in *Ingest) Session(id string) (permission.Session, bool) {
	s, ok := in.tracker.get(id)
	return permission.Session{Chat: s.chat, Directory: s.directory}, ok
}

// Parent returns the session that has started a subagent's session, and "" for every other session.
func (in *Ingest) Parent(session string) string {
	s, _ := in.tracker.get(session)
	return s.parent
}
