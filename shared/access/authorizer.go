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

// Ages of a Policy. They are wall-clock times, because the monotonic clock may stop while a process is frozen.
const (
	freshFor = 2 * time.Second
	// A Policy between freshFor and waitFrom is renewed in the background. For an older one, a request waits up to
	// patience for the store.
	waitFrom = 3 * time.Second
	patience = 2 * time.Second
	// MaxAge is the maximum age of a Policy that is used for decisions.
	MaxAge = 30 * time.Second
	// flightTime is the deadline of one read of the store. retryAfter is the pause after a failed read.
	flightTime = 10 * time.Second
	retryAfter = time.Second
)

// Config configures an Authorizer.
type Config struct {
	Store Store
	Log   *slog.Logger     // for unreadable objects and failed reads; nil means slog.Default()
	Now   func() time.Time // nil means time.Now
}

// Authorizer decides by the roles and bindings in a store. Changes there are effective within 3 s. While the store is
// unavailable or slow, it uses the last Policy for up to MaxAge. It is safe for concurrent use. Concurrent callers
// share one read, which ends within 10 s. It is no cache.Cache, because it follows the revisions of the store.
type Authorizer struct {
	cfg Config

	mu      sync.Mutex
	current *snapshot
	asOf    time.Time // current includes every write that was completed by then
	flight  *flight   // the read in progress, or nil
	failed  time.Time // time of the last read if it failed, otherwise zero
	err     error     // error of the last read
}

type flight struct {
	began  time.Time
	cancel context.CancelFunc
	done   chan struct{}
	slow   bool // a request has waited for the read as long as patience; guarded by Authorizer.mu
}

// NewAuthorizer returns an Authorizer, which reads the store at the first request.
func NewAuthorizer(cfg Config) *Authorizer {
	if cfg.Log == nil {
		cfg.Log = slog.Default()
	}
	if cfg.Now == nil {
		cfg.Now = time.Now
	}
	return &Authorizer{cfg: cfg}
}

// Authorize returns nil if u may do attrs, and otherwise a *status.Error of reason Forbidden or StoreUnavailable.
func (a *Authorizer) Authorize(ctx context.Context, u *identity.User, attrs Attributes) error {
	_, err := a.Decide(ctx, u, attrs)
	return err
}

// Decide is like Authorize, and also returns the reason of the decision for the audit log.
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

// Ready reports whether the Policy is young enough for a decision without the store.
func (a *Authorizer) Ready() bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.usable(a.now())
}

// Policy returns the current Policy. Its errors are *status.Error with reason StoreUnavailable.
func (a *Authorizer) Policy(ctx context.Context) (*Policy, error) {
	called := a.now()
	if p, f, err := a.policyOrFlight(ctx, called); f == nil {
		return p, err
	}
	return a.waitForPolicy(ctx, called)
}

func (a *Authorizer) waitForPolicy(ctx context.Context, called time.Time) (*Policy, error) {
	ctx, cancel := context.WithTimeoutCause(ctx, flightTime, errSlow)
	defer cancel()
	for {
		p, f, err := a.policyOrFlight(ctx, called)
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
			return a.stalePolicy(f)
		case <-ctx.Done():
			return nil, unavailable(context.Cause(ctx))
		}
	}
}

var errSlow = errors.New("the object store does not answer")

// policyOrFlight returns the Policy for a request that began at called, the read to wait for, or an error. If it
// returns both, the caller may use the Policy if the read is slow.
func (a *Authorizer) policyOrFlight(ctx context.Context, called time.Time) (*Policy, *flight, error) {
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
	case age < waitFrom, age < MaxAge && f.slow: // a frozen process makes the duration of a read meaningless
		return a.current.policy, nil, nil
	case age < MaxAge:
		return a.current.policy, f, nil
	}
	return nil, f, nil
}

// usable reports whether current is young enough. An age below zero means that the clock was set back.
func (a *Authorizer) usable(now time.Time) bool {
	age := now.Sub(a.asOf)
	return a.current != nil && age >= 0 && age < MaxAge
}

// stalePolicy returns the current Policy if it is usable. It marks f as slow, so that other requests do not wait for
// it.
func (a *Authorizer) stalePolicy(f *flight) (*Policy, error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	f.slow = true
	if !a.usable(a.now()) {
		return nil, unavailable(errSlow)
	}
	return a.current.policy, nil
}

// start returns the read in progress, or starts one. It replaces a read older than flightTime, which was frozen with
// the process and may never end.
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

func (a *Authorizer) read(ctx context.Context, f *flight, known *snapshot) {
	defer close(f.done)
	defer f.cancel()
	next, err := known.next(ctx, a.cfg.Store, a.cfg.Log)
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.flight != f {
		return // replaced by start
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
	return &status.Error{Reason: status.StoreUnavailable, Err: err,
		RetryAfter: max(2*time.Second, objects.RetryAfter(err)),
		Message:    "access cannot be decided: the gateway cannot read its roles and bindings; try again"}
}

// Latest returns a Policy that includes every write completed before the call. It reads the store each time. Decisions
// about writes of roles and bindings need it.
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
