// Package watch starts what is due in chats without a person: the runs of schedules, and the messages that report the
// results of delegates to the chats that delegated the work.
//
// Promises:
//   - Pending work follows from the log and the read models, so a new process continues where the last one stopped.
//   - Several processes start each run once. The commands of handlers/delegate have no effect the second time.
//   - A machine that slept, or whose clock was changed, is noticed within 30 s.
//   - A result wakes an idle parent at once. Results that are ready at the same time are sent in one message.
//
// It must not know when a schedule is due, how OpenCode is reached, how a turn runs, or how a tool call waits for a
// result.
package watch
