package policy_test

import (
	"os/exec"
	"regexp"
	"slices"
	"strings"
	"testing"

	"pocketcoder/handlers/policy"
)

// FuzzAllow holds two invariants with rules that allow as much as rules can: what is allowed bash accepts, and it
// holds no token of what must always be asked. The tokens are found without the parser that the policy uses.
func FuzzAllow(f *testing.F) {
	for _, name := range []string{"permission_cases.jsonl", "more_cases.jsonl"} {
		for _, c := range readCases(f, name) {
			if c.Permission == "bash" {
				f.Add(c.Asked)
			}
		}
	}
	sh, err := exec.LookPath("bash")
	if err != nil {
		f.Skip("bash is not installed")
	}
	rules := append([]policy.Rule{{Permission: "bash", Pattern: "*"}, {Permission: "write", Pattern: policy.Inside}},
		policy.Defaults...)
	f.Fuzz(func(t *testing.T, command string) {
		v := policy.Evaluate(rules, bash(command))
		if v.Action != policy.Allow {
			return
		}
		if out, err := exec.Command(sh, "-n", "-c", command).CombinedOutput(); err != nil || len(out) > 0 {
			t.Fatalf("%q is allowed, and bash says: %s", command, out)
		}
		if token := mustAsk(command); token != "" {
			t.Fatalf("%q is allowed with %q in it", command, token)
		}
	})
}

var (
	inQuotes = regexp.MustCompile(`'[^']*'|"[^"]*"`)
	comment  = regexp.MustCompile(`(?m)(^|[\s;&|])#.*$`)
	joints   = regexp.MustCompile(`&&|\|\||[;|\n]`)
	joined   = regexp.MustCompile(`\d*[<>]&|&?>>?\|?`) // redirects with & in them, and >|
	redirect = regexp.MustCompile(`\d*(&>>?|>>|>\||<>|[<>]&?)\s*[^\s<>&;|]*`)
	active   = regexp.MustCompile("[$`\\\\*?\\[({&]|\\)|<<|<>|(^|\\s)~|[=:]~")
	quotedUp = regexp.MustCompile("\\$[({A-Za-z_0-9@*#?!-]|`|\\\\[$`\"\\\\\n]")
	harmless = regexp.MustCompile(`@\{[A-Za-z0-9-]+\}|\{\}`)
)

// runners are programs that always need a person.
var runners = strings.Fields(`sh bash dash zsh ksh fish env sudo doas su command exec builtin eval source . nohup setsid time timeout nice stdbuf xargs parallel watch busybox
	chroot awk gawk perl python python3 ruby node php lua vi vim less more man ed emacs ssh scp curl wget nc tee dd export declare alias set unset trap read let if while for case coproc`)

// runningOptions are some of the options by which programs run others or write.
var runningOptions = map[string]*regexp.Regexp{
	"find": regexp.MustCompile(`\s-(exec|execdir|ok|okdir|delete|fprint\S*|fls)(\s|$)`),
	"rg":   regexp.MustCompile(`\s--(pre|hostname-bin)(=|\s|$)`),
	"git":  regexp.MustCompile(`\s--(ext-diff|textconv|output|upload-pack|receive-pack|exec)(=|\s|$)`),
	"sort": regexp.MustCompile(`\s--(comp|compress|compress-prog|compress-program|out|output)(=|\s|$)`),
	"make": regexp.MustCompile(`\s--(ev|eval)(=|\s|$)`),
}

// mustAsk returns the first token of a command that must never be allowed.
func mustAsk(command string) string {
	for _, q := range inQuotes.FindAllString(command, -1) {
		if q[0] == '"' && quotedUp.MatchString(q) {
			return q
		}
	}
	bare := strings.ReplaceAll(comment.ReplaceAllString(inQuotes.ReplaceAllString(command, "Q"), ""), ">|", ">")
	rest := harmless.ReplaceAllString(joined.ReplaceAllString(joints.ReplaceAllString(bare, " ; "), " "), "")
	if token := active.FindString(rest); token != "" {
		return token
	}
	for _, simple := range joints.Split(bare, -1) {
		fields := strings.Fields(redirect.ReplaceAllString(simple, " "))
		if len(fields) > 0 && (slices.Contains(runners, fields[0]) || strings.ContainsAny(fields[0], "=/")) {
			return fields[0]
		}
		if len(fields) > 0 && runningOptions[fields[0]] != nil {
			before, _, _ := strings.Cut(simple, " -- ")
			if option := runningOptions[fields[0]].FindString(before); option != "" {
				return option
			}
		}
	}
	return ""
}
