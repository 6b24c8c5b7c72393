package files

import (
	"path"
	"slices"
	"strings"
	"unicode"
	"unicode/utf8"

	"pocketcoder/handlers/policy/display"
	"pocketcoder/sandbox/protected"
)

// protectedNames are files and folders that programs read as configuration. Writing them decides what later commands
// run. They are protected everywhere, also if they do not exist. The sandbox protects the same names.
var protectedNames = foldedSet(protected.Project, protected.Instructions, protected.Home, protected.Asked)

// secretNames are files and folders that hold keys and tokens.
var secretNames = foldedSet(strings.Fields(`
	.env .envrc .ssh .gnupg .aws .azure .kube .docker .netrc _netrc .npmrc .yarnrc.yml .pypirc .pgpass .my.cnf .mylogin.cnf .git-credentials .htpasswd
	.vault-token .password-store .terraformrc .terraform.d credentials credentials.json credentials.toml kubeconfig id_rsa id_dsa id_ecdsa id_ed25519
	id_ecdsa_sk id_ed25519_sk identity.asc secring.gpg .bash_history .zsh_history .python_history .node_repl_history .psql_history
	.mysql_history .sqlite_history service-account.json service_account.json application_default_credentials.json auth.json
	.dockercfg .dockerconfigjson .boto .s3cfg secrets.json secrets.yml secrets.yaml secrets.toml wallet.dat
`))

var secretEndings = []string{".pem", ".key", ".p12", ".pfx", ".jks", ".keystore", ".kdbx", ".ppk", ".gpg", ".age",
	".tfstate", ".tfvars", ".ovpn", ".kubeconfig", ".env"}

// backupSuffixes are the suffixes of older versions of a file.
var backupSuffixes = []string{"~", ".bak", ".orig", ".save", ".swp"}

// exampleSuffixes are the suffixes of example files without secrets.
var exampleSuffixes = []string{".example", ".sample", ".template", ".dist", ".tmpl"}

// systemPlaces hold what is the machine's: processes and devices are neither read nor written without a person, the
// rest is not written.
var systemPlaces = struct{ read, write []string }{
	read:  []string{"/proc", "/sys", "/dev", "/etc/shadow", "/etc/gshadow", "/etc/sudoers", "/etc/sudoers.d"},
	write: []string{"/proc", "/sys", "/dev", "/etc", "/usr", "/bin", "/sbin", "/lib", "/lib32", "/lib64", "/boot", "/run", "/var/spool", "/var/run", "/System", "/Library"},
}

func foldedSet(lists ...[]string) map[string]bool {
	s := map[string]bool{}
	for _, name := range slices.Concat(lists...) {
		s[foldName(name)] = true
	}
	return s
}

// foldName returns the form of a name that a file system may treat as equal: without case, final dots and blanks, and
// streams.
func foldName(name string) string {
	name, _, _ = strings.Cut(name, ":")
	return strings.ToLower(strings.ToUpper(strings.TrimRight(name, " .")))
}

// isProtected reports whether a path is, or lies in, a configuration of programs. A file HEAD makes its folder a git
// repository, whose configuration git reads.
func isProtected(p string) bool {
	parts := strings.Split(p, "/")
	for i, part := range parts {
		name := foldName(part)
		switch {
		case protectedNames[name], strings.HasPrefix(name, ".env.") && !isExample(name), strings.HasPrefix(name, ".aider"),
			strings.HasPrefix(name, "copilot-instructions"), strings.HasSuffix(name, ".code-workspace"),
			name == "workflows" && i > 0 && foldName(parts[i-1]) == ".github",
			name == "head" && i == len(parts)-1:
			return true
		}
	}
	return false
}

// Secret reports whether a path is, or lies in, a file or folder with keys and tokens.
func Secret(p string) bool {
	parts := strings.Split(p, "/")
	inGit := false
	for i, part := range parts {
		name := foldName(part)
		if secretName(name, i == len(parts)-1, inGit) {
			return true
		}
		inGit = inGit || name == ".git"
	}
	return false
}

// secretName reports whether a folded name, or the name without a backup suffix, is that of a secret file.
func secretName(name string, last, inGit bool) bool {
	for swapped := false; ; {
		// vim puts a dot in front
		if holdsSecret(name, last, inGit) || swapped && holdsSecret(strings.TrimPrefix(name, "."), last, inGit) {
			return true
		}
		i := slices.IndexFunc(backupSuffixes, func(ending string) bool { return strings.HasSuffix(name, ending) })
		if i < 0 {
			return false
		}
		swapped = swapped || backupSuffixes[i] == ".swp"
		name = strings.TrimSuffix(name, backupSuffixes[i])
	}
}

// holdsSecret compares the folded name itself. Names without a dot are common for folders of source code, so they count
// for files only. Below .git, files may hold the URLs of remotes.
func holdsSecret(name string, last, inGit bool) bool {
	switch {
	case isExample(name):
		return false
	case secretNames[name] && (last || strings.HasPrefix(name, ".")), envName(name),
		last && slices.Contains(secretEndings, path.Ext(name)),
		last && strings.HasPrefix(name, "service-account") && path.Ext(name) == ".json",
		inGit && slices.Contains([]string{"config", "config.worktree", "fetch_head"}, name):
		return true
	}
	return false
}

// envName reports whether a name is .env with a suffix: .env-prod, .env~, but not .environment.
func envName(name string) bool {
	rest, ok := strings.CutPrefix(name, ".env")
	next, _ := utf8.DecodeRuneInString(rest)
	return ok && rest != "" && !unicode.IsLetter(next) && !unicode.IsDigit(next)
}

func isExample(name string) bool { return slices.Contains(exampleSuffixes, path.Ext(name)) }

// MayRead returns why only a person may allow reading a location, "" if a rule may.
func (w Workspace) MayRead(at Location) string {
	switch {
	case at.Lexical == "/dev/null":
		return ""
	case w.matchesEither(at, systemPlaces.read, nil):
		return display.QuotePath(at.Lexical) + " belongs to the system"
	case w.matchesEither(at, nil, Secret):
		return display.QuotePath(at.Lexical) + " may hold secrets"
	}
	return ""
}

// MayWrite returns why only a person may allow writing a location, "" if a rule may.
func (w Workspace) MayWrite(at Location) string {
	switch {
	case at.Lexical == "/dev/null":
		return ""
	case w.matchesEither(at, systemPlaces.write, nil):
		return display.QuotePath(at.Lexical) + " belongs to the system"
	case w.matchesEither(at, nil, isProtected):
		return display.QuotePath(at.Lexical) + " configures what programs do"
	}
	return w.MayRead(at)
}

// matchesEither reports whether the lexical or the real path of a location matches, or lies in one of the places. The
// path of the workspace itself does not count.
func (w Workspace) matchesEither(at Location, places []string, such func(string) bool) bool {
	for _, p := range []string{at.Lexical, at.Real} {
		if w.Root != "/" && Within(w.Root, p) {
			if such != nil && such(strings.TrimPrefix(p, w.Root)) {
				return true
			}
			continue
		}
		if such != nil && such(p) || slices.ContainsFunc(places, func(place string) bool { return Within(place, p) }) {
			return true
		}
	}
	return false
}
