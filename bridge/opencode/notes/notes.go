// Package notes keeps the notes of agents in a project as files of its directory: .agent-notes/AGENT/NAME.md. The agent
// reads and writes them with its ordinary tools.
//
// Promises:
//   - A project has only files of its own notes.
//   - A file that was changed becomes a new version of the note, at the latest when the next turn of any chat ends. A
//     note that was changed or restored becomes a file.
//   - If both have changed, the file becomes the current version, and the stored text the previous one.
//   - A file that is missing is written again. Only a person deletes a note.
//   - A file that cannot be a note stays as it is, and is reported in the log, once for each content.
//   - A symbolic link in the workspace does not lead outside it.
//
// It must not know who may write a note: a rule or a person decides about the agent's writes.
package notes

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"unicode/utf8"

	"pocketcoder/events"
	"pocketcoder/events/atomicfile"
	"pocketcoder/events/log"
	"pocketcoder/handlers"
	"pocketcoder/handlers/agent"
	"pocketcoder/handlers/chat"
	"pocketcoder/handlers/record"
	"pocketcoder/sandbox/realdir"
)

const (
	folder    = ".agent-notes"
	extension = ".md"
)

// Folder returns the folder with the notes of an agent, named by its record.
func Folder(workspace, agent string) string { return filepath.Join(workspace, folder, agent) }

// Notes keeps the files. All fields must be set.
type Notes struct {
	Log       *log.Log
	Records   *record.Records
	Workspace string
	Engine    string // of the workspace
	Project   string // whose notes these are
	State     string // file with the SHA-256 of each file as it was read or written last
	Logger    *slog.Logger

	reported map[string]string // files that cannot be notes, with their reasons
}

// Consumer is the name of the durable consumer, of the first engine.
const Consumer = "notes"

// Run keeps the files until ctx ends.
func (n *Notes) Run(ctx context.Context) error {
	filters := []string{events.ConfigSubject(agent.NotesCollection, "*", "*"),
		events.ChatOpenCodeSubject("*", "session.idle")}
	failed := func(e events.Event, err error) { n.Logger.Error("keep the notes of agents", "seq", e.Seq, "err", err) }
	synced, err := n.Log.Last(ctx)
	if err == nil {
		err = n.Sync(ctx)
	}
	if err != nil {
		failed(events.Event{}, err)
		synced = 0
	}
	ctx = log.ConsumeAfter(ctx, func(context.Context) (uint64, error) { return synced, nil })
	sync := func(ctx context.Context, _ events.Event) error { return n.Sync(ctx) }
	return n.Log.ConsumeAll(ctx, chat.EngineConsumer(Consumer, n.Engine), filters, sync, failed)
}

// Sync makes versions of the files that were changed, and then writes the notes that differ from their files.
func (n *Notes) Sync(ctx context.Context) error {
	root, err := os.OpenRoot(n.Workspace)
	if err != nil {
		return err
	}
	defer root.Close()
	known, err := n.load()
	if err != nil {
		return err
	}
	agents, err := agent.Names(ctx, n.Records)
	if err != nil {
		return err
	}
	before := maps.Clone(known)
	for _, agent := range slices.Sorted(maps.Keys(agents)) {
		if err = n.syncAgent(ctx, root, agent, known); err != nil {
			err = fmt.Errorf("keep the notes in %s/%s: %w", folder, agent, err)
			break
		}
	}
	if !maps.Equal(before, known) {
		err = errors.Join(err, n.store(known))
	}
	return err
}

// syncAgent is Sync for one agent. known are the hashes of all files, by their paths below folder.
func (n *Notes) syncAgent(ctx context.Context, root *os.Root, agent string, known map[string]string) error {
	notes, err := n.stored(ctx, agent)
	if err != nil {
		return err
	}
	dir, err := openFolder(root, agent, len(notes) > 0)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		n.report(agent, err)
		return nil
	}
	defer dir.Close()
	keep := map[string]bool{} // files that cannot be notes
	for _, file := range filesIn(dir, notes) {
		err := n.read(ctx, dir, agent, file, notes, known)
		if refused := (handlers.Refused{}); errors.As(err, &refused) || errors.Is(err, errNoNote) {
			keep[file] = true
			n.report(agent+"/"+file, err)
		} else if err != nil {
			return err
		}
	}
	return n.write(ctx, dir, agent, known, keep)
}

// stored returns the notes of an agent in the project by the names of their files.
func (n *Notes) stored(ctx context.Context, of string) (map[string]agent.Note, error) {
	all, err := record.All[agent.Note](ctx, n.Records, agent.NotesCollection)
	notes := map[string]agent.Note{}
	for _, r := range all {
		if r.Value.Agent == of && r.Value.ProjectID() == n.Project {
			notes[r.Value.Name+extension] = r.Value
		}
	}
	return notes, err
}

// read makes a version of a file that was changed.
func (n *Notes) read(ctx context.Context, dir *os.Root, of, file string, notes map[string]agent.Note,
	known map[string]string) error {
	content, hash, err := readFile(dir, file)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	now, exists := notes[file]
	if hash != known[of+"/"+file] && (!exists || content != now.Content) {
		changed := agent.Note{Agent: of, Project: n.Project, Name: strings.TrimSuffix(file, extension), Content: content}
		_, _, err = n.Records.Save(ctx, record.Save{Command: handlers.Command{Actor: events.ActorSystem},
			Collection: agent.NotesCollection, Record: changed.ID(), New: !exists,
			Set: changed.Fields()})
		if err != nil {
			return err
		}
	}
	known[of+"/"+file] = hash
	return nil
}

// write writes the notes that differ from their files, and removes the files of deleted notes. A file that has changed
// since it was read stays for the next time.
func (n *Notes) write(ctx context.Context, dir *os.Root, agent string, known map[string]string,
	keep map[string]bool) error {
	notes, err := n.stored(ctx, agent)
	if err != nil {
		return err
	}
	for _, file := range slices.Sorted(maps.Keys(notes)) {
		_, hash, err := readFile(dir, file)
		want := hashOf([]byte(notes[file].Content))
		changed := !errors.Is(err, fs.ErrNotExist) && (err != nil || hash != known[agent+"/"+file]) // since it was read
		if keep[file] || hash == want || changed {
			continue
		}
		if err := writeFile(dir, file, notes[file].Content); err != nil {
			return err
		}
		known[agent+"/"+file] = want
	}
	for _, path := range slices.Sorted(maps.Keys(known)) {
		file, own := strings.CutPrefix(path, agent+"/")
		if _, exists := notes[file]; exists || !own || keep[file] {
			continue
		}
		if err := dir.Remove(file); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
		delete(known, path)
	}
	return nil
}

// report says once that a file is no note.
func (n *Notes) report(path string, err error) {
	if n.reported == nil {
		n.reported = map[string]string{}
	}
	if n.reported[path] != err.Error() {
		n.reported[path] = err.Error()
		n.Logger.Warn("a file in the notes of an agent is not stored", "file", folder+"/"+path, "reason", err)
	}
}

// openFolder opens the folder of an agent, or makes it. A git repository around it ignores the folder of all notes.
func openFolder(workspace *os.Root, agent string, create bool) (*os.Root, error) {
	if create {
		if err := workspace.MkdirAll(folder+"/"+agent, 0o755); err != nil {
			return nil, err
		}
	}
	all, err := realdir.Open(workspace, folder)
	if err != nil {
		return nil, err
	}
	defer all.Close()
	if create {
		if err := writeNew(all, ".gitignore", "*\n"); err != nil && !errors.Is(err, fs.ErrExist) {
			return nil, err
		}
	}
	return realdir.Open(all, agent)
}

// maxFiles bounds the files of a folder that are looked at besides those of notes: more than an agent may have.
const maxFiles = 4 * agent.MaxNotes

// filesIn returns the names of the Markdown files in a folder. Other files cannot hide those of notes.
func filesIn(dir *os.Root, notes map[string]agent.Note) []string {
	all := slices.Collect(maps.Keys(notes))
	if d, err := dir.Open("."); err == nil {
		defer d.Close()
		names, _ := d.Readdirnames(maxFiles)
		all = append(all, slices.DeleteFunc(names, func(name string) bool {
			return !strings.HasSuffix(name, extension) || strings.HasPrefix(name, partPrefix)
		})...)
	}
	slices.Sort(all)
	return slices.Compact(all)
}

// errNoNote says why a file is no note.
var errNoNote = errors.New("it is not a regular file of UTF-8 text, or it is too large")

// readFile reads a file that is no symbolic link. A FIFO does not block it.
func readFile(dir *os.Root, file string) (content, hash string, err error) {
	named, err := dir.Lstat(file)
	if err != nil {
		return "", "", err
	}
	if !named.Mode().IsRegular() {
		return "", "", errNoNote
	}
	f, err := dir.OpenFile(file, os.O_RDONLY|syscall.O_NONBLOCK, 0)
	if err != nil {
		return "", "", fmt.Errorf("%w: %w", errNoNote, err)
	}
	defer f.Close()
	opened, err := f.Stat()
	if err != nil || !os.SameFile(named, opened) {
		return "", "", errNoNote
	}
	text, err := io.ReadAll(io.LimitReader(f, agent.MaxNoteContent+1))
	if err != nil || len(text) > agent.MaxNoteContent || !utf8.Valid(text) {
		return "", "", errNoNote
	}
	return string(text), hashOf(text), nil
}

// partPrefix begins the name of a file that is being written.
const partPrefix = ".new-"

func writeFile(dir *os.Root, file, content string) error {
	if err := dir.RemoveAll(partPrefix + file); err != nil {
		return err
	}
	if err := writeNew(dir, partPrefix+file, content); err != nil {
		return err
	}
	return dir.Rename(partPrefix+file, file)
}

func writeNew(dir *os.Root, file, content string) error {
	f, err := dir.OpenFile(file, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o644)
	if err != nil {
		return err
	}
	_, err = f.WriteString(content)
	return errors.Join(err, f.Close())
}

func hashOf(text []byte) string {
	sum := sha256.Sum256(text)
	return hex.EncodeToString(sum[:])
}

func (n *Notes) load() (map[string]string, error) {
	known := map[string]string{}
	text, err := os.ReadFile(n.State)
	if errors.Is(err, fs.ErrNotExist) {
		return known, nil
	}
	if err == nil {
		err = json.Unmarshal(text, &known)
	}
	return known, err
}

func (n *Notes) store(known map[string]string) error {
	text, err := json.Marshal(known)
	if err == nil {
		err = os.MkdirAll(filepath.Dir(n.State), 0o700) // OpenCode may not have been started yet
	}
	if err != nil {
		return err
	}
	return atomicfile.Write(n.State, text)
}
