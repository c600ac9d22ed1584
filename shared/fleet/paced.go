package fleet

import (
	"errors"
	"io"
	"time"
)

// A member that has begun its list may stand still for so long in all, and gets time back for what it sends: so much a second, which is far
// less than any way gives. One that sends an object a minute would hold up for ever those that wait for all.
const (
	stall   = time.Minute
	slowest = 4 << 10 // bytes a second
)

var errTooSlow = errors.New("it comes too slowly")

// paced reads what a member sends of a list, and ends the call where that comes too slowly. Only the time counts in which it waits for the
// member: a client that is slow is not the member's fault. It is not safe for concurrent use.
type paced struct {
	r    io.Reader
	stop func()        // ends the call
	left time.Duration // for which the member may still stand still
}

func newPaced(a *answer) *paced { return &paced{a.body, a.stop, stall} }

func (p *paced) Read(b []byte) (int, error) {
	if p.left <= 0 {
		return 0, errTooSlow
	}
	began := time.Now()
	late := time.AfterFunc(p.left, p.stop)
	n, err := p.r.Read(b)
	p.left = min(stall, p.left-time.Since(began)+time.Duration(n)*time.Second/slowest)
	if !late.Stop() {
		p.left, err = 0, errTooSlow
	}
	return n, err
}
