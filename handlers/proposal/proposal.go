// Package proposal compares a proposal with the procedure of its name that is in force.
//
// It must not know how a proposal is decided, nor how an approved one takes effect.
package proposal

import "github.com/aymanbagabas/go-udiff"

// Difference returns the difference between the procedure in force, which is empty if there is none, and a proposal.
func Difference(inForce, proposed string) string {
	return udiff.Unified("in force", "proposed", inForce, proposed)
}
