package admin

import (
	"context"

	"pocketcoder/bridge/ssh"
	"pocketcoder/cmd/viewer"
)

// checkTmux checks for a tmux that does not forward terminal sequences of the programs in it.
func checkTmux(ctx context.Context) check {
	c := checkProgram(ctx, checkOptional, "tmux", "-V", "watching what the sandbox runs (pocketcoder attach)", viewer.Get)
	if c.State == checkOK && viewer.TooOld(c.Found) {
		c.State, c.Found, c.Get = checkOptional, c.Found+", which is too old", viewer.Get
	}
	return c
}

// checkSSHD looks for sshd in the same places as up.
func checkSSHD() check {
	c := check{Name: "sshd", State: checkOptional, For: "watching it from elsewhere (pocketcoder up --ssh)", Get: ssh.InstallHint}
	if path, err := ssh.Find(); err == nil {
		c.State, c.Found, c.Get = checkOK, path, ""
	}
	return c
}
