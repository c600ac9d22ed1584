package fleet

import (
	"errors"
	"fmt"
	"io"
	"slices"
	"sync"

	"github.com/clusterpass/clusterpass/shared/fleet/members"
)

// pieceSize is how much of a part is made ready for the answer at once.
const pieceSize = 32 << 10

// piece is some of a part's objects as they stand in the answer, with commas between them.
type piece struct {
	text    []byte
	objects int
	last    bool // nothing of the part follows
	err     error
}

// fill takes up to n of the part's next objects into a piece, in place of what was in it.
func (one *part) fill(c *piece, n int) {
	for *c = (piece{text: c.text[:0]}); c.objects < n && len(c.text) < pieceSize; {
		v, err := one.next()
		if errors.Is(err, io.EOF) {
			c.last = true
			return
		} else if err != nil {
			c.err = err
			return
		}
		before := len(c.text)
		if c.objects > 0 {
			c.text = append(c.text, ',')
		}
		if c.text, c.err = one.transform(c.text, v); c.err != nil {
			return
		}
		if one.scope != nil && !slices.Contains(one.scope, one.namespace()) {
			c.text = c.text[:before]
			continue
		}
		c.objects++
	}
}

// turn is how many objects a whole list takes of one member before it goes on to the next: so many members as there are send at once, and
// the whole takes as long as the slowest of them, while of each no more is held than was sent ahead. Shorter lists stay in one piece.
const turn = 100

// spool makes a part's pieces while those of others are written: to read JSON takes as long as to write it.
type spool struct {
	*part
	ready chan *piece
	spare chan *piece
}

// run ends after the part's last piece, or once done is closed and the part stopped.
func (s *spool) run(f *Fleet, done <-chan struct{}) {
	for left := turn; ; {
		var c *piece
		select {
		case c = <-s.spare:
		case <-done:
			return
		}
		func() {
			defer f.m.Recover(s.Name, func(e *members.Failure) { c.err = e })
			s.fill(c, left)
		}()
		if left -= c.objects; left == 0 {
			left = turn
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

// inTurns writes all objects of all parts.
func (p *page) inTurns(out *sink, parts []*part) error {
	whole, done := false, make(chan struct{})
	var running sync.WaitGroup
	defer func() {
		if close(done); !whole {
			for _, one := range parts {
				one.Stop() // it may be read
			}
		}
		running.Wait()
	}()
	var left []*spool
	for _, one := range parts {
		s := &spool{part: one, ready: make(chan *piece, 1), spare: make(chan *piece, 2)}
		s.spare <- &piece{}
		s.spare <- &piece{}
		running.Go(func() { s.run(p.q.f, done) })
		left = append(left, s)
	}
	for len(left) > 0 {
		var unfinished []*spool
		for _, s := range left {
			more, err := p.inTurn(out, s)
			switch {
			case err != nil:
				return err
			case more:
				unfinished = append(unfinished, s)
			case s.Metadata().Continue != "":
				return fmt.Errorf("cluster %q sent a page, and was asked for all", s.Name)
			}
		}
		left = unfinished
	}
	whole = true
	return nil
}

// inTurn writes the objects of a part that one turn has. It reports whether there may be more.
func (p *page) inTurn(out *sink, s *spool) (more bool, err error) {
	for given := 0; given < turn; {
		c := <-s.ready // run sends until it has sent the last
		given += c.objects
		if more, err := p.put(out, s.part, c); !more {
			return false, err
		}
		if cap(c.text) > 8*pieceSize { // what a large object took is not kept
			c.text = nil
		}
		s.spare <- c
	}
	return true, nil
}

// put writes a piece. It reports whether there may be more of the part.
func (p *page) put(out *sink, one *part, c *piece) (more bool, err error) {
	if c.err != nil {
		return false, c.err
	}
	if p.given > 0 && c.objects > 0 {
		out.text(",")
	}
	p.given += c.objects
	if err := out.bytes(c.text); err != nil {
		return false, err
	}
	if c.last {
		return false, p.saw(one)
	}
	return true, nil
}
