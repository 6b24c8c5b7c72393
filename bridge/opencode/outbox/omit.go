package outbox

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"

	"pocketcoder/bridge/opencode/client"
	"pocketcoder/events"
	"pocketcoder/events/opencode"
	"pocketcoder/projections"
)

// omit leaves files of a chat out of what the model gets. A sentence takes the place of each. A file that is not there
// any more needs no action.
func (o *Outbox) omit(ctx context.Context, f projections.Effect) error {
	var files []events.OmittedFile
	if err := json.Unmarshal([]byte(f.Files), &files); err != nil {
		return fmt.Errorf("read the files of omission %s: %w", f.ID, err)
	}
	chat, _, err := o.Model.Chat(ctx, f.Chat)
	if err != nil || chat.Session == "" {
		return err
	}
	for _, file := range files {
		if err := o.omitFile(ctx, chat.Session, file); err != nil && !errors.Is(err, client.ErrGone) {
			return err
		}
	}
	return nil
}

func (o *Outbox) omitFile(ctx context.Context, session string, file events.OmittedFile) error {
	m, err := o.Ingest.Current().Message(ctx, session, file.Message)
	if err != nil {
		return err
	}
	for _, raw := range m.Parts {
		var part opencode.Part
		if json.Unmarshal(raw, &part) != nil || part.ID != file.Part || len(part.Files()) == 0 {
			continue
		}
		replacement, err := without(part, file.Name)
		if err != nil {
			return err
		}
		return o.Ingest.Current().ReplacePart(ctx, session, file.Message, file.Part, replacement)
	}
	return nil
}

// without returns what replaces a part so that it has no files. The part keeps its id, and so its place in the message.
func without(part opencode.Part, name string) (replacement map[string]any, err error) {
	if err := json.Unmarshal([]byte(part.Raw), &replacement); err != nil {
		return nil, err
	}
	sentence := "[" + strings.Join(strings.Fields(name), " ") + opencode.LeftOut + "]"
	if part.Type != "tool" {
		return map[string]any{"id": part.ID, "messageID": part.MessageID, "sessionID": replacement["sessionID"],
			"type": "text", "text": sentence, "metadata": map[string]any{opencode.MarkLeftOut: name}}, nil
	}
	state, _ := replacement["state"].(map[string]any) // Files found it
	delete(state, "attachments")
	output, _ := state["output"].(string)
	state["output"] = strings.TrimLeft(output+"\n"+sentence, "\n")
	metadata, _ := state["metadata"].(map[string]any)
	if metadata == nil {
		metadata = map[string]any{}
	}
	metadata[opencode.MarkLeftOut] = name
	state["metadata"] = metadata
	return replacement, nil
}
