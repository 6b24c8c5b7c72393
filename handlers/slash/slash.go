// Package slash lists the commands that a person can write instead of a message, on a page, at a terminal and in a
// messenger.
//
// Promises: a command has the same name and does the same in every place that has it. A place leaves out what it cannot
// do, or shows in another way.
//
// It must not know what a command does.
package slash

import (
	"slices"
	"strings"
)

// Place is where a person writes.
type Place string

// The places.
const (
	Page      Place = "page"
	Terminal  Place = "terminal"
	Messenger Place = "messenger"
)

// Command is one command. Its name begins with a slash.
type Command struct {
	Name     string
	Also     string   // another name, "" for none
	Argument string   // what may follow the name, for the help; "" for nothing
	Words    []string // first words of the argument; none for free text
	About    string
	places   []Place
}

// Names of commands.
const (
	Help     = "/help"
	New      = "/new"
	Chats    = "/chats"
	Requests = "/requests"
	Why      = "/why"
	Changes  = "/changes"
	Model    = "/model"
	Agent    = "/agent"
	Queue    = "/queue"
	Undo     = "/undo"
	Redo     = "/redo"
	Omit     = "/omit"
	Fork     = "/fork"
	Rename   = "/rename"
	Archive  = "/archive"
	Stop     = "/stop"
	Quit     = "/quit"
)

var changed = []string{"keep", "overwrite"} // what becomes of files that were changed later

// all are the commands, in the order of the help.
var all = []Command{
	{Name: Help, About: "list the commands", places: []Place{Page, Terminal, Messenger}},
	{Name: New, About: "begin a new chat", places: []Place{Page, Messenger}},
	{Name: Chats, About: "list the chats", places: []Place{Page, Terminal}},
	{Name: Requests, About: "list the requests and questions that wait, of all chats", places: []Place{Page, Terminal}},
	{Name: Why, Argument: "ID", About: "explain why a request was allowed, denied or asked; without ID the last request of the chat",
		places: []Place{Terminal}},
	{Name: Changes, About: "show the changes to files", places: []Place{Page}},
	{Name: Model, Argument: "NAME", About: "use another model in this chat; without NAME list the models",
		places: []Place{Page, Terminal}},
	{Name: Agent, Argument: "NAME", About: "use another agent in this chat, or none; without NAME list the agents",
		places: []Place{Page, Terminal}},
	{Name: Queue, Argument: "VERB N", Words: []string{"edit", "delete", "up", "now"},
		About:  "list the messages that wait; change number N of them with edit N TEXT, delete N, up N or now N (send it at once)",
		places: []Place{Terminal}},
	{Name: Undo, Argument: "keep|overwrite", Words: changed,
		About: "undo the last turn and its changes to files; files that were changed later are named first: keep leaves them, " +
			"overwrite does not", places: []Place{Page, Terminal}},
	{Name: Redo, Argument: "keep|overwrite", Words: changed, About: "redo what was undone", places: []Place{Page, Terminal}},
	{Name: Omit, About: "leave out the files that the model provider refused", places: []Place{Page, Terminal}},
	{Name: Fork, About: "copy this chat into a new one", places: []Place{Page}},
	{Name: Rename, Argument: "TITLE", About: "rename the chat", places: []Place{Page, Terminal}},
	{Name: Archive, About: "archive the chat", places: []Place{Page, Terminal}},
	{Name: Stop, Also: "/abort", About: "stop the turn; messages that wait are sent when you send the next one",
		places: []Place{Page, Terminal, Messenger}},
	{Name: Quit, About: "leave; the turn goes on", places: []Place{Terminal}},
}

// In returns the commands that a place has.
func In(place Place) (commands []Command) {
	for _, c := range all {
		if slices.Contains(c.places, place) {
			commands = append(commands, c)
		}
	}
	return commands
}

// Find returns the command with a name, and what follows the name. ok is false if the place has no such command.
func Find(place Place, text string) (c Command, argument string, ok bool) {
	name, argument, _ := strings.Cut(strings.TrimSpace(text), " ")
	for _, c := range In(place) {
		if name == c.Name || name == c.Also && name != "" {
			return c, strings.TrimSpace(argument), true
		}
	}
	return Command{}, "", false
}

// Usage is what a person writes: the name, and what may follow it.
func (c Command) Usage() string { return strings.TrimSpace(c.Name + " " + c.Argument) }
