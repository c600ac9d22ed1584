package gateway

import (
	"errors"
	"io"
	"net/http"
	"os"
	"sync"
	"time"

	"github.com/clusterpass/clusterpass/shared/status"
)

// patience is how long a caller may keep the gateway waiting, where Config.Patience says nothing else.
const patience = time.Minute

// bodyPart is how many bytes of a body earn its caller patience anew.
const bodyPart = 256 << 10

// lastWords is how long a caller may go on sending a body that nobody reads any more.
const lastWords = time.Second

// pace keeps a call from lasting for as long as its caller likes: an answer that is not taken fails, the last of it too, which net/http
// writes when the handler has returned; and a body that does not come is not waited for. A stream goes by its carrier's limits. A function
// has no connection, so that it sets no deadlines.
type pace struct {
	conn     *http.ResponseController
	patience time.Duration
	body     *body // nil for none
	stream   bool
}

// newPace begins with a call's answer w and its body, which it returns as it is to be read.
func newPace(w http.ResponseWriter, sent io.ReadCloser, patience time.Duration) (*pace, io.ReadCloser) {
	p := &pace{conn: http.NewResponseController(w), patience: patience}
	p.writes() // an earlier call has left its own deadline on the connection
	if sent == nil || sent == http.NoBody {
		return p, sent
	}
	p.body = &body{ReadCloser: sent, conn: p.conn, patience: patience, limited: true, left: patience}
	return p, p.body
}

// writes gives what is written next its time.
func (p *pace) writes() {
	if !p.stream {
		_ = p.conn.SetWriteDeadline(time.Now().Add(p.patience))
	}
}

// carried leaves the call to the carrier of a stream.
func (p *pace) carried() {
	p.stream = true
	_ = p.conn.SetWriteDeadline(time.Time{})
	if p.body != nil {
		p.body.limit(false, 0)
	}
}

// refused takes the call back, to say why it is not answered. Its body is read for a moment longer.
func (p *pace) refused() {
	p.stream = false
	p.writes()
	if p.body != nil {
		p.body.limit(true, lastWords)
	}
}

// late returns errLate if the body did not arrive in time, and nil otherwise.
func (p *pace) late() error {
	if p.body != nil && p.body.isLate() {
		return errLate
	}
	return nil
}

var errLate = status.New(status.RequestTimeout, "", "the body did not arrive in time; call again")

// end leaves the connection to net/http, which writes the rest of the answer and may read the rest of the body.
func (p *pace) end() {
	p.writes()
	if p.body != nil {
		p.body.end()
	}
}

// body is that of a request. Its caller has patience in which to send it, and has it anew with each bodyPart that has come: time in which
// nobody reads, because the member takes nothing, does not count.
type body struct {
	io.ReadCloser
	conn     *http.ResponseController
	patience time.Duration

	mu       sync.Mutex
	received int64
	limited  bool
	left     time.Duration // to wait for more
	whole    bool
	late     bool
	deadline time.Time // of the Read in progress; zero for none
	closing  bool
	over     bool // the connection is another call's
}

// Read implements io.Reader. What comes too late is a *status.Error.
func (b *body) Read(p []byte) (int, error) {
	start := time.Now()
	b.mu.Lock()
	limited := b.limited && !b.whole
	if limited && !b.over {
		b.deadline = start.Add(b.left)
		_ = b.conn.SetReadDeadline(b.deadline)
	}
	b.mu.Unlock()
	n, err := b.ReadCloser.Read(p)
	b.mu.Lock()
	defer b.mu.Unlock()
	b.deadline = time.Time{}
	parts := b.received / bodyPart
	b.received += int64(n)
	if b.left -= time.Since(start); b.received/bodyPart > parts {
		b.left = b.patience
	}
	b.whole = b.whole || err == io.EOF
	if limited && !b.over && !b.closing {
		_ = b.conn.SetReadDeadline(time.Time{}) // from now on the connection is read for its end alone
	}
	if limited && errors.Is(err, os.ErrDeadlineExceeded) {
		b.late = true
		err = errLate
	}
	return n, err
}

// Close implements io.Closer. net/http reads some of what was not read, and whoever sent the request on waits for that: not for longer than
// the caller has left.
func (b *body) Close() error {
	b.mu.Lock()
	b.closing = true
	limited := b.limited && !b.whole
	if limited && !b.over {
		_ = b.conn.SetReadDeadline(time.Now().Add(max(b.left, lastWords)))
	}
	b.mu.Unlock()
	err := b.ReadCloser.Close()
	b.mu.Lock()
	defer b.mu.Unlock()
	if limited && !b.over {
		_ = b.conn.SetReadDeadline(time.Time{})
	}
	return err
}

// isLate reports whether a Read was too late. net/http cancels the request's context before such a Read returns, so the
// deadline of a Read in progress counts, too.
func (b *body) isLate() bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.late || !b.deadline.IsZero() && !time.Now().Before(b.deadline)
}

func (b *body) limit(limited bool, left time.Duration) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.limited, b.left = limited, left
}

func (b *body) end() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.over = true
	if !b.whole {
		_ = b.conn.SetReadDeadline(time.Now().Add(lastWords)) // net/http reads on, to serve the next call
	}
}

// bytes is how many have come.
func (b *body) bytes() int64 {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.received
}
