// Package pending lists the effects that the read models hold as pending: messages that OpenCode must still receive, and
// permission requests and questions that wait for a person or whose answer OpenCode has not confirmed.
//
// Promises: each list follows from the read models alone, so a caller needs no state of its own and loses nothing in a crash.
// An effect stays in its list until the read models include an event that makes the effect done or unnecessary.
// A decided request that OpenCode forgot stays in its list.
//
// It must not know how an effect is carried out, and it changes nothing.
package pending
