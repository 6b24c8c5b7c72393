package secret

import (
	"bytes"
	"encoding/binary"
	"math/bits"
	"slices"

	"pocketcoder/events"
)

// patterns finds many byte strings of at least minSecret bytes in one pass. A bit set of the hashes of their first 8
// bytes excludes nearly every position of a text, so the number of patterns hardly matters. nil has no patterns.
type patterns struct {
	sorted  [][]byte
	within  []int // by pattern: the longest other pattern that it starts with, -1 for none
	begins  []uint64
	shift   int // of a hash to its bit in begins
	longest int
}

func newPatterns(list [][]byte) *patterns {
	if len(list) == 0 {
		return nil
	}
	slices.SortFunc(list, bytes.Compare)
	p := &patterns{sorted: slices.CompactFunc(list, bytes.Equal)}
	size := max(10, bits.Len(uint(len(p.sorted)))+6) // 1 to 2 % of the bits are set
	p.begins, p.shift = make([]uint64, 1<<(size-6)), 64-size
	p.within = make([]int, len(p.sorted))
	for i, s := range p.sorted {
		bit := p.bit(s[:minSecret])
		p.begins[bit/64] |= 1 << (bit % 64)
		p.longest = max(p.longest, len(s))
		outer := i - 1
		for outer >= 0 && !bytes.HasPrefix(s, p.sorted[outer]) {
			outer = p.within[outer]
		}
		p.within[i] = outer
	}
	return p
}

// bit hashes the first 8 bytes of a text by multiplication, as Knuth has it (TAOCP 6.4).
func (p *patterns) bit(s []byte) uint64 {
	return binary.LittleEndian.Uint64(s) * 0x9E3779B97F4A7C15 >> p.shift
}

func (p *patterns) mayBegin(s []byte) bool {
	bit := p.bit(s)
	return p.begins[bit/64]&(1<<(bit%64)) != 0
}

// match returns the length of the longest pattern that s starts with, 0 for none. s has at least 8 bytes.
func (p *patterns) match(s []byte) int {
	if !p.mayBegin(s) {
		return 0
	}
	s = s[:min(len(s), p.longest)]
	i, found := slices.BinarySearchFunc(p.sorted, s, bytes.Compare)
	if found {
		return len(s)
	}
	// All patterns that s starts with sort before s, and are prefixes of the last one that does.
	if i--; i < 0 {
		return 0
	}
	same := samePrefix(p.sorted[i], s)
	for i >= 0 && len(p.sorted[i]) > same {
		i = p.within[i]
	}
	if i < 0 {
		return 0
	}
	return len(p.sorted[i])
}

func samePrefix(a, b []byte) int {
	n := min(len(a), len(b))
	for i := range n {
		if a[i] != b[i] {
			return i
		}
	}
	return n
}

// replace returns b with every range that patterns cover replaced, also where patterns overlap. It returns b itself if
// there is none.
func (p *patterns) replace(b []byte) []byte {
	if p == nil || len(b) < minSecret {
		return b
	}
	var clean []byte
	done := 0 // how much of b is in clean
	for at := 0; at+minSecret <= len(b); at++ {
		end := at + p.match(b[at:])
		if end == at {
			continue
		}
		clean = append(append(clean, b[done:at]...), events.Redacted...)
		for at++; at < end && at+minSecret <= len(b); at++ {
			end = max(end, at+p.match(b[at:]))
		}
		done, at = end, end-1
	}
	if clean == nil {
		return b
	}
	return append(clean, b[done:]...)
}

// begun returns the number of bytes at the end of b that are the start of a pattern.
func (p *patterns) begun(b []byte) int {
	if p == nil {
		return 0
	}
	end := b[max(0, len(b)-p.longest+1):]
	for ; len(end) > 0; end = end[1:] {
		if len(end) >= minSecret && !p.mayBegin(end) {
			continue
		}
		if i, _ := slices.BinarySearchFunc(p.sorted, end, bytes.Compare); i < len(p.sorted) &&
			bytes.HasPrefix(p.sorted[i], end) && len(p.sorted[i]) > len(end) {
			return len(end)
		}
	}
	return 0
}
