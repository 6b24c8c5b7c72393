package backup

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"time"

	"pocketcoder/events/archive"
	"pocketcoder/events/atomicfile"
	"pocketcoder/events/log"
	"pocketcoder/events/log/blob"
)

// manifestName is the file that describes a backup. A file that it does not name is not part of the backup.
const manifestName = "backup.json"

const formatVersion = 1

const secretsStream = "KV_SECRETS"

// streams are read in this order, because an event that names a blob is stored after the blob.
var streams = []string{log.EventsStream, blob.Stream}

type manifest struct {
	Format   int                      `json:"format"`
	Complete *point                   `json:"complete,omitempty"` // nil until the first run has ended
	Streams  map[string]*streamBackup `json:"streams"`
}

// point is a state of the system that the backup holds completely.
type point struct {
	Time    time.Time         `json:"time"`
	Program string            `json:"program"`           // version of pocketcoder
	Last    map[string]uint64 `json:"last"`              // sequence, by stream
	Secrets *secretsFile      `json:"secrets,omitempty"` // nil if they were left out
}

// streamBackup is what the backup holds of a stream.
type streamBackup struct {
	Config  json.RawMessage `json:"config"`
	Created time.Time       `json:"created,omitzero"` // zero in a backup of an older version
	First   uint64          `json:"first"`            // sequence of the first message that the stream held
	Parts   []part          `json:"parts"`            // in order
}

// part is a file with messages of a stream.
type part struct {
	File     string `json:"file"`
	From     uint64 `json:"from"` // sequence
	To       uint64 `json:"to"`
	Messages uint64 `json:"messages"`
	Bytes    uint64 `json:"bytes"`  // of the messages
	SHA256   string `json:"sha256"` // of the messages (archive.Digest)
	Last     string `json:"last"`   // SHA-256 of the last message
}

// secretsFile is the encrypted file of secrets and keys.
type secretsFile struct {
	File   string `json:"file"`
	SHA256 string `json:"sha256"` // of the file
}

// last returns the sequence up to which the backup holds a stream.
func (c *streamBackup) last() uint64 {
	if len(c.Parts) == 0 {
		return c.First - 1
	}
	return c.Parts[len(c.Parts)-1].To
}

// upTo returns the state of the stream at a sequence, and the parts that make it.
func (c *streamBackup) upTo(last uint64) (archive.State, []part) {
	state := archive.State{First: c.First, Last: last}
	for i, p := range c.Parts {
		if p.From > last {
			return state, c.Parts[:i]
		}
		state.Messages += p.Messages
		state.Bytes += p.Bytes
	}
	return state, c.Parts
}

// newManifest describes a backup that holds no message yet.
func newManifest() *manifest {
	m := &manifest{Format: formatVersion, Streams: map[string]*streamBackup{}}
	for _, name := range streams {
		m.Streams[name] = &streamBackup{First: 1}
	}
	return m
}

var errNoBackup = errors.New("it holds no backup")

func readManifest(dir string) (*manifest, error) {
	body, err := readFile(filepath.Join(dir, manifestName))
	if errors.Is(err, fs.ErrNotExist) {
		return nil, errNoBackup
	}
	if err != nil {
		return nil, err
	}
	var m manifest
	if err := json.Unmarshal(body, &m); err != nil {
		return nil, fmt.Errorf("read %s: %w", manifestName, err)
	}
	if m.Format != formatVersion {
		return nil, fmt.Errorf("it has format %d, and this pocketcoder reads format %d; use the pocketcoder that wrote it",
			m.Format, formatVersion)
	}
	for _, name := range streams {
		if m.Streams[name] == nil {
			return nil, fmt.Errorf("%s does not name stream %s", manifestName, name)
		}
		for _, p := range m.Streams[name].Parts {
			if p.File != filepath.Base(p.File) {
				return nil, fmt.Errorf("%s names %q, which is outside the backup", manifestName, p.File)
			}
		}
	}
	if m.Complete != nil && m.Complete.Secrets != nil &&
		m.Complete.Secrets.File != filepath.Base(m.Complete.Secrets.File) {
		return nil, fmt.Errorf("%s names %q, which is outside the backup", manifestName, m.Complete.Secrets.File)
	}
	return &m, nil
}

func (m *manifest) write(dir string) error {
	body, err := json.MarshalIndent(m, "", "  ")
	if err != nil {
		return err
	}
	return atomicfile.Write(filepath.Join(dir, manifestName), append(body, '\n'))
}
