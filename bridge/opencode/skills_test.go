package opencode

import (
	"bytes"
	"errors"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/matryer/is"

	"pocketcoder/ops/expect"
)

// A changed skill that cannot be proposed must not stop OpenCode, and must not be lost.
func TestAChangedSkillIsNoticedAndNeverStopsTheStart(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	var log bytes.Buffer
	s := &Supervisor{Dir: t.TempDir(), Logger: slog.New(slog.NewTextHandler(&log, nil))}
	noticed := map[string]string{}
	s.SkillChanged = func(name, text string) error {
		if strings.HasPrefix(name, "refused") {
			return errors.New("its front matter has no end")
		}
		noticed[name] = text
		return nil
	}
	sealed := map[string]string{}
	names := []string{"same", "changed", "refused", "binary", "large", "pipe", "folder", "gone"}
	for _, name := range names {
		sealed[name] = "sealed " + name
	}
	is.NoErr(os.MkdirAll(s.configDir(), 0o700))
	is.NoErr(s.noticeSkills()) // before the first start
	is.NoErr(s.writeSkills(sealed))
	is.Equal(len(s.SkillFiles()), 0)
	for name, text := range map[string]string{"changed": "by a person", "refused": "---", "binary": "\xff",
		"large": strings.Repeat("x", maxSkill+1)} {
		expect.WriteFile(t, s.skillFile(name), text)
	}
	for _, name := range []string{"pipe", "folder", "gone"} {
		is.NoErr(os.Remove(s.skillFile(name)))
	}
	is.NoErr(syscall.Mkfifo(s.skillFile("pipe"), 0o600)) // reading it would block the start
	is.NoErr(os.Mkdir(s.skillFile("folder"), 0o700))
	is.Equal(len(s.SkillFiles()), 6)
	expect.Contains(t, s.SkillFiles()["changed"], "the next start of OpenCode proposes the text")
	expect.Contains(t, s.SkillFiles()["binary"], "cannot be read: it is not UTF-8")

	is.NoErr(s.noticeSkills())
	is.Equal(noticed, map[string]string{"changed": "by a person"})
	is.NoErr(os.RemoveAll(s.configDir())) // as prepare does
	is.NoErr(os.MkdirAll(s.configDir(), 0o700))
	is.NoErr(s.writeSkills(sealed))
	is.Equal(len(s.SkillFiles()), 5)
	expect.Contains(t, s.SkillFiles()["refused"], "could not be proposed; the text is kept in ")
	kept, err := os.ReadFile(filepath.Join(s.unreadSkills(), "refused.md"))
	is.NoErr(err)
	is.Equal(string(kept), "---")
	is.Equal(strings.Count(log.String(), "a changed skill could not be proposed"), 5)

	expect.WriteFile(t, s.skillHashes(), "no JSON")
	is.NoErr(s.noticeSkills())
}
