package backup

import (
	"bufio"
	"bytes"
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"path/filepath"
	"slices"

	"filippo.io/age"

	"pocketcoder/events/archive"
	"pocketcoder/events/atomicfile"
)

// secrets is the content of the encrypted file: one line of JSON, then the messages of the bucket.
type secrets struct {
	Bucket archive.Info      `json:"bucket"`
	Keys   map[string][]byte `json:"keys"` // the files of the data directory's keys/
	values []archive.Entry
}

// errPassphrase means that the passphrase does not open the secrets of a backup.
var errPassphrase = errors.New("the passphrase does not open the secrets of this backup")

// checkPassphrase returns an error if the backup holds secrets that the passphrase does not open.
func (m *manifest) checkPassphrase(o Options) error {
	if m.Complete == nil || m.Complete.Secrets == nil {
		return nil
	}
	if o.Passphrase == "" {
		return errors.New("this backup holds secrets and keys, and without its passphrase they would be older than the events; name the passphrase, or another directory")
	}
	_, err := readSecrets(o.To, *m.Complete.Secrets, o.Passphrase)
	return err
}

// HasSecrets reports whether the backup in a directory, if there is one, holds secrets and keys.
func HasSecrets(dir string) bool {
	m, err := readManifest(dir)
	return err == nil && m.Complete != nil && m.Complete.Secrets != nil
}

// writeSecrets writes the encrypted file, and reads it again.
func writeSecrets(ctx context.Context, o Options, bucket archive.Stream) (*secretsFile, error) {
	o.Progress("secrets", 0, 1)
	all := secrets{Keys: map[string][]byte{}}
	if err := all.readKeys(o.Data.Path("keys")); err != nil {
		return nil, err
	}
	if err := all.readBucket(ctx, bucket); err != nil {
		return nil, err
	}
	var file bytes.Buffer
	if err := all.encrypt(&file, o.Passphrase); err != nil {
		return nil, fmt.Errorf("encrypt secrets: %w", err)
	}
	sum := sha256.Sum256(file.Bytes())
	hash := hex.EncodeToString(sum[:])
	s := &secretsFile{File: "secrets-" + hash[:12] + ".age", SHA256: hash}
	if err := atomicfile.Write(filepath.Join(o.To, s.File), file.Bytes()); err != nil {
		return nil, err
	}
	if _, err := readSecrets(o.To, *s, o.Passphrase); err != nil {
		return nil, fmt.Errorf("read back what was written: %w", err)
	}
	o.Progress("secrets", 1, 1)
	return s, nil
}

func (s *secrets) readKeys(dir string) error {
	files, err := os.ReadDir(dir)
	if err != nil {
		return err
	}
	for _, f := range files {
		if f.Type().IsRegular() {
			if s.Keys[f.Name()], err = os.ReadFile(filepath.Join(dir, f.Name())); err != nil {
				return err
			}
		}
	}
	return nil
}

// readBucket reads the newest value of each key. A value that is replaced meanwhile moves to the end of the stream, so
// readBucket reads until there are no new messages.
func (s *secrets) readBucket(ctx context.Context, bucket archive.Stream) (err error) {
	newest := map[string]archive.Entry{}
	for read := uint64(0); ; read = s.Bucket.State.Last {
		if s.Bucket, err = bucket.Info(ctx); errors.Is(err, archive.ErrNoStream) {
			return errors.New("the server has no bucket of secrets: no system has run on it yet")
		}
		if err != nil {
			return err
		}
		if s.Bucket.State.Last == read {
			break
		}
		err := bucket.Read(ctx, max(read+1, s.Bucket.State.First), s.Bucket.State.Last, func(e archive.Entry) error {
			if newest[e.Subject] = e; isDeletion(e) {
				delete(newest, e.Subject)
			}
			return nil
		})
		if err != nil {
			return err
		}
	}
	s.values = slices.SortedFunc(maps.Values(newest), func(a, b archive.Entry) int { return cmp.Compare(a.Seq, b.Seq) })
	s.Bucket.State.Messages = uint64(len(s.values))
	return nil
}

// isDeletion reports whether a message of the bucket marks its key as deleted. The backup leaves such a mark out,
// because the server removes it when it expires.
func isDeletion(e archive.Entry) bool {
	return bytes.Contains(e.Header, []byte("\r\nKV-Operation:")) ||
		bytes.Contains(e.Header, []byte("\r\nNats-Marker-Reason:"))
}

// workFactor is the scrypt work factor, the default of age: one attempt at a passphrase takes about a second. Tests
// lower it.
var workFactor = 18

func (s *secrets) encrypt(w io.Writer, passphrase string) error {
	recipient, err := age.NewScryptRecipient(passphrase)
	if err != nil {
		return err
	}
	recipient.SetWorkFactor(workFactor)
	plain, err := age.Encrypt(w, recipient)
	if err != nil {
		return err
	}
	if err := json.NewEncoder(plain).Encode(s); err != nil {
		return err
	}
	entries := archive.NewWriter(plain)
	for _, e := range s.values {
		if err := entries.Add(e); err != nil {
			return err
		}
	}
	return errors.Join(entries.Close(), plain.Close())
}

func readSecrets(dir string, s secretsFile, passphrase string) (*secrets, error) {
	file, err := readFile(filepath.Join(dir, s.File))
	if err != nil {
		return nil, err
	}
	if sum := sha256.Sum256(file); hex.EncodeToString(sum[:]) != s.SHA256 {
		return nil, fmt.Errorf("%s: %w", s.File, archive.ErrDamaged)
	}
	identity, err := age.NewScryptIdentity(passphrase)
	if err != nil {
		return nil, err
	}
	plain, err := age.Decrypt(bytes.NewReader(file), identity)
	if errors.As(err, new(*age.NoIdentityMatchError)) {
		return nil, errPassphrase
	}
	if err != nil {
		return nil, fmt.Errorf("decrypt %s: %w", s.File, err)
	}
	var all secrets
	r := bufio.NewReader(plain)
	line, err := r.ReadBytes('\n')
	if err == nil {
		err = json.Unmarshal(line, &all)
	}
	if err == nil {
		err = archive.ReadFile(r, func(e archive.Entry) error {
			all.values = append(all.values, e)
			return nil
		})
	}
	if err != nil {
		return nil, fmt.Errorf("read %s: %w", s.File, err)
	}
	return &all, nil
}
