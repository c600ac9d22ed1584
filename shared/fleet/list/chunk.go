package list

import (
	"errors"
	"io"
	"slices"

	"github.com/clusterpass/clusterpass/shared/fleet/members"
)

const (
	chunkSize     = 32 << 10 // a chunk with so many bytes gets no more objects
	chunkCapacity = 40 << 10 // allocated at once for a large chunk; append would allocate up to twice chunkSize
)

// chunk has some objects of a part as they appear in the response, with commas between them.
type chunk struct {
	text    []byte
	objects int
	last    bool // the part has no more objects
	err     error
}

// fill replaces the content of c by the next objects of the part, at most n.
func (one *part) fill(c *chunk, n int) {
	for *c = (chunk{text: c.text[:0]}); c.objects < n && len(c.text) < chunkSize; {
		v, err := one.next()
		if errors.Is(err, io.EOF) {
			c.last = true
			return
		} else if err != nil {
			c.err = err
			return
		}
		before := len(c.text)
		if before > chunkSize/4 && cap(c.text) < chunkCapacity {
			c.text = append(make([]byte, 0, chunkCapacity), c.text...)
		}
		if c.objects > 0 {
			c.text = append(c.text, ',')
		}
		if c.text, c.err = one.transform(c.text, v); c.err != nil {
			return
		}
		if one.namespaces != nil && !slices.Contains(one.namespaces, one.namespace()) {
			c.text = c.text[:before]
			continue
		}
		c.objects++
	}
}

// spool fills chunks of a part while the writer writes others. Reading JSON is as slow as writing it.
type spool struct {
	*part
	ready chan *chunk
	spare chan *chunk
	round int // number of objects
}

func newSpool(one *part, round int) *spool {
	s := &spool{part: one, round: round, ready: make(chan *chunk, 1), spare: make(chan *chunk, 2)}
	s.spare <- &chunk{}
	s.spare <- &chunk{}
	return s
}

// run returns after the last chunk, or once done is closed and the part is stopped. A chunk never crosses rounds.
func (s *spool) run(pool *members.Pool, done <-chan struct{}) {
	defer s.closeLater()
	for left := s.round; ; {
		var c *chunk
		select {
		case c = <-s.spare:
		case <-done:
			return
		}
		func() {
			defer pool.Recover(s.Name, func(e *members.Failure) { c.err = e })
			s.fill(c, left)
		}()
		if left -= c.objects; left == 0 {
			left = s.round
		}
		last := c.last || c.err != nil
		select {
		case s.ready <- c:
		case <-done:
			return
		}
		if last {
			return
		}
	}
}

// roundSize is the number of objects of one member that a list without a limit writes before those of the next.
const roundSize = 100

// mergedRoundSize replaces roundSize in lists of more than members.Many members, whose buffers are smaller. A far
// member sends the objects of a round while the others are written.
const mergedRoundSize = 8

func roundSizeOf(n int) int {
	if n <= members.Many {
		return roundSize
	}
	return mergedRoundSize
}

// A list without a limit alternates between maxActive members. Of maxStarted, it reads the first objects, so that it
// need not wait for the answer of a far member that becomes active.
const (
	maxActive  = 64
	maxStarted = maxActive + 16
)
