package policy

import (
	"slices"

	"pocketcoder/handlers/policy/bash"
	"pocketcoder/handlers/policy/hostport"
	"pocketcoder/handlers/policy/program"
)

// NamedHosts returns the public addresses that a command names and will connect to, each once, and reports whether it
// runs a program that needs a network. It reads what is written out: a host that a variable or a script holds is not
// returned.
func NamedHosts(command string) (named []hostport.Address, needs bool) {
	for _, words := range bash.Parse(command).All {
		urls, connects := program.NetworkUse(words)
		needs = needs || connects
		for _, s := range urls {
			u, cause := readURL(s)
			if cause != "" {
				continue
			}
			at, err := hostport.Parse(u.host + ":" + u.port)
			if err == nil && at.Private() == "" && !slices.Contains(named, at) {
				named = append(named, at)
			}
		}
	}
	return named, needs
}
