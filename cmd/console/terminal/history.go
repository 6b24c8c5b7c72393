package terminal

import (
	"bufio"
	"encoding/json"
	"errors"
	"io/fs"
	"os"
	"sync"

	"pocketcoder/events/atomicfile"
)

// maxHistory is how many lines the history holds. Its file may hold twice as many until it is loaded again.
const maxHistory = 1000

// History holds the lines typed in conversations of a data directory. The arrow keys bring them back. It holds
// messages and slash commands. It holds no answers to requests.
type History struct {
	path string

	mu    sync.Mutex
	lines []string
}

// LoadHistory reads the history. A file that does not exist is an empty history.
func LoadHistory(path string) (*History, error) {
	h := &History{path: path}
	f, err := os.Open(path)
	if errors.Is(err, fs.ErrNotExist) {
		return h, nil
	}
	if err != nil {
		return h, err
	}
	defer f.Close()
	all := bufio.NewScanner(f)
	all.Buffer(nil, 1<<20)
	for all.Scan() {
		var line string
		if json.Unmarshal(all.Bytes(), &line) == nil && line != "" { // a crash may leave half a line
			h.lines = append(h.lines, line)
		}
	}
	if len(h.lines) > 2*maxHistory {
		h.lines = h.lines[len(h.lines)-maxHistory:]
		return h, errors.Join(all.Err(), h.rewrite())
	}
	return h, all.Err()
}

func (h *History) rewrite() error {
	var body []byte
	for _, line := range h.lines {
		body = append(body, historyLine(line)...)
	}
	return atomicfile.Write(h.path, body)
}

func historyLine(line string) []byte {
	body, _ := json.Marshal(line) // a string always encodes
	return append(body, '\n')
}

// Remember adds a line, unless it is the one before or cannot be edited as one line.
func (h *History) Remember(text string) error {
	line, ok := Editable(text)
	h.mu.Lock()
	defer h.mu.Unlock()
	if !ok || line == "" || len(h.lines) > 0 && h.lines[len(h.lines)-1] == line {
		return nil
	}
	h.lines = append(h.lines, line)
	f, err := os.OpenFile(h.path, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	_, err = f.Write(historyLine(line))
	return errors.Join(err, f.Close())
}

// Add does nothing: the conversation decides which lines are remembered.
func (h *History) Add(string) {}

func (h *History) Len() int {
	h.mu.Lock()
	defer h.mu.Unlock()
	return len(h.lines)
}

// At returns a line; 0 is the newest.
func (h *History) At(i int) string {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.lines[len(h.lines)-1-i]
}
