package client

import "io"

// maxDepth limits how deep the JSON from OpenCode may be nested. A model chooses the arguments of a tool call, and
// package json reads at most 10,000 levels. Without the limit, one such call would end the stream of events for all
// chats, again and again.
const maxDepth = 1000

// depthReader reads JSON values and leaves "" in place of what is nested deeper than maxDepth.
type depthReader struct {
	io.ReadCloser
	depth    int
	inString bool
	escaped  bool
}

func (s *depthReader) Read(p []byte) (int, error) {
	for {
		n, err := s.ReadCloser.Read(p)
		if n = s.cut(p[:n]); n > 0 || err != nil || len(p) == 0 {
			return n, err
		}
	}
}

// cut removes values that are nested too deep from p, in place, and returns the length of the rest.
func (s *depthReader) cut(p []byte) (left int) {
	for _, c := range p {
		keep := s.depth <= maxDepth
		switch {
		case s.escaped:
			s.escaped = false
		case s.inString:
			s.escaped, s.inString = c == '\\', c != '"'
		case c == '"':
			s.inString = true
		case c == '{', c == '[':
			if s.depth++; s.depth == maxDepth+1 {
				c = '"'
			}
		case c == '}', c == ']':
			if s.depth--; s.depth == maxDepth {
				c, keep = '"', true
			}
		}
		if keep {
			p[left] = c
			left++
		}
	}
	return left
}
