package mcp

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net/http"
	"os"
	"path/filepath"
	"strings"

	"pocketcoder/events"
	"pocketcoder/handlers"
	"pocketcoder/handlers/chat"
	"pocketcoder/handlers/permission/workspace"
	"pocketcoder/handlers/policy"
	"pocketcoder/sandbox/realdir"
)

type fileArguments struct {
	signed
	Path    string `json:"path" jsonschema:"path of the file: absolute, or relative to the working directory"`
	Caption string `json:"caption,omitempty" jsonschema:"a sentence about the file for the person, at most 1000 bytes"`
}

// sendFile sends a file to the person. The content is stored, so that it stays what it is now. The rules for read
// decide, and a file that a person would be asked about is not sent.
func (s *Server) sendFile(ctx context.Context, c call, in fileArguments) (string, error) {
	at, err := s.runningAt(ctx, c)
	if err != nil {
		return "", err
	}
	made, _, err := s.Model.ToolCall(ctx, c.Session, at.Message, c.Call)
	if err != nil {
		return "", err
	}
	path := filepath.Clean(in.Path)
	if !filepath.IsAbs(path) {
		path = filepath.Join(made.Directory, path)
	}
	name, err := nameIn(made.Directory, path)
	if err != nil {
		return "", err
	}
	v, err := s.JudgeRead(ctx, c.chat, c.Session, events.Call{MessageID: at.Message, CallID: c.Call}, path)
	switch {
	case err != nil:
		return "", err
	case v.Action != policy.Allow:
		return "", handlers.Refuse(handlers.Conflict, "You may not send this file: %s.", strings.TrimSuffix(v.Reason, "."))
	}
	content, err := readFile(made.Directory, name)
	if err != nil {
		return "", err
	}
	if !bytes.Equal(s.Chats.Log.Redactor().Bytes(content), content) { // a redacted file would be a broken one
		return "", handlers.Refuse(handlers.Conflict, "The file contains a secret of PocketCoder, so it is not sent.")
	}
	_, err = s.Chats.SendFile(ctx, chat.SendFile{Command: s.command(), Chat: c.chat, Bytes: content,
		FileSent: events.FileSent{File: events.NewID(), Session: c.Session, MessageID: at.Message, Part: at.Part,
			Path: filepath.ToSlash(name), Caption: strings.TrimSpace(in.Caption), Mime: http.DetectContentType(content)}})
	if err != nil {
		return "", err
	}
	return fmt.Sprintf("The file of %d bytes was sent. The person sees it in the chat, and in the messenger if they write from one.",
		len(content)), nil
}

// nameIn returns the name of a file within a directory, symlinks resolved. It refuses a path that leads out.
func nameIn(directory, path string) (string, error) {
	root, known := workspace.RealPath(directory)
	real, found := workspace.RealPath(path)
	name, err := filepath.Rel(root, real)
	if !known || !found || err != nil || !filepath.IsLocal(name) {
		return "", handlers.RefuseField(handlers.Invalid, "path", "Only files in %s can be sent.", directory)
	}
	return name, nil
}

// readFile returns the content of a file in a directory. It follows no symlink out of the directory, also if one
// has just been created.
func readFile(directory, name string) ([]byte, error) {
	refuse := func(format string, args ...any) error {
		return handlers.RefuseField(handlers.Invalid, "path", format, args...)
	}
	root, err := os.OpenRoot(directory)
	if err != nil {
		return nil, err
	}
	defer root.Close()
	f, _, err := realdir.OpenFile(root, name)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return nil, refuse("There is no file %.200q.", name)
	case errors.Is(err, realdir.ErrNotRegular):
		return nil, refuse("%.200q is not a regular file.", name)
	case err != nil:
		return nil, refuse("The file %.200q cannot be opened.", name)
	}
	defer f.Close()
	content, err := io.ReadAll(io.LimitReader(f, chat.MaxSentFile+1))
	switch {
	case err != nil:
		return nil, refuse("The file %.200q cannot be read.", name)
	case len(content) == 0:
		return nil, refuse("The file %.200q is empty.", name)
	case len(content) > chat.MaxSentFile:
		return nil, refuse("The file %.200q is larger than %d MiB, which is the limit.", name, chat.MaxSentFile>>20)
	}
	return content, nil
}
