package console

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"

	"pocketcoder/cmd/client"
	"pocketcoder/cmd/console/render"
	"pocketcoder/cmd/console/terminal"
	"pocketcoder/events"
	"pocketcoder/handlers/chat"
	"pocketcoder/handlers/model"
	"pocketcoder/handlers/policy/display"
	"pocketcoder/projections"
)

const slashHelpEnd = `
Type two slashes to send a message that begins with one: //etc/hosts. Tab completes a command.
A line that ends with \ goes on in the next one. The up arrow brings earlier messages back.
To a request answer y, n, n REASON, e to edit the command, or a for a rule.`

// slashCommands carry out the commands that package chat lists for a terminal. line handles /quit and /stop itself,
// because scripts have them too.
var slashCommands = map[string]func(*conversation, context.Context, string) error{
	chat.SlashHelp:     (*conversation).slashHelp,
	chat.SlashChats:    (*conversation).slashChats,
	chat.SlashRequests: (*conversation).slashRequests,
	chat.SlashWhy:      (*conversation).slashWhy,
	chat.SlashModel:    (*conversation).slashModel,
	chat.SlashAgent:    (*conversation).slashAgent,
	chat.SlashQueue:    (*conversation).slashQueue,
	chat.SlashUndo:     (*conversation).slashUndo,
	chat.SlashRedo:     (*conversation).slashRedo,
	chat.SlashOmit:     (*conversation).slashOmit,
	chat.SlashRename:   (*conversation).slashRename,
	chat.SlashArchive:  (*conversation).slashArchive,
}

// isSlash reports whether a line is a command and no message. The command that is edited may begin with a slash.
func (c *conversation) isSlash(words string) bool {
	if len(c.pending) > 0 && (c.pending[0].awaitsCommand || c.pending[0].proposal != nil) {
		return false
	}
	return strings.HasPrefix(words, "/") && !strings.HasPrefix(words, "//")
}

// removeSlashEscape removes the first of the two slashes with which a person begins a message that is no command.
func removeSlashEscape(line terminal.Line, text string) string {
	if line.Typed && strings.HasPrefix(text, "//") {
		return text[1:]
	}
	return text
}

// slash runs a command. An error of the command does not end the conversation.
func (c *conversation) slash(ctx context.Context, words string) error {
	command, argument, ok := chat.FindSlashCommand(chat.Terminal, words)
	name, _, _ := strings.Cut(words, " ")
	if !ok {
		c.show.Note("", render.Red, "There is no command %s. /help lists the commands. To send a message that begins with a slash, type //.", name)
		return nil
	}
	run, ok := slashCommands[command.Name]
	if !ok || command.Argument == "" && argument != "" {
		c.show.Note("", render.Red, "Nothing follows %s. Write it alone.", name)
		return nil
	}
	err := run(c, ctx, argument)
	if errors.Is(err, context.Canceled) {
		return err
	}
	if err != nil {
		c.show.Note("", render.Red, "%s: %v", name, err)
	}
	return nil
}

func (c *conversation) slashHelp(context.Context, string) error {
	var list strings.Builder
	for _, command := range chat.SlashCommands(chat.Terminal) {
		fmt.Fprintf(&list, "%-20s  %s\n", command.Usage(), command.About)
	}
	c.show.Line("", render.Plain, list.String()+slashHelpEnd)
	return nil
}

// completions are the commands that Tab completes, with what can follow them.
func (c *conversation) completions() (all []string) {
	for _, command := range chat.SlashCommands(chat.Terminal) {
		name := command.Name
		if command.Argument != "" {
			name += " "
		}
		all = append(all, name)
		for _, word := range command.Words {
			all = append(all, name+word)
		}
	}
	for _, item := range c.pending {
		if item.permission != nil {
			all = append(all, chat.SlashWhy+" "+item.permission.Content.ID)
		}
	}
	return all
}

// slashRename changes the title of the chat.
func (c *conversation) slashRename(ctx context.Context, title string) error {
	if title == "" {
		return errors.New("write the title after the command: /rename TITLE")
	}
	return c.updateChat(ctx, map[string]any{"title": title}, "(the chat has a new title)")
}

func (c *conversation) slashArchive(ctx context.Context, _ string) error {
	return c.updateChat(ctx, map[string]any{"archived": true}, "(the chat is archived)")
}

func (c *conversation) updateChat(ctx context.Context, fields map[string]any, done string) error {
	if !c.exists {
		return errors.New("the chat begins with its first message")
	}
	if err := c.Update(ctx, "chats", c.Chat, fields); err != nil {
		return err
	}
	c.show.Note("", render.Dim, "%s", done)
	return nil
}

func (c *conversation) slashChats(ctx context.Context, _ string) error {
	chats, err := c.Chats(ctx, 20)
	if err != nil {
		return err
	}
	var table bytes.Buffer
	if err := render.Chats(&table, chats); err != nil {
		return err
	}
	c.show.Line("", render.Plain, table.String())
	return nil
}

func (c *conversation) slashRequests(ctx context.Context, _ string) error {
	pending, err := c.Requests(ctx)
	if err != nil {
		return err
	}
	var table bytes.Buffer
	if err := render.Requests(&table, pending); err != nil {
		return err
	}
	c.show.Line("", render.Plain, table.String())
	return nil
}

func (c *conversation) slashWhy(ctx context.Context, id string) error {
	if id == "" {
		var err error
		if id, err = c.LastRequest(ctx, c.Chat); err != nil {
			return err
		}
	}
	why, err := c.Why(ctx, id)
	if err != nil {
		return err
	}
	c.show.Why(why)
	return nil
}

// slashModel lists the models, or chooses one for the chat by its name or its number in the list.
func (c *conversation) slashModel(ctx context.Context, name string) error {
	chat := ""
	if c.exists {
		chat = c.Chat
	}
	list, err := c.Models(ctx, chat)
	if err != nil {
		return err
	}
	if name == "" {
		c.showModels(list)
		return nil
	}
	if n, err := strconv.Atoi(name); err == nil {
		if n < 1 || n > len(list.Models) {
			return fmt.Errorf("choose 1 to %d, or a name; /model alone lists the models", len(list.Models))
		}
		name = list.Models[n-1]
	}
	if !c.exists { // the first message creates the chat and names it
		if name, err = listedModel(name, list.Models); err != nil {
			return err
		}
		c.model = name
	} else if err := c.SelectModel(ctx, c.Chat, "", name); err != nil {
		return err
	}
	c.show.Note("", render.Dim, "(this chat uses %s from the next message on)", name)
	return nil
}

// listedModel returns the only listed model with this name, which may lack the provider.
func listedModel(name string, models []string) (string, error) {
	var same []string
	for _, model := range models {
		if _, bare, _ := strings.Cut(model, "/"); model == name {
			return model, nil
		} else if bare == name {
			same = append(same, model)
		}
	}
	switch {
	case len(models) == 0:
		return "", errors.New("the list of models is not known yet, because OpenCode is still starting; try again in a moment")
	case len(same) == 0:
		return "", fmt.Errorf("there is no model %q; available: %s", name, model.ListOfModels(models))
	case len(same) > 1:
		return "", fmt.Errorf("several providers have a model %q; choose one of %s", name, model.ListOfModels(same))
	}
	return same[0], nil
}

func (c *conversation) showModels(list model.Models) {
	if len(list.Models) == 0 {
		c.show.Note("", render.Dim, "(OpenCode has not listed its models yet)")
	}
	uses := cmp.Or(c.model, list.Selected, list.Configured)
	for i, model := range list.Models {
		mark, st := " ", render.Plain
		if model == uses {
			mark, st = "*", render.Bold
		}
		c.show.Note("", st, "%s %3d  %s", mark, i+1, model)
	}
}

// slashUndo reverts the newest turn that is not reverted yet.
func (c *conversation) slashUndo(ctx context.Context, answer string) error {
	if c.working {
		return errors.New("the turn still runs; stop it first with /stop")
	}
	t, err := c.turnBefore(ctx, c.undone)
	if err != nil {
		return err
	}
	files, done, err := c.revert(ctx, "/undo", t.message, answer)
	if err != nil || !done {
		return err
	}
	c.undone = t.message
	c.show.Note("", render.Yellow, "Undone: %s", display.OneLine(t.text, 200))
	c.listFiles(files)
	about := "(" + projections.NoFiles + ")"
	if len(files) > 0 {
		about = "(these files are as before the turn, but for those that are kept)"
	}
	c.show.Note("", render.Dim, "%s", about)
	c.show.Note("", render.Dim, "(/redo restores it, until the next message)")
	return nil
}

func (c *conversation) listFiles(files []string) {
	for i, file := range files {
		if i == maxUndoneFiles {
			c.show.Note("", render.Yellow, "  and %d more files", len(files)-i)
			break
		}
		c.show.Note("", render.Yellow, "  %s", display.OneLine(file, 200))
	}
}

// maxUndoneFiles is how many files /undo names.
const maxUndoneFiles = 20

type turnPrompt struct {
	message, text string // by OpenCode's id
}

func (c *conversation) slashRedo(ctx context.Context, answer string) error {
	if c.undone == "" {
		return errors.New("nothing was undone since the last message")
	}
	if _, done, err := c.revert(ctx, "/redo", "", answer); err != nil || !done {
		return err
	}
	c.undone = ""
	c.show.Note("", render.Yellow, "The undone turns are back.")
	return nil
}

// slashOmit leaves out the files that the provider refused. The event names them.
func (c *conversation) slashOmit(ctx context.Context, _ string) error {
	return c.Omit(ctx, c.Chat)
}

// revert reverts a message and all that follows, and returns the files that are as before. An empty message undoes the
// last revert. Without an answer, it names the files that were changed later, and does nothing if there are any.
func (c *conversation) revert(ctx context.Context, command, message, answer string) (files []string, done bool,
	err error) {
	if answer != "" && answer != chat.KeepChanged && answer != chat.OverwriteChanged {
		return nil, false, fmt.Errorf("want %s, %s keep or %s overwrite", command, command, command)
	}
	files, later, err := c.Revert(ctx, c.Chat, message, answer)
	if err != nil || len(later) == 0 {
		return files, err == nil, err
	}
	c.show.Note("", render.Yellow, "These files were changed later, or cannot be compared:")
	c.listFiles(later)
	c.show.Note("", render.Yellow, "Nothing was done. %s keep leaves them as they are, %s overwrite does not.",
		command, command)
	return nil, false, nil
}

// turnBefore finds the last turn before another one, which is given by its message. An empty message means the newest
// turn.
func (c *conversation) turnBefore(ctx context.Context, before string) (turnPrompt, error) {
	// A prompt that resumes a turn belongs to it.
	filter := fmt.Sprintf(`chat = %q && delivery != "" && ai_engine_message_id != "" && `+
		`(role != "system" || reports:length > 0)`, c.Chat)
	if before != "" {
		filter += fmt.Sprintf(" && ai_engine_message_id < %q", before) // a later one is higher
	}
	all, err := client.List[struct {
		Engine string `json:"ai_engine_message_id"`
		Parts  []struct {
			events.Part
			Synthetic bool // OpenCode has added it
		}
	}](ctx, c.System, "messages", client.Select{Filter: filter, Sort: "-ai_engine_message_id", Limit: 1})
	if err != nil {
		return turnPrompt{}, err
	}
	if len(all) == 0 {
		return turnPrompt{}, errors.New("there is no turn to undo")
	}
	var shown events.MessageSubmitted
	for _, part := range all[0].Parts {
		if !part.Synthetic {
			shown.Parts = append(shown.Parts, part.Part)
		}
	}
	return turnPrompt{all[0].Engine, render.MessageText(shown)}, nil
}
