package natsconf

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nkeys"

	"pocketcoder/events/atomicfile"
)

// Keys are the identities' nkey seeds: one file <identity>.nk each, mode 0600, in a directory of mode 0700. A process
// gets the one file it needs.
type Keys struct {
	Dir    string
	Public map[Identity]string
}

// LoadKeys reads the keys in dir and creates those that are missing. A file that others can read is refused.
func LoadKeys(dir string) (Keys, error) {
	k := Keys{Dir: dir, Public: map[Identity]string{}}
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return Keys{}, fmt.Errorf("load NATS keys: %w", err)
	}
	for _, id := range Identities {
		public, err := loadKey(k.SeedFile(id))
		if err != nil {
			return Keys{}, fmt.Errorf("load NATS key of %s: %w", id, err)
		}
		k.Public[id] = public
	}
	return k, nil
}

func (k Keys) SeedFile(id Identity) string { return filepath.Join(k.Dir, string(id)+".nk") }

// connectTime limits an attempt to connect. The configuration limits the server's part of it in the same way. If
// nothing listens at the address, the attempt fails at once.
const connectTime = 10 * time.Second

// Options returns the options to connect as an identity with its key of k.
func (k Keys) Options(id Identity, name string) ([]nats.Option, error) {
	return Options(k.SeedFile(id), id, name)
}

// Options returns the options to connect as an identity: the key in seedFile, its inbox prefix, and the name that the
// server shows for the connection. The connection reconnects without limit. It notices within 10 to 15 s that the
// server's machine has died.
func Options(seedFile string, id Identity, name string) ([]nats.Option, error) {
	key, err := nats.NkeyOptionFromSeed(seedFile)
	if err != nil {
		return nil, fmt.Errorf("load NATS key of %s: %w", id, err)
	}
	return []nats.Option{
		key,
		nats.CustomInboxPrefix(InboxPrefix(id)),
		nats.Name(name),
		nats.Timeout(connectTime),
		nats.MaxReconnects(-1),
		nats.ReconnectWait(250 * time.Millisecond),
		nats.PingInterval(5 * time.Second),
		nats.MaxPingsOutstanding(2),
	}, nil
}

// loadKey returns the public key of the seed in the file, which it creates when there is none.
func loadKey(file string) (string, error) {
	info, err := os.Lstat(file)
	if errors.Is(err, fs.ErrNotExist) {
		return createKey(file)
	}
	if err != nil {
		return "", err
	}
	if !info.Mode().IsRegular() || info.Mode().Perm()&0o077 != 0 {
		return "", fmt.Errorf("%s must be a plain file that only its owner can read (mode 0600), it is %s", file, info.Mode())
	}
	seed, err := os.ReadFile(file)
	if err != nil {
		return "", err
	}
	key, err := nkeys.ParseDecoratedNKey(seed)
	if err != nil {
		return "", fmt.Errorf("%s: %w", file, err)
	}
	return key.PublicKey()
}

// createKey writes a new seed to a file.
func createKey(file string) (string, error) {
	key, err := nkeys.CreateUser()
	if err != nil {
		return "", err
	}
	seed, err := key.Seed()
	if err != nil {
		return "", err
	}
	if err := atomicfile.Write(file, append(seed, '\n')); err != nil {
		return "", err
	}
	return key.PublicKey()
}
