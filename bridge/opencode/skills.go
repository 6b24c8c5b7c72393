package opencode

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"unicode/utf8"

	"pocketcoder/events/atomicfile"
)

// skillHashes is the file with the SHA-256 of each SKILL.md that was written last, by the name of the skill. OpenCode
// cannot change it, nor the skills.
func (s *Supervisor) skillHashes() string { return s.path("config", "skills.json") }

func (s *Supervisor) skillFile(name string) string {
	return filepath.Join(s.configDir(), "skill", name, "SKILL.md")
}

// unreadSkills is the directory with changed files that could not be proposed.
func (s *Supervisor) unreadSkills() string { return s.path("unread-skills") }

// noticeSkills passes on what a person changed in the skills since they were written, before they are written again. It
// keeps a file that cannot be passed on, so that neither the person's text nor the start of OpenCode is lost.
func (s *Supervisor) noticeSkills() error {
	if s.SkillChanged == nil {
		return nil
	}
	for name, text := range s.changedSkills() {
		err := text.err
		if err == nil {
			err = s.SkillChanged(name, text.content)
		}
		if err == nil {
			continue
		}
		kept := filepath.Join(s.unreadSkills(), name+".md")
		s.Logger.Warn("a changed skill could not be proposed; OpenCode gets the approved text", "skill", name, "kept", kept,
			"err", err)
		if err := os.MkdirAll(s.unreadSkills(), 0o700); err != nil {
			return err
		}
		if err := os.RemoveAll(kept); err != nil {
			return err
		}
		if err := os.Rename(s.skillFile(name), kept); err != nil {
			return err
		}
	}
	return nil
}

// skillText is the content of a changed file, or why it cannot be read.
type skillText struct {
	content string
	err     error
}

// changedSkills returns the skills whose files were changed since they were written, by name.
func (s *Supervisor) changedSkills() map[string]skillText {
	written, changed := map[string]string{}, map[string]skillText{}
	stored, err := os.ReadFile(s.skillHashes())
	if err == nil {
		err = json.Unmarshal(stored, &written)
	}
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		s.Logger.Error("read the hashes of the skills; changes are not noticed", "err", err)
	}
	for name, hash := range written {
		text, err := readSkill(s.skillFile(name))
		if !errors.Is(err, fs.ErrNotExist) && (err != nil || hashOf([]byte(text)) != hash) {
			changed[name] = skillText{text, err}
		}
	}
	return changed
}

// maxSkill bounds a changed file, in bytes: a proposal has no more.
const maxSkill = 64 << 10

func readSkill(file string) (string, error) {
	info, err := os.Lstat(file)
	if err != nil {
		return "", err
	}
	if !info.Mode().IsRegular() || info.Size() > maxSkill {
		return "", fmt.Errorf("it is not a regular file, or has more than %d KiB", maxSkill>>10)
	}
	text, err := os.ReadFile(file)
	if err == nil && !utf8.Valid(text) {
		err = errors.New("it is not UTF-8")
	}
	return string(text), err
}

// SkillFiles says what is wrong with the files of skills, by the name of the skill: a file was changed since OpenCode
// was started, or a changed file could not be proposed.
func (s *Supervisor) SkillFiles() map[string]string {
	states := map[string]string{}
	kept, _ := os.ReadDir(s.unreadSkills()) // usually there is none
	for _, file := range kept {
		name := strings.TrimSuffix(file.Name(), ".md")
		states[name] = "changed on disk, but could not be proposed; the text is kept in " +
			filepath.Join(s.unreadSkills(), file.Name())
	}
	for name, text := range s.changedSkills() {
		states[name] = "changed on disk; the next start of OpenCode proposes the text"
		if text.err != nil {
			states[name] = "changed on disk, but cannot be read: " + text.err.Error()
		}
	}
	return states
}

// writeSkills writes the skills into the configuration directory, which is empty. The hashes come first, so that an
// interrupted start does not look like a change.
func (s *Supervisor) writeSkills(skills map[string]string) error {
	hashes := map[string]string{}
	for name, content := range skills {
		hashes[name] = hashOf([]byte(content))
	}
	stored, err := json.Marshal(hashes)
	if err == nil {
		err = atomicfile.Write(s.skillHashes(), stored)
	}
	if err != nil {
		return err
	}
	for name, content := range skills {
		if err := os.MkdirAll(filepath.Dir(s.skillFile(name)), 0o700); err != nil {
			return err
		}
		if err := os.WriteFile(s.skillFile(name), []byte(content), 0o600); err != nil {
			return err
		}
	}
	return nil
}

func hashOf(text []byte) string {
	sum := sha256.Sum256(text)
	return hex.EncodeToString(sum[:])
}
