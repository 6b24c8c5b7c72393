package policy

import (
	"slices"

	"pocketcoder/events"
)

// OwnTools are the names of PocketCoder's own tools (bridge/mcp) that are allowed by default. What they lead to has
// requests of its own, and send_file sends only what the rules for read allow.
var OwnTools = []string{"handoff", "assign", "send_message", "check_inbox", "list_workers", "check_worker",
	"stop_worker", "ask_person", "send_file", "propose", "mcp_status", "mcp_catalog", "mcp_request", "list_tasks"}

// AskedTools are the names of PocketCoder's own tools about which a person is asked by default: they change what
// runs later without a person.
var AskedTools = []string{"schedule_task", "pause_task", "resume_task", "cancel_task"}

// Defaults allow reading in the workspace, the model's own notes, and PocketCoder's own tools. Commands
// that run the project's code (go test, npm, make) need a rule of a person.
var Defaults = slices.Concat(ownTools(), []Rule{
	{Permission: "read", Pattern: Inside}, {Permission: "list", Pattern: Inside}, {Permission: "glob", Pattern: Inside}, {Permission: "grep", Pattern: Inside},
	{Permission: "todowrite", Pattern: "*"}, {Permission: "todoread", Pattern: "*"},
}, commands(
	"git status*", "git log*", "git diff*", "git show*", "git branch*", "git blame*", "git rev-parse*", "git ls-files*",
	"git describe*", "git shortlog*",
	"git remote*", "git tag*", "git grep*", "git merge-base*", "git stash list*",
	"cd*", "ls*", "cat*", "head*", "tail*", "wc*", "nl*", "cut*", "tr*", "sort*", "uniq*", "comm*", "diff*", "cmp*",
	"stat*", "file*", "du*", "tree*",
	"grep*", "rg*", "find*", "sed*", "jq*", "pwd*", "echo*", "printf*", "true*", "false*", "test*", "which*", "type*",
	"basename*", "dirname*", "realpath*", "readlink*",
	"date*", "uname*", "whoami*", "id*", "nproc*", "seq*", "md5sum*", "sha256sum*",
))

func ownTools() (rules []Rule) {
	for _, name := range OwnTools {
		rules = append(rules, Rule{Permission: "mcp", Pattern: events.OwnTools + name})
	}
	return rules
}

func commands(patterns ...string) (rules []Rule) {
	for _, p := range patterns {
		rules = append(rules, Rule{Permission: "bash", Pattern: p})
	}
	return rules
}
