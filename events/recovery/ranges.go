package recovery

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
)

// Range is a range of sequences, both ends included.
type Range struct {
	First uint64 `json:"first"`
	Last  uint64 `json:"last"`
}

func (r Range) String() string {
	if r.First == r.Last {
		return fmt.Sprintf("#%d", r.First)
	}
	return fmt.Sprintf("#%d to #%d", r.First, r.Last)
}

// Ranges are ascending ranges that do not touch each other.
type Ranges []Range

func (rs Ranges) String() string {
	var all []string
	for _, r := range rs {
		all = append(all, r.String())
	}
	return strings.Join(all, ", ")
}

func (rs Ranges) Count() (n uint64) {
	for _, r := range rs {
		n += r.Last - r.First + 1
	}
	return n
}

// last returns the last sequence, 0 if there is none.
func (rs Ranges) last() uint64 {
	if len(rs) == 0 {
		return 0
	}
	return rs[len(rs)-1].Last
}

// add adds the sequence after the last one, or a higher one.
func (rs Ranges) add(seq uint64) Ranges {
	if n := len(rs); n > 0 && rs[n-1].Last+1 == seq {
		rs[n-1].Last = seq
		return rs
	}
	return append(rs, Range{seq, seq})
}

// union returns the sequences of both.
func (rs Ranges) union(others Ranges) (all Ranges) {
	both := slices.Concat(rs, others)
	slices.SortFunc(both, func(a, b Range) int { return cmp.Compare(a.First, b.First) })
	for _, r := range both {
		if n := len(all); n > 0 && r.First <= all[n-1].Last+1 {
			all[n-1].Last = max(all[n-1].Last, r.Last)
		} else {
			all = append(all, r)
		}
	}
	return all
}

// without returns the sequences that are not in others.
func (rs Ranges) without(others Ranges) (rest Ranges) {
	for _, r := range rs {
		for _, o := range others {
			if o.Last < r.First || o.First > r.Last {
				continue
			}
			if o.First > r.First {
				rest = append(rest, Range{r.First, o.First - 1})
			}
			r.First = o.Last + 1
		}
		if r.First <= r.Last {
			rest = append(rest, r)
		}
	}
	return rest
}
