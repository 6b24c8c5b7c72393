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

	"pocketcoder/atomicfile"
)

// skillHashes is the file with the SHA-256 of each SKILL.md that was written last, by the name of the skill. OpenCode
// cannot change it, nor the skills.
func (s *Supervisor) skillHashes() string { return s.path("config", "skills.json") }

func (s *Supervisor) skillFile(name string) string {
	return filepath.Join(s.configDir(), "skill", name, "SKILL.md")
}

// noticeSkills passes on what a person changed in the skills since they were written, before they are written again.
func (s *Supervisor) noticeSkills() error {
	stored, err := os.ReadFile(s.skillHashes())
	if errors.Is(err, fs.ErrNotExist) || s.SkillChanged == nil {
		return nil
	}
	written := map[string]string{}
	if err == nil {
		err = json.Unmarshal(stored, &written)
	}
	if err != nil {
		return err
	}
	for name, hash := range written {
		text, err := os.ReadFile(s.skillFile(name))
		if errors.Is(err, fs.ErrNotExist) || hashOf(text) == hash {
			continue
		}
		if err == nil {
			err = s.SkillChanged(name, string(text))
		}
		if err != nil {
			return fmt.Errorf("propose the changed %s, or delete it: %w", s.skillFile(name), err)
		}
	}
	return nil
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
