package program

import (
	"slices"
	"strings"

	"pocketcoder/handlers/policy/display"
)

// Why a program is always for a person, whatever a rule says of its name. “%s” is the name.
const (
	runsOthers   = "“%s” runs what it is given; a rule does not reach that"
	runsScripts  = "“%s” runs the program text it is given; a rule reaches that only when it names the script"
	runsShell    = "“%s” is a shell; a rule does not reach what it runs"
	setsShell    = "“%s” changes the shell that runs the next commands"
	runsInside   = "“%s” lets commands be run from inside"
	reachesOut   = "“%s” sends to other machines; a rule does not reach that"
	writesByArgs = "“%s” writes files its arguments name; a rule for commands does not reach that"
	controls     = "“%s” changes the machine or other programs"
)

// mustAsk says why a program is always asked. There are two exceptions: a script that a rule names, and a host that a
// rule for curl names.
var mustAsk = table(map[string]string{
	runsOthers: `
		detach env sudo sudoedit doas su pkexec runuser runcon sg newgrp command exec builtin nohup setsid time timeout nice ionice chrt taskset
		stdbuf unbuffer xargs parallel watch busybox toybox chroot unshare nsenter systemd-run systemd-nspawn bwrap firejail proot fakeroot
		flock script scriptreplay expect strace ltrace gdb lldb valgrind perf catchsegv numactl prlimit setarch linux32 linux64 i386 x86_64
		setpriv capsh at batch crontab entr watchexec nodemon ts-node-dev concurrently cross-env dotenv direnv mise asdf run-parts start-stop-daemon
		daemonize dtach screen tmux zellij rlwrap hyperfine cpulimit choom uclampset coproc if then else elif fi do done case esac while until for in
		select function caffeinate ccache distcc gosu tini dumb-init s6-setuidgid chpst envdir multitime sem faketime torify torsocks xvfb-run dbus-run-session run0 machinectl nerdctl runc crun ctr lxc proxychains
		proxychains4 softlimit trickle pv-run exch ld.so ld-linux.so.2 ld-linux-x86-64.so.2`,
	runsShell: `sh bash dash zsh ksh ksh93 mksh pdksh fish csh tcsh ash rbash yash elvish nu xonsh osh ysh pwsh powershell cmd wsl rsh`,
	setsShell: `
		eval source . export declare typeset local readonly set shopt unset trap alias unalias hash enable bind complete compgen compopt read
		mapfile readarray let fc history ulimit umask pushd popd dirs logout return break continue shift getopts times suspend jobs fg bg disown
		exit wait caller [ [[ { } !`,
	runsScripts: `
		python python2 python3 pypy pypy3 ipython node nodejs tsx ts-node ruby irb perl php lua luajit npx bunx pnpx uvx`,
	runsInside: `
		awk gawk mawk nawk original-awk ed red ex vi vim nvim view gvim rvim vimdiff nano pico emacs emacsclient micro helix hx kak joe code cursor less more most
		man info apropos pager bat batcat bc dc m4 sqlite3 psql mysql mariadb mongo mongosh redis-cli ftp lftp telnet tclsh wish guile
		racket clisp sbcl ecl Rscript R julia ghci runghc runhaskell scala groovy jshell java kotlin erl elixir iex escript osascript swift octave gnuplot
		latex pdflatex xelatex lualatex tex ghostscript gs convert magick ffmpeg tig lazygit fzf peco sk ranger mc nnn lf vifm top htop
		jupyter mutt mail mailx sendmail w3m lynx links elinks xdg-open open x-www-browser sensible-browser xterm gnome-terminal`,
	reachesOut: `
		curl wget aria2c http https xh httpie axel ping ping6 traceroute tracepath mtr dig nslookup host drill whois nc ncat netcat socat nmap
		ssh scp sftp rsync rclone ssh-keyscan ssh-copy-id openssl ssh-keygen ssh-agent ssh-add aws gcloud az s3cmd gsutil ab wrk hey openvpn wg`,
	writesByArgs: `tee dd patch sponge split csplit install shred truncate mkfifo mknod rename mmv unzip cpio pax ar 7z 7za unrar bsdtar gunzip`,
	controls: `
		systemctl service initctl launchctl kill killall pkill reboot shutdown halt poweroff mount umount mkfs fdisk parted iptables nft ip
		ifconfig sysctl modprobe insmod useradd usermod passwd chpasswd visudo apt apt-get aptitude dpkg yum dnf rpm apk pacman snap flatpak brew nix
		nix-shell nix-env gpg gpg2 dconf gsettings loginctl update-alternatives ldconfig debugfs setcap setfacl chattr pass op vault ip6tables`,
})

// table turns a list of names for each reason around.
func table(names map[string]string) map[string]string {
	t := map[string]string{}
	for why, list := range names {
		for _, name := range strings.Fields(list) {
			t[name] = why
		}
	}
	return t
}

// AskCause returns why a program is asked whatever a rule says of its name. It returns an empty string for other
// programs, for interpreters, because a rule may name the script, and for curl, because a rule may name the host.
func AskCause(name string) (cause string) {
	if !plainName.MatchString(name) {
		return display.Quote(name) + " is not the plain name of a program"
	}
	why := mustAsk[name]
	if why == "" || why == runsScripts || name == "curl" {
		return ""
	}
	return sentence(why, name)
}

// Interprets reports whether a program runs a script that it is given by name.
func Interprets(name string) bool { return mustAsk[name] == runsScripts }

// NeedsPerson reports whether a program is in the table of those that run others, change the machine or reach out.
func NeedsPerson(name string) bool { return mustAsk[name] != "" }

// RunsArguments reports whether the words behind one may be a command of their own: those of a program that starts
// others, of a sub-command such as “uv run” or “npm exec”, of python -m, and of find -exec. first says that the word is
// the name of the program.
func RunsArguments(name, before string, first bool) bool {
	t, isTool := tools[name]
	return first && (mustAsk[name] == runsOthers || slices.Contains(packageRunners, name)) ||
		isTool && (slices.Contains(t.runs, before) || slices.Contains(runningWords, before)) ||
		Interprets(name) && before == "-m" || strings.HasPrefix(before, "-exec") || strings.HasPrefix(before, "-ok")
}

// packageRunners run the program of a package, and runningWords are sub-commands that run one.
var (
	packageRunners = []string{"npx", "bunx", "pnpx", "uvx"}
	runningWords   = []string{"exec", "dlx", "x"}
)

func sentence(why, name string) string { return strings.Replace(why, "%s", name, 1) }

// executingWords are parts of option names with which programs that no table here describes run other programs: --exec,
// --pager, --rsh-command, --use-compress-program, -fplugin.
var executingWords = set(`
	exec execute eval pager editor shell rsh command cmd program wrapper hook plugin fplugin preload loader require import script askpass proxycommand
	toolexec compiler linker specs fspecs browser viewer sudo`)

// namesExecution reports whether the name of an option, without dashes and value, suggests that the option runs a
// program.
func namesExecution(name string) bool {
	for _, part := range strings.FieldsFunc(strings.ToLower(name), func(c rune) bool {
		return c == '-' || c == '_' || c == '.'
	}) {
		if executingWords[part] {
			return true
		}
	}
	return false
}
