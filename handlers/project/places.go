package project

import (
	"context"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strings"

	"pocketcoder/events"
	"pocketcoder/handlers/account"
	"pocketcoder/handlers/permission/workspace"
	"pocketcoder/handlers/record"
)

// Places says which directories of this machine may be projects. The zero value leaves the choice to the operator.
type Places struct {
	// Below is the directory below which administrators may choose directories of projects, too; empty for none.
	Below string
	// Check returns an error that says why a directory cannot be a project; nil to accept each. The path has no symlinks.
	Check func(directory string) error
}

// checkDirectory refuses a directory that cannot be a project, or that the account may not choose. No project lies in
// another one: its commands could read the files of the other.
func (p Places) checkDirectory(c record.Change) error {
	directory := c.Text("directory")
	if !filepath.IsAbs(directory) {
		return record.Invalid("directory", "Must be an absolute path.")
	}
	real, ok := workspace.RealPath(directory)
	if byOperator := !c.ByAccount() || c.Account() == account.OperatorID; !byOperator && !p.isBelow(real) {
		if p.Below == "" {
			return record.Invalid("directory", "Only the operator of the machine chooses the directory of a project.")
		}
		return record.Invalid("directory", "Must lie below %s. Only the operator of the machine chooses another one.", p.Below)
	}
	// PocketCoder itself names the directory of a node, which has checked it
	if info, err := os.Stat(real); c.Actor != events.ActorSystem && (!ok || err != nil || !info.IsDir()) {
		return record.Invalid("directory", "%s is not a directory.", directory)
	}
	for _, other := range c.Others() {
		theirs, known := workspace.RealPath(other.Text("directory"))
		switch {
		case !known:
		case theirs == real:
			return record.Invalid("directory", "It is the directory of the project %q.", other.Text("name"))
		case lies(real, theirs):
			return record.Invalid("directory", "It lies in the project %q, whose commands could read its files.",
				other.Text("name"))
		case lies(theirs, real):
			return record.Invalid("directory", "The project %q lies in it, and its commands could read the files there.",
				other.Text("name"))
		}
	}
	if c.Actor == events.ActorSystem {
		return nil
	}
	if p.Check != nil {
		if err := p.Check(real); err != nil {
			return record.Invalid("directory", "%v.", err)
		}
	}
	c.Put("directory", real) // a symlink may lead elsewhere later
	return nil
}

func (p Places) isBelow(real string) bool {
	below, ok := workspace.RealPath(p.Below)
	return p.Below != "" && ok && real != below && lies(real, below)
}

// lies reports whether a path is that of a directory, or lies in it.
func lies(path, directory string) bool {
	rel, err := filepath.Rel(directory, path)
	return err == nil && filepath.IsLocal(rel)
}

// remoteOf returns the URL of the remote origin of a directory's repository, without a password; "" for none.
func remoteOf(ctx context.Context, directory string) string {
	out, err := exec.CommandContext(ctx, "git", "-C", directory, "config", "--get", "remote.origin.url").Output()
	if err != nil {
		return "" // it is no repository, or there is no git
	}
	remote := strings.TrimSpace(string(out))
	if u, err := url.Parse(remote); err == nil && u.User != nil {
		u.User = url.User(u.User.Username())
		return u.String()
	}
	return remote
}
