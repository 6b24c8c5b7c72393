package viewer

import (
	"fmt"
	"strings"
)

// tmuxSettings are what a server is told before its first session is made. No key of tmux's own stays bound: among
// them are its command prompt and menus, which run commands, and windows with a shell of this machine. The keys that
// are bound move between windows, scroll, leave, and open and close a shell inside the isolation.
func tmuxSettings(self string) [][]string {
	var all [][]string
	add := func(words string, more ...string) { all = append(all, append(strings.Fields(words), more...)) }
	// What is printed changes neither the clipboard, nor titles, nor names, and nothing of it passes through.
	add("set-option -s set-clipboard off")
	add("set-option -g allow-passthrough off")
	add("set-option -g allow-rename off")
	add("set-option -g automatic-rename off")
	add("set-option -g set-titles off")
	// A server that ended with its last session would give the next session an id that another one has had.
	add("set-option -s exit-empty off")
	// A window made without a command would run this program, without arguments.
	add("set-option -g default-shell", self)
	add("set-option -g default-command", "")
	add("set-option -g update-environment", "")
	add("set-option -g detach-on-destroy on")
	add("set-option -g remain-on-exit-format", "ended with status #{pane_dead_status}; C-b x closes the window")
	add("set-option -g default-terminal screen-256color")
	add("set-option -g history-limit 50000")
	add("set-option -g mode-keys emacs")
	add("set-option -g mouse on")
	add("set-option -s escape-time 20")
	// By default these show the title that the program in a window has given itself.
	add("set-option -g status-left", "#{session_name} ")
	add("set-option -g status-left-length 70")
	add("set-option -g status-right", " C-b: n next  p previous  c shell  x close  [ scroll  d leave")
	add("set-option -g status-right-length 70")
	for _, table := range []string{"root", "prefix", "copy-mode", "copy-mode-vi"} {
		add("unbind-key -a -q -T " + table)
	}
	add("set-option -g prefix C-b")
	add("set-option -g prefix2 None")
	for window := range 10 {
		add(fmt.Sprintf("bind-key -T prefix %d select-window -t :=%d", window, window))
	}
	for _, binding := range tmuxKeys {
		add("bind-key "+binding.key, binding.command...)
	}
	return all
}

// tmuxKeys are the keys that do something, with the digits. A command with a condition is one text.
var tmuxKeys = []struct {
	key     string
	command []string
}{
	{"-T prefix C-b", []string{"send-prefix"}},
	{"-T prefix d", []string{"detach-client"}},
	{"-T prefix n", []string{"next-window"}},
	{"-T prefix p", []string{"previous-window"}},
	// with -C it is the tmux command that viewer.show has set; client 0 stands for none
	{"-T prefix c", []string{"run-shell", "-C", "#{@shell} --client=0#{client_pid}"}},
	{"-T prefix x", []string{"if-shell", "-F", "#{window_index}", "kill-window"}}, // not the first one
	{"-T prefix [", []string{"copy-mode"}},
	{"-T prefix PPage", []string{"copy-mode", "-u"}},
	{"-T root WheelUpPane", []string{"if-shell", "-F", "#{||:#{alternate_on},#{||:#{pane_in_mode},#{mouse_any_flag}}}", "send-keys -M", "copy-mode -e"}},
	{"-T copy-mode WheelUpPane", []string{"send-keys", "-X", "-N", "5", "scroll-up"}},
	{"-T copy-mode WheelDownPane", []string{"send-keys", "-X", "-N", "5", "scroll-down"}},
	{"-T copy-mode Up", []string{"send-keys", "-X", "scroll-up"}},
	{"-T copy-mode Down", []string{"send-keys", "-X", "scroll-down"}},
	{"-T copy-mode PPage", []string{"send-keys", "-X", "page-up"}},
	{"-T copy-mode NPage", []string{"send-keys", "-X", "page-down"}},
	{"-T copy-mode Space", []string{"send-keys", "-X", "page-down"}},
	{"-T copy-mode Home", []string{"send-keys", "-X", "history-top"}},
	{"-T copy-mode End", []string{"send-keys", "-X", "history-bottom"}},
	{"-T copy-mode q", []string{"send-keys", "-X", "cancel"}},
	{"-T copy-mode Escape", []string{"send-keys", "-X", "cancel"}},
	{"-T copy-mode C-c", []string{"send-keys", "-X", "cancel"}},
	// not in use; but a table without a key is gone, and cannot be emptied again
	{"-T copy-mode-vi q", []string{"send-keys", "-X", "cancel"}},
}

// joined makes one run of tmux of several commands: the first that fails is the last.
func joined(commands [][]string) (args []string) {
	for i, c := range commands {
		if i > 0 {
			args = append(args, ";")
		}
		args = append(args, c...)
	}
	return args
}

// tmuxLine writes a command as tmux reads it from a line (tmux(1), "Parsing syntax").
func tmuxLine(args []string) string {
	quoted := make([]string, len(args))
	for i, arg := range args {
		quoted[i] = `"` + strings.NewReplacer(`\`, `\\`, `"`, `\"`, `$`, `\$`, `~`, `\~`, "\n", `\n`).Replace(arg) + `"`
	}
	return strings.Join(quoted, " ")
}
