package members

import (
	"errors"
	"io"
	"time"
)

// A member may stall for StallTimeout in all while it sends a list. Each byte returns some of that time, at
// slowestRate. Otherwise a member that sends one object a minute would block clients forever.
const (
	StallTimeout = time.Minute
	slowestRate  = 4 << 10 // bytes a second
)

var errTooSlow = errors.New("it arrives too slowly")

// pacedReader counts only the time that Read waits for the member, so that a slow client is not the member's fault.
type pacedReader struct {
	r    io.Reader
	stop func()        // ends the call
	left time.Duration // for which the member may still stall
	late *time.Timer   // calls stop; nil before the first Read
}

// NewPacedReader returns a reader of the answer's body that ends the call if the body arrives too slowly.
func NewPacedReader(a *Answer) io.Reader {
	return &pacedReader{r: a.Body, stop: a.Stop, left: StallTimeout}
}

func (p *pacedReader) Read(b []byte) (int, error) {
	if p.left <= 0 {
		return 0, errTooSlow
	}
	began := time.Now()
	if p.late == nil {
		p.late = time.AfterFunc(p.left, p.stop)
	} else {
		p.late.Reset(p.left)
	}
	n, err := p.r.Read(b)
	p.left = min(StallTimeout, p.left-time.Since(began)+time.Duration(n)*time.Second/slowestRate)
	if !p.late.Stop() {
		p.left, err = 0, errTooSlow
	}
	return n, err
}
