package permission

import (
	"slices"
	"sync"

	"pocketcoder/events"
)

// concealed says why no rule allows a request if the gate has only its redacted form.
const concealed = "A part of the request is a secret, which the log holds as [redacted], so no rule can allow it."

// maxOriginals is how many originals are held at most. The oldest is dropped first.
const maxOriginals = 256

// originals holds the newest requests with a secret as OpenCode made them. The log has only their redacted form.
// originals is only in memory. After a restart, OpenCode lists the requests that are still pending.
type originals struct {
	mu  sync.Mutex
	all []events.PermissionRequest
}

// originalRequest is a request as OpenCode made it. partial reports that only its stored form is known, which lacks a
// secret.
type originalRequest struct {
	events.PermissionRequest
	partial bool
}

// KeepOriginal keeps a request that OpenCode made, so that the gate judges what OpenCode would carry out. It must be
// called before the request is stored.
func (h *Permissions) KeepOriginal(a events.PermissionRequest) {
	o := &h.originals
	o.mu.Lock()
	defer o.mu.Unlock()
	o.all = slices.DeleteFunc(o.all, func(other events.PermissionRequest) bool { return other.ID == a.ID })
	o.all = append(o.all, a)
	o.all = slices.Delete(o.all, 0, max(0, len(o.all)-maxOriginals))
}

// of returns the original of a stored request.
func (o *originals) of(a events.PermissionRequest) originalRequest {
	if !a.Redacted() {
		return originalRequest{PermissionRequest: a}
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	i := slices.IndexFunc(o.all, func(other events.PermissionRequest) bool {
		return other.ID == a.ID && other.SessionID == a.SessionID && other.Permission == a.Permission && other.Tool == a.Tool
	})
	if i < 0 {
		return originalRequest{a, true}
	}
	return originalRequest{PermissionRequest: o.all[i]}
}
