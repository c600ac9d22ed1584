package access

import (
	"context"
	"errors"
	"log/slog"
	"sync"
	"time"

	"github.com/clusterpass/clusterpass/shared/identity"
	"github.com/clusterpass/clusterpass/shared/objects"
	"github.com/clusterpass/clusterpass/shared/status"
)

// How old a Policy may be. All times are the wall clock's: the monotonic one may stop with a frozen process.
const (
	// freshFor: younger than this, nobody asks the store.
	freshFor = time.Second
	// waitFrom: older than this, a call waits for the store, up to patience; younger, the store is asked beside it.
	waitFrom = 3 * time.Second
	patience = 2 * time.Second
	// MaxAge is how old a Policy may be at all.
	MaxAge = 30 * time.Second
	// flightTime bounds one reading of the store, retryAfter how soon a failed one is repeated.
	flightTime = 10 * time.Second
	retryAfter = time.Second
)

// Config configures an Authorizer.
type Config struct {
	Store Store
	Log   *slog.Logger     // for objects that cannot be read and failures to refresh; nil means slog.Default()
	Now   func() time.Time // nil means time.Now
}

// Authorizer decides by the roles and bindings of a store. What is written there is in force within 3 s; while the
// store cannot be read, for up to MaxAge what was. It is safe for concurrent use, reads the store once for all who
// wait, and has no goroutine but that of a reading, which ends within 10 s: a frozen process loses nothing.
type Authorizer struct {
	cfg Config

	mu      sync.Mutex
	current *snapshot
	asOf    time.Time // current holds every write that was done by then
	flight  *flight   // the reading under way, or nil
	failed  time.Time // when the last reading failed, zero if it did not
	err     error     // why
}

// flight is one reading of the store.
type flight struct {
	began  time.Time
	cancel context.CancelFunc
	done   chan struct{}
	slow   bool // somebody has waited for it in vain; guarded by the Authorizer's mu
}

// NewAuthorizer returns an Authorizer that has not read anything yet.
func NewAuthorizer(cfg Config) *Authorizer {
	if cfg.Log == nil {
		cfg.Log = slog.Default()
	}
	if cfg.Now == nil {
		cfg.Now = time.Now
	}
	return &Authorizer{cfg: cfg}
}

// Authorize returns nil if u may do a, and otherwise a *status.Error: Forbidden, or StoreUnavailable if that
// cannot be known.
func (a *Authorizer) Authorize(ctx context.Context, u *identity.User, attrs Attributes) error {
	_, err := a.Decide(ctx, u, attrs)
	return err
}

// Decide is Authorize, and says why a request is allowed: for the audit log.
func (a *Authorizer) Decide(ctx context.Context, u *identity.User, attrs Attributes) (reason string, err error) {
	p, err := a.Policy(ctx)
	if err != nil {
		return "", err
	}
	ok, reason := p.Allowed(u, attrs)
	if !ok {
		return reason, Forbidden(u, attrs, reason)
	}
	return reason, nil
}

// Ready reports whether there is a policy to decide by. Where there is none, the next decision waits for the store.
func (a *Authorizer) Ready() bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.usable(a.now())
}

// Policy returns the Policy in force. Its errors are *status.Error of reason StoreUnavailable.
func (a *Authorizer) Policy(ctx context.Context) (*Policy, error) {
	ctx, cancel := context.WithTimeoutCause(ctx, flightTime, errSlow)
	defer cancel()
	called := a.now()
	for {
		p, f, err := a.step(ctx, called)
		if f == nil {
			return p, err
		}
		var enough <-chan time.Time
		if p != nil {
			timer := time.NewTimer(patience)
			defer timer.Stop()
			enough = timer.C
		}
		select {
		case <-f.done:
		case <-enough:
			return a.old(f)
		case <-ctx.Done():
			return nil, unavailable(context.Cause(ctx))
		}
	}
}

var errSlow = errors.New("the object store does not answer")

// step looks at what is there for a call that began at called. It returns a policy to decide by; or a reading to wait for, with a
// policy if there is one to go on with; or an error.
func (a *Authorizer) step(ctx context.Context, called time.Time) (*Policy, *flight, error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	now := a.now()
	age := called.Sub(a.asOf)
	if !a.usable(now) {
		age = MaxAge
	}
	if age < freshFor {
		return a.current.policy, nil, nil
	}
	if since := now.Sub(a.failed); since >= 0 && since < retryAfter {
		if age < MaxAge {
			return a.current.policy, nil, nil
		}
		return nil, nil, unavailable(a.err)
	}
	f := a.start(ctx, now)
	switch {
	case age < waitFrom, age < MaxAge && f.slow: // how long it took says nothing where the process was frozen
		return a.current.policy, nil, nil
	case age < MaxAge:
		return a.current.policy, f, nil
	}
	return nil, f, nil
}

// usable reports whether current may be decided by. A clock that was set back says nothing about age.
func (a *Authorizer) usable(now time.Time) bool {
	age := now.Sub(a.asOf)
	return a.current != nil && age >= 0 && age < MaxAge
}

// old returns what there is, if it may still be used, in the place of what f reads, so that nobody else waits for that.
func (a *Authorizer) old(f *flight) (*Policy, error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	f.slow = true
	if !a.usable(a.now()) {
		return nil, unavailable(errSlow)
	}
	return a.current.policy, nil
}

// start returns the reading under way, beginning one if there is none, or if it was frozen for so long that what it
// waits for is gone.
func (a *Authorizer) start(ctx context.Context, now time.Time) *flight {
	if f := a.flight; f != nil {
		if age := now.Sub(f.began); age >= 0 && age < flightTime {
			return f
		}
		f.cancel()
	}
	ctx, cancel := context.WithTimeoutCause(context.WithoutCancel(ctx), flightTime, errSlow)
	f := &flight{began: now, cancel: cancel, done: make(chan struct{})}
	a.flight = f
	go a.read(ctx, f, a.current)
	return f
}

// read reads the store, beginning from what is known.
func (a *Authorizer) read(ctx context.Context, f *flight, known *snapshot) {
	defer close(f.done)
	defer f.cancel()
	next, err := known.next(ctx, a.cfg.Store, a.cfg.Log)
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.flight != f {
		return // given up
	}
	a.flight = nil
	if err != nil {
		a.failed, a.err = a.now(), err
		a.cfg.Log.Warn("roles and bindings cannot be read", "error", err.Error(), "age", a.now().Sub(a.asOf).String())
		return
	}
	a.current, a.asOf, a.failed, a.err = next, f.began, time.Time{}, nil
}

func (a *Authorizer) now() time.Time { return a.cfg.Now().Round(0) }

func unavailable(err error) error {
	return &status.Error{Reason: status.StoreUnavailable, Err: err, RetryAfter: max(2*time.Second, objects.RetryAfter(err)),
		Message: "the gateway cannot read its roles and bindings now, and so refuses; try again"}
}

// Latest returns the Policy of what was written before the call. It reads the store each time: it is for decisions about writing roles
// and bindings, where what was granted a moment ago counts.
func (a *Authorizer) Latest(ctx context.Context) (*Policy, error) {
	ctx, cancel := context.WithTimeoutCause(ctx, flightTime, errSlow)
	defer cancel()
	a.mu.Lock()
	known := a.current
	a.mu.Unlock()
	now, err := known.next(ctx, a.cfg.Store, a.cfg.Log)
	if err != nil {
		return nil, unavailable(err)
	}
	return now.policy, nil
}
