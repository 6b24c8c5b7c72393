package policy

// Defaults allow reading in the workspace, the model's own notes, and PocketCoder's own tools (bridge/mcp). Commands
// that run the project's code (go test, npm, make) need a rule of a person.
var Defaults = append([]Rule{
	{Permission: "read", Pattern: Inside}, {Permission: "list", Pattern: Inside}, {Permission: "glob", Pattern: Inside}, {Permission: "grep", Pattern: Inside},
	{Permission: "todowrite", Pattern: "*"}, {Permission: "todoread", Pattern: "*"},
	{Permission: "mcp", Pattern: "pocketcoder_handoff"}, {Permission: "mcp", Pattern: "pocketcoder_assign"}, {Permission: "mcp", Pattern: "pocketcoder_send_message"}, {Permission: "mcp", Pattern: "pocketcoder_check_inbox"},
	{Permission: "mcp", Pattern: "pocketcoder_list_workers"}, {Permission: "mcp", Pattern: "pocketcoder_check_worker"}, {Permission: "mcp", Pattern: "pocketcoder_stop_worker"},
	{Permission: "mcp", Pattern: "pocketcoder_ask_person"}, {Permission: "mcp", Pattern: "pocketcoder_propose"}, {Permission: "mcp", Pattern: "pocketcoder_mcp_status"},
}, commands(
	"git status*", "git log*", "git diff*", "git show*", "git branch*", "git blame*", "git rev-parse*", "git ls-files*",
	"git describe*", "git shortlog*",
	"git remote*", "git tag*", "git grep*", "git merge-base*", "git stash list*",
	"cd*", "ls*", "cat*", "head*", "tail*", "wc*", "nl*", "cut*", "tr*", "sort*", "uniq*", "comm*", "diff*", "cmp*",
	"stat*", "file*", "du*", "tree*",
	"grep*", "rg*", "find*", "sed*", "jq*", "pwd*", "echo*", "printf*", "true*", "false*", "test*", "which*", "type*",
	"basename*", "dirname*", "realpath*", "readlink*",
	"date*", "uname*", "whoami*", "id*", "nproc*", "seq*", "md5sum*", "sha256sum*",
)...)

func commands(patterns ...string) (rules []Rule) {
	for _, p := range patterns {
		rules = append(rules, Rule{Permission: "bash", Pattern: p})
	}
	return rules
}
