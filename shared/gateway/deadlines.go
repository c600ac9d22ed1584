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

const defaultClientTimeout = time.Minute

// progressSize is the number of bytes of a body or a response that the client must send or receive within the timeout.
const progressSize = 256 << 10

// discardTimeout is the time for each progressSize bytes of a refused request's body. After the handler has returned,
// it is the time for the unread rest of any body.
const discardTimeout = time.Second

// deadlines limit how long a client can delay a request that is not a stream. They have no effect in a function, which
// has no connection to the client.
type deadlines struct {
	conn     *http.ResponseController
	timeout  time.Duration
	body     *body // nil for a request without a body
	isStream bool
	extended time.Time // when the deadline of writes was set, or zero if there is none
}

func newDeadlines(w http.ResponseWriter, r *http.Request, timeout time.Duration) (*deadlines, io.ReadCloser) {
	d, sent := &deadlines{conn: http.NewResponseController(w), timeout: timeout}, r.Body
	if r.ProtoMajor < 2 {
		d.extendWrite() // the previous request on the connection left its own deadline
	}
	if sent == nil || sent == http.NoBody {
		return d, sent
	}
	d.body = &body{ReadCloser: sent, conn: d.conn, timeout: timeout, isLimited: true, remaining: timeout}
	return d, d.body
}

// extendWrite sets the deadline of writes to now + timeout. If it set a deadline less than timeout/8 ago, it keeps that
// one, so a write has at least 7/8 of the timeout. For small requests over HTTP/2, setting a deadline costs more than
// all checks of the gateway, because it wakes the goroutine of the connection.
func (d *deadlines) extendWrite() {
	if now := time.Now(); !d.isStream && now.Sub(d.extended) > d.timeout/8 {
		d.extended = now
		_ = d.conn.SetWriteDeadline(now.Add(d.timeout))
	}
}

func (d *deadlines) beginStream() {
	if d.isStream = true; !d.extended.IsZero() {
		d.extended = time.Time{}
		_ = d.conn.SetWriteDeadline(time.Time{})
	}
	if d.body != nil {
		d.body.limit(false, 0)
	}
}

func (d *deadlines) refuse() {
	d.isStream = false
	d.extendWrite()
	if d.body != nil {
		d.body.limit(true, discardTimeout)
	}
}

func (d *deadlines) late() error {
	if d.body != nil && d.body.isLate() {
		return errLate
	}
	return nil
}

var errLate = status.New(status.RequestTimeout, "", "the body did not arrive in time; call again")

// end sets the deadlines for net/http, which writes the rest of the response and may read the rest of the body.
func (d *deadlines) end() {
	d.extendWrite()
	if d.body != nil {
		d.body.end()
	}
}

// body is the body of a request. Each progressSize bytes must arrive within the timeout. Only time spent in Read
// counts, so a slow member does not use up the client's time.
type body struct {
	io.ReadCloser
	conn    *http.ResponseController
	timeout time.Duration

	mu           sync.Mutex
	received     int64
	isLimited    bool
	remaining    time.Duration // for the next progressSize bytes
	isComplete   bool
	wasLate      bool
	readDeadline time.Time // zero unless a Read is in progress
	isClosing    bool
	isOver       bool // the connection belongs to the next request
}

func (b *body) Read(p []byte) (int, error) {
	start := time.Now()
	b.mu.Lock()
	isLimited := b.isLimited && !b.isComplete
	if isLimited && !b.isOver {
		b.readDeadline = start.Add(b.remaining)
		_ = b.conn.SetReadDeadline(b.readDeadline)
	}
	b.mu.Unlock()
	n, err := b.ReadCloser.Read(p)
	b.mu.Lock()
	defer b.mu.Unlock()
	b.readDeadline = time.Time{}
	before := b.received / progressSize
	b.received += int64(n)
	if b.remaining -= time.Since(start); b.received/progressSize > before {
		b.remaining = b.timeout
	}
	b.isComplete = b.isComplete || err == io.EOF
	if isLimited && !b.isOver && !b.isClosing {
		// At the end of the body, net/http itself begins to read from the connection, to notice when the client closes it.
		// If the deadline ended that read, net/http would cancel the request's context.
		_ = b.conn.SetReadDeadline(time.Time{})
	}
	if isLimited && errors.Is(err, os.ErrDeadlineExceeded) {
		b.wasLate = true
		err = errLate
	}
	return n, err
}

// Close closes the body. net/http may first read a part of the unread rest, for at most the remaining time, or
// discardTimeout if that is longer.
func (b *body) Close() error {
	b.mu.Lock()
	b.isClosing = true
	isLimited := b.isLimited && !b.isComplete
	if isLimited && !b.isOver {
		_ = b.conn.SetReadDeadline(time.Now().Add(max(b.remaining, discardTimeout)))
	}
	b.mu.Unlock()
	err := b.ReadCloser.Close()
	b.mu.Lock()
	defer b.mu.Unlock()
	if isLimited && !b.isOver {
		_ = b.conn.SetReadDeadline(time.Time{})
	}
	return err
}

// isLate reports whether a Read exceeded its deadline. net/http cancels the request's context before such a Read
// returns, so the deadline of a Read in progress counts, too.
func (b *body) isLate() bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.wasLate || !b.readDeadline.IsZero() && !time.Now().Before(b.readDeadline)
}

func (b *body) limit(isLimited bool, timeout time.Duration) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.isLimited, b.timeout, b.remaining = isLimited, timeout, timeout
}

// end sets a deadline for the unread rest, which net/http reads before the next request.
func (b *body) end() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.isOver = true
	if !b.isComplete {
		_ = b.conn.SetReadDeadline(time.Now().Add(discardTimeout))
	}
}

func (b *body) bytes() int64 {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.received
}
