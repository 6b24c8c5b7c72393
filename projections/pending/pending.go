// Package pending lists the open effects from the read models: messages that OpenCode must still receive, decisions
// and answers that OpenCode has not confirmed, and aborts, reverts and forks that it has not carried out. For a
// comparison with OpenCode, it also lists messages without an answer, and requests and questions that wait for a
// person.
//
// Promises: each list follows from the read models alone, so a caller needs no state of its own and loses nothing in a
// crash. An effect stays in its list until the read models include an event that makes the effect done or unnecessary.
// Exception: a request that OpenCode forgot stays in DecidedRequests after its effect. If it was approved, the outbox
// resumes its turn once. If it was denied, the outbox does nothing.
//
// It must not know how an effect is carried out, and it changes nothing.
package pending
