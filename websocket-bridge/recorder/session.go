package recorder

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/clusterpass/clusterpass/shared/forward"
	"github.com/clusterpass/clusterpass/shared/gateway"
	"github.com/clusterpass/clusterpass/shared/recording"
	"github.com/clusterpass/clusterpass/shared/recording/policy"
	"github.com/clusterpass/clusterpass/shared/status"
	"github.com/clusterpass/clusterpass/websocket-bridge/channels"
	"github.com/clusterpass/clusterpass/websocket-bridge/text"
)

// States of a Session.
const (
	isRecording = iota
	isOff       // the recorder failed, and the session goes on
	isEnding    // the recorder failed, and the session must end
)

// Session records one session, whose request goes through Forwarder.
type Session struct {
	recorder *Recorder
	rec      *recording.Session
	info     recording.Info
	call     *gateway.StreamCall
	end      func(*status.Error)
	done     chan struct{} // closed by Close
	watched  chan struct{} // closed when the goroutine of the Session has ended
	state    atomic.Int32

	in, out atomic.Int64 // bytes from and to the client, after the handshake
	code    atomic.Int32 // status code of a response without a session; 0 before

	mu      sync.Mutex
	failure error
	conn    *conn // connection of the client; nil before the handshake
	timer   *time.Timer
}

func newSession(
	r *Recorder, rec *recording.Session, info recording.Info, c *gateway.StreamCall, end func(*status.Error),
) *Session {
	s := &Session{
		recorder: r, rec: rec, info: info, call: c, end: end, done: make(chan struct{}), watched: make(chan struct{}),
	}
	go s.watch()
	return s
}

// countInterval is how often the numbers of bytes of a port-forward are recorded. A bridge that is killed loses those
// since then.
const countInterval = 10 * time.Second

// watch ends the session if its recorder fails, even if nothing is transferred. It records the progress of a
// port-forward.
func (s *Session) watch() {
	defer close(s.watched)
	var counts <-chan time.Time
	if s.info.Kind == recording.PortForward {
		t := time.NewTicker(countInterval)
		defer t.Stop()
		counts = t.C
	}
	for before := (transferred{}); ; {
		select {
		case <-counts:
			if now := s.transferred(); now != before {
				before = now
				_ = s.rec.Transferred(now.in, now.out) // Failed reports the error, too
			}
			continue
		case <-s.done:
		case <-s.rec.Failed():
			s.fail(s.rec.Err())
			s.mu.Lock()
			c := s.conn
			s.mu.Unlock()
			if c != nil {
				c.endBetweenFrames()
			}
		}
		return
	}
}

// transferred has the numbers of bytes from and to the client.
type transferred struct{ in, out int64 }

func (s *Session) transferred() transferred { return transferred{s.in.Load(), s.out.Load()} }

// Times for the end of a session whose recorder failed.
const (
	finishTime   = 5 * time.Second // for the rest of a frame
	closeTimeout = time.Second     // for the client, after the last frame
)

// fail stops the recording, which stays without an end. If it is required, fail also makes the session end within
// finishTime.
func (s *Session) fail(err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.failure != nil {
		return
	}
	s.failure = err
	s.rec.Abort(err) // a complete recording would hide the rest of the session
	if s.call.Rule.Level == policy.BestEffort {
		s.call.RecordingFailed()
		s.state.Store(isOff)
		return
	}
	s.state.Store(isEnding)
	wait := finishTime
	if s.info.Kind == recording.PortForward {
		wait = 0 // it has no channel for a message
	}
	s.endAfterLocked(wait)
}

func (s *Session) endAfter(d time.Duration) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.endAfterLocked(d)
}

func (s *Session) endAfterLocked(d time.Duration) {
	if s.timer != nil {
		s.timer.Stop()
	}
	s.timer = time.AfterFunc(d, func() { s.end(s.reason()) })
}

func (s *Session) reason() *status.Error {
	s.mu.Lock()
	defer s.mu.Unlock()
	return &status.Error{
		Reason: status.Unrecorded, Cluster: s.call.Route.Cluster, Message: farewell, Err: s.failure,
	}
}

// farewell must fit into a close frame.
const farewell = "the session was ended: its required recording failed; ask the gateway's administrator"

// Forwarder returns next with a client whose session is recorded.
func (s *Session) Forwarder(next text.Forwarder) text.Forwarder { return forwarder{s, next} }

type forwarder struct {
	session *Session
	next    text.Forwarder
}

func (f forwarder) Do(w, ws http.ResponseWriter, r *http.Request, c *forward.Call) error {
	decodable, err := f.session.decodable(r)
	switch {
	case err == nil:
		return f.next.Do(newWriter(w, f.session), newWriter(ws, f.session), decodable, c)
	case f.session.call.Rule.Level == policy.BestEffort:
		f.session.fail(err)
		return f.next.Do(w, ws, r, c)
	}
	return err
}

// decodable returns the request without offers that could lead to a connection which cannot be decoded.
func (s *Session) decodable(r *http.Request) (*http.Request, error) {
	if s.info.Kind == recording.PortForward {
		return r, nil
	}
	const protocols = "Sec-Websocket-Protocol"
	r = r.Clone(r.Context())
	r.Header.Del("Sec-Websocket-Extensions") // such as compression
	if len(r.Header[protocols]) == 0 {
		return r, nil
	}
	var known []string
	for offered := range strings.SplitSeq(strings.Join(r.Header[protocols], ","), ",") {
		if offered = strings.TrimSpace(offered); slices.Contains(channels.Protocols, offered) {
			known = append(known, offered)
		}
	}
	if len(known) == 0 {
		return nil, status.New(status.BadRequest, s.call.Route.Cluster,
			"the session was refused: it must be recorded, which is not possible in its websocket protocol; offer one of %s",
			strings.Join(channels.Protocols, ", "))
	}
	r.Header[protocols] = []string{strings.Join(known, ", ")}
	return r, nil
}

// Close ends the recording. err is the result of the forwarded request. Close returns err or, if a required recording
// failed, the reason as a *status.Error.
func (s *Session) Close(ctx context.Context, err error) error {
	close(s.done)
	<-s.watched
	if rerr := s.recordEnd(ctx, err); rerr != nil {
		s.fail(rerr)
	}
	if cerr := s.rec.Close(); cerr != nil {
		s.fail(cerr)
	}
	s.mu.Lock()
	failure := s.failure
	if s.timer != nil {
		s.timer.Stop()
	}
	s.mu.Unlock()
	if failure == nil {
		return err
	}
	s.recorder.fail(s.call, failure)
	if s.call.Rule.Level == policy.BestEffort {
		return err
	}
	return s.reason()
}

// recordEnd records the numbers of bytes of a port-forward, or the Status of another session. If the member sent no
// Status, the recorded one describes why the gateway or the cluster ended the session.
func (s *Session) recordEnd(ctx context.Context, err error) error {
	if s.state.Load() != isRecording {
		return nil
	}
	if s.info.Kind == recording.PortForward {
		all := s.transferred()
		if terr := s.rec.Transferred(all.in, all.out); terr != nil {
			return terr
		}
	}
	s.mu.Lock()
	c := s.conn
	s.mu.Unlock()
	if c != nil {
		if st := c.status(); len(st) > 0 {
			return s.rec.Exit(st)
		}
	}
	return s.recordReason(ctx, err)
}

func (s *Session) recordReason(ctx context.Context, err error) error {
	var reason *status.Error
	if !errors.As(err, &reason) {
		errors.As(context.Cause(ctx), &reason)
	}
	var st metav1.Status
	switch code := s.code.Load(); {
	case reason != nil:
		st = reason.Status()
	case code != 0:
		st = metav1.Status{
			Status: metav1.StatusFailure, Code: code, Message: fmt.Sprintf("the cluster refused the session: HTTP %d", code),
		}
	default:
		return nil // the client has left, or the dialect has no Status of success
	}
	text, merr := json.Marshal(&st)
	if merr != nil {
		return merr
	}
	return s.rec.Exit(text)
}
