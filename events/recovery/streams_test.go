package recovery_test

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"testing"

	"github.com/matryer/is"
	"github.com/nats-io/nats.go/jetstream"

	"pocketcoder/ops/expect"
)

// random returns bytes that cannot be compressed.
func random(seed uint64, size int) []byte {
	text := make([]byte, size)
	r := rand.NewChaCha8([32]byte{byte(seed), byte(seed >> 8)})
	r.Read(text)
	return text
}

// other returns a path in the directory of another stream than EVENTS.
func (s *system) other(stream string, path ...string) string {
	return filepath.Join(append([]string{filepath.Dir(s.stream()), stream}, path...)...)
}

// NATS opens a stream whose block file was deleted without an error.
func TestADeletedBlockOfSecretsOrBlobsIsALoss(t *testing.T) {
	t.Parallel()
	fault := expect.CountFault(t, "reported")
	for name, c := range map[string]struct {
		stream string
		remove []string
		reason string // "" if nothing is lost
	}{
		"nothing":                             {"KV_SECRETS", nil, ""},
		"the index":                           {"KV_SECRETS", []string{"index.db"}, ""},
		"the only block":                      {"KV_SECRETS", []string{"1.blk"}, "the files end at #0, and had reached #3;"},
		"the only block, and the index":       {"KV_SECRETS", []string{"1.blk", "index.db"}, "the files end at #0, and had reached #3;"},
		"the middle block":                    {"OBJ_BLOBS", []string{"3.blk"}, "the file 3.blk is missing;"},
		"the last block":                      {"OBJ_BLOBS", []string{"4.blk"}, "the files end at #"},
		"no block, but an object was deleted": {"OBJ_BLOBS", nil, ""},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			is := is.New(t)
			s := &system{TB: t, data: expect.MemoryDir(t)}
			s.start(0)
			fillStream(s, c.stream)
			s.stop()
			s.check(0)
			is.Equal(s.guard.Trouble(), "")

			for _, file := range c.remove {
				is.NoErr(os.Remove(s.other(c.stream, "msgs", file)))
			}
			s.start(0)
			if c.reason == "" {
				is.Equal(s.guard.Trouble(), "")
				return
			}
			is.Equal(len(s.guard.Losses()), 1)
			expect.Contains(t, s.guard.Trouble(), "messages of the stream "+c.stream+" may be lost; "+c.reason)
			stream, err := s.js.Stream(t.Context(), c.stream)
			is.NoErr(err)
			before := stream.CachedInfo().State.LastSeq
			s.stop()
			s.start(0)
			is.Equal(len(s.guard.Losses()), 1) // reported once
			stream, err = s.js.Stream(t.Context(), c.stream)
			is.NoErr(err)
			is.Equal(stream.CachedInfo().State.LastSeq, before)
			if c.stream == "KV_SECRETS" {
				is.Equal(before, uint64(3)) // no revision is used again
			}
			fault.Tried()
			fault.Saw(len(s.guard.Losses()))
		})
	}
}

// fillStream stores three keys in KV_SECRETS, in one block, or three blobs in OBJ_BLOBS. It deletes the first blob, so
// the file of the first block is gone and three files are left.
func fillStream(s *system, stream string) {
	s.Helper()
	is := is.New(s)
	if stream == "KV_SECRETS" {
		kv, err := s.js.CreateKeyValue(s.Context(), jetstream.KeyValueConfig{Bucket: "SECRETS"})
		is.NoErr(err)
		for i := range 3 {
			_, err := kv.PutString(s.Context(), fmt.Sprint("key", i), "value")
			is.NoErr(err)
		}
		return
	}
	blobs, err := s.js.CreateObjectStore(s.Context(), jetstream.ObjectStoreConfig{Bucket: "BLOBS"})
	is.NoErr(err)
	for i := range 3 {
		_, err := blobs.PutBytes(s.Context(), fmt.Sprint("blob", i), random(uint64(i), 9<<20))
		is.NoErr(err)
	}
	is.NoErr(blobs.Delete(s.Context(), "blob0"))
	files, err := filepath.Glob(s.other(stream, "msgs", "*.blk"))
	is.NoErr(err)
	is.Equal(len(files), 3)
	_, err = os.Stat(s.other(stream, "msgs", "1.blk"))
	is.True(os.IsNotExist(err))
}

// A block says in its first bytes that it is compressed. It may hold events that S2 did not compress.
func TestABlockWithoutItsFirstBytesIsStillDecompressed(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	s := &system{TB: t, data: expect.MemoryDir(t)}
	s.start(0)
	const events = 1200
	for seq := 1; seq <= events; seq++ {
		body := contents()[seq]
		if seq < 400 {
			body = random(uint64(seq), 8000)
		}
		_, err := s.js.PublishAsync("evt.chat.c1.x", body)
		is.NoErr(err)
	}
	<-s.js.PublishAsyncComplete()
	s.stop()
	text, err := os.ReadFile(s.block(1))
	is.NoErr(err)
	is.True(bytes.HasPrefix(text, []byte("cmp\x01")))
	for i := range 4 {
		text[i] ^= 0x5a
	}
	is.NoErr(os.WriteFile(s.block(1), text, 0o600))
	s.start(0)
	is.Equal(s.lost(), nil)
	expect.Contains(t, s.guard.Trouble(), "no event is lost; the file 1.blk is damaged")
	stream, err := s.js.Stream(t.Context(), "EVENTS")
	is.NoErr(err)
	is.Equal(stream.CachedInfo().State.Msgs, uint64(events))
}
