package policy

import (
	"slices"

	"pocketcoder/handlers/policy/bash"
	"pocketcoder/handlers/policy/hostport"
	"pocketcoder/handlers/policy/program"
)

// NamedHosts returns the public addresses in the text of a command to which it will connect, each once, and reports
// whether it runs a program that needs a network. It does not find hosts in variables or scripts.
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
