package chat

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

// SlashCommand is one command. Its name begins with a slash.
type SlashCommand struct {
	Name     string
	Also     string   // another name, "" for none
	Argument string   // what may follow the name, for the help; "" for nothing
	Words    []string // first words of the argument; none for free text
	About    string
	places   []Place
}

// Names of commands.
const (
	SlashHelp     = "/help"
	SlashNew      = "/new"
	SlashChats    = "/chats"
	SlashRequests = "/requests"
	SlashWhy      = "/why"
	SlashChanges  = "/changes"
	SlashModel    = "/model"
	SlashAgent    = "/agent"
	SlashQueue    = "/queue"
	SlashUndo     = "/undo"
	SlashRedo     = "/redo"
	SlashOmit     = "/omit"
	SlashFork     = "/fork"
	SlashRename   = "/rename"
	SlashArchive  = "/archive"
	SlashStop     = "/stop"
	SlashQuit     = "/quit"
)

// The answers to the question what an undo does with files that were changed later.
const (
	KeepChanged      = "keep"
	OverwriteChanged = "overwrite"
)

var changedFiles = []string{KeepChanged, OverwriteChanged}

// slashCommands are the commands, in the order of the help.
var slashCommands = []SlashCommand{
	{Name: SlashHelp, About: "list the commands", places: []Place{Page, Terminal, Messenger}},
	{Name: SlashNew, About: "begin a new chat", places: []Place{Page, Messenger}},
	{Name: SlashChats, About: "list the chats", places: []Place{Page, Terminal}},
	{Name: SlashRequests, About: "list the requests and questions that wait, of all chats", places: []Place{Page, Terminal}},
	{Name: SlashWhy, Argument: "ID", About: "explain why a request was allowed, denied or asked; without ID the last request of the chat",
		places: []Place{Terminal}},
	{Name: SlashChanges, About: "show the changes to files", places: []Place{Page}},
	{Name: SlashModel, Argument: "NAME", About: "use another model in this chat; without NAME list the models",
		places: []Place{Page, Terminal}},
	{Name: SlashAgent, Argument: "NAME", About: "use another agent in this chat, or none; without NAME list the agents",
		places: []Place{Page, Terminal}},
	{Name: SlashQueue, Argument: "VERB N", Words: []string{"edit", "delete", "up", "now"},
		About:  "list the messages that wait; change number N of them with edit N TEXT, delete N, up N or now N (send it at once)",
		places: []Place{Terminal}},
	{Name: SlashUndo, Argument: "keep|overwrite", Words: changedFiles,
		About: "undo the last turn and its changes to files; files that were changed later are named first: keep leaves them, " +
			"overwrite does not", places: []Place{Page, Terminal}},
	{Name: SlashRedo, Argument: "keep|overwrite", Words: changedFiles, About: "redo what was undone", places: []Place{Page, Terminal}},
	{Name: SlashOmit, About: "leave out the files that the model provider refused", places: []Place{Page, Terminal}},
	{Name: SlashFork, About: "copy this chat into a new one", places: []Place{Page}},
	{Name: SlashRename, Argument: "TITLE", About: "rename the chat", places: []Place{Page, Terminal}},
	{Name: SlashArchive, About: "archive the chat", places: []Place{Page, Terminal}},
	{Name: SlashStop, Also: "/abort", About: "stop the turn; messages that wait are sent when you send the next one",
		places: []Place{Page, Terminal, Messenger}},
	{Name: SlashQuit, About: "leave; the turn goes on", places: []Place{Terminal}},
}

// SlashCommands returns the commands that a place has.
func SlashCommands(place Place) (commands []SlashCommand) {
	for _, c := range slashCommands {
		if slices.Contains(c.places, place) {
			commands = append(commands, c)
		}
	}
	return commands
}

// FindSlashCommand returns the command with a name, and what follows the name. ok is false if the place has no such
// command.
func FindSlashCommand(place Place, text string) (c SlashCommand, argument string, ok bool) {
	name, argument, _ := strings.Cut(strings.TrimSpace(text), " ")
	for _, c := range SlashCommands(place) {
		if name == c.Name || name == c.Also && name != "" {
			return c, strings.TrimSpace(argument), true
		}
	}
	return SlashCommand{}, "", false
}

// Usage is what a person writes: the name, and what may follow it.
func (c SlashCommand) Usage() string { return strings.TrimSpace(c.Name + " " + c.Argument) }
