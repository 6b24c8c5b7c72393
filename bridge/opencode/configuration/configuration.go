// Package configuration gives OpenCode what it reads only when it starts: the keys of model providers that
// administrators store, and the sealed procedures as skills. It restarts OpenCode for a change of them, records which
// providers OpenCode knows, and reports keys that a provider refuses.
//
// Promises:
//   - OpenCode restarts only while no turn runs or waits for a person. A turn that begins during the check may be lost.
//   - OpenCode gets placeholders of keys, unless it does not use PocketCoder's proxy. The next request uses the new
//     value of a key that OpenCode already has. A key that OpenCode does not have yet is used after a restart.
//   - OpenCode gets only procedures that a person approved. OpenCode does not get a procedure whose text has another
//     hash than the sealed one.
//
// It must not know how keys are stored, how requests are sent, or how a person approves a proposal.
package configuration
