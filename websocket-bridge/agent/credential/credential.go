// Package credential stores, exchanges and renews an agent's credential. Several agents of one cluster may share a
// [Store].
//
// Invariants:
//   - Private keys never leave the agent's cluster.
//   - The key of an exchange is stored before the exchange, so a crash at any time loses nothing.
//   - Agents never exchange one credential for two keys. The gateway would report a theft.
package credential

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"sync"
	"time"

	"github.com/go-jose/go-jose/v4"
	"github.com/go-jose/go-jose/v4/jwt"

	"github.com/clusterpass/clusterpass/shared/passes/possession"
	"github.com/clusterpass/clusterpass/shared/secrets"
	"github.com/clusterpass/clusterpass/shared/status"
	"github.com/clusterpass/clusterpass/shared/version"
)

const (
	callTimeout = 15 * time.Second
	retry       = time.Minute
	minRetry    = time.Second
	// firstRetry is the pause of an agent without a credential. Each of its attempts to connect asks for one, too.
	firstRetry = 10 * time.Second
	maxToken   = 16 << 10 // bytes
	races      = 5
)

// Credential is an agent's credential. It is safe for concurrent use.
type Credential struct {
	Store   Store
	Cluster string
	URL     string // where it is exchanged and renewed
	Client  *http.Client
	Log     *slog.Logger
	Now     func() time.Time // nil means time.Now

	// renewing serializes Renew, which reads and replaces the state.
	renewing sync.Mutex

	mu      sync.Mutex
	current possession.Credential // without a token before the first exchange
	renewal time.Time             // of current
	// isNewest is false while the gateway may have exchanged current and no agent stored the result. Connecting with
	// current would then look like a theft.
	isNewest bool
	refused  string // digest of a bootstrap credential that the gateway has refused
}

func (c *Credential) now() time.Time {
	if c.Now == nil {
		return time.Now()
	}
	return c.Now()
}

// Current returns the credential to connect with. It first exchanges or renews the stored one if that is due. It
// returns an error while the gateway may have exchanged the last known credential.
func (c *Credential) Current(ctx context.Context) (possession.Credential, error) {
	err := c.Renew(ctx)
	c.mu.Lock()
	defer c.mu.Unlock()
	if err != nil && (!c.isNewest || len(c.current.Token.Reveal()) == 0) {
		return possession.Credential{}, err
	}
	return c.current, nil
}

// Load reads the store. It exchanges nothing.
func (c *Credential) Load(ctx context.Context) error {
	_, err := c.load(ctx)
	return err
}

// Run renews the credential until ctx ends.
func (c *Credential) Run(ctx context.Context) {
	for {
		pause := retry
		if err := c.Renew(ctx); err == nil {
			c.mu.Lock()
			pause = max(c.renewal.Sub(c.now()), time.Second)
			c.mu.Unlock()
		} else if ctx.Err() == nil {
			c.Log.Warn("the agent's credential cannot be renewed now", "error", err.Error())
			pause = c.retryPause()
		}
		if !sleep(ctx, pause) {
			return
		}
	}
}

// retryPause returns the pause after a failed renewal.
func (c *Credential) retryPause() time.Duration {
	c.mu.Lock()
	defer c.mu.Unlock()
	begin, end, err := life(c.current.Token)
	if err != nil {
		return firstRetry
	}
	return min(retry, max(end.Sub(begin)/10, minRetry))
}

// life returns the start and the end of a credential, without verifying it.
func life(v secrets.Value) (begin, end time.Time, err error) {
	var claims jwt.Claims
	t, err := jwt.ParseSigned(string(v.Reveal()), []jose.SignatureAlgorithm{jose.ES256})
	if err == nil {
		err = t.UnsafeClaimsWithoutVerification(&claims)
	}
	if err != nil || claims.IssuedAt == nil || claims.Expiry == nil {
		// The parser's error could quote the credential.
		return time.Time{}, time.Time{}, errors.New("the agent's credential is not one of the gateway's; " +
			"have the cluster join again: clusterpass cluster join --pull --replace NAME --group GROUP")
	}
	return claims.IssuedAt.Time(), claims.Expiry.Time(), nil
}

type exchange struct {
	with possession.Credential
	from string // State.From of the result
}

// Renew exchanges the stored credential if it is due: a bootstrap credential at once, others after half of their
// lifetime. It completes an exchange that another agent, or this one before a crash, has started.
func (c *Credential) Renew(ctx context.Context) error {
	c.renewing.Lock()
	defer c.renewing.Unlock()
	for range races {
		err := c.renewOnce(ctx)
		if !errors.Is(err, ErrChanged) {
			return err
		}
	}
	return ErrChanged
}

// renewOnce returns ErrChanged if another agent has written meanwhile.
func (c *Credential) renewOnce(ctx context.Context) error {
	stored, err := c.load(ctx)
	if err != nil {
		return err
	}
	x, err := c.due(stored)
	if err != nil || x == nil {
		return err
	}
	state := stored.State
	if state.For != digest(x.with.Token) || len(state.Next.Reveal()) == 0 {
		key, err := possession.NewKey()
		if err != nil {
			return err
		}
		if state.Next, err = key.PEM(); err != nil {
			return err
		}
		state.For = digest(x.with.Token)
		if err := c.save(ctx, stored, state); err != nil {
			return err
		}
		if stored, err = c.load(ctx); err != nil {
			return err
		}
		if stored.State.For != state.For || !stored.State.Next.Equal(state.Next) {
			return ErrChanged
		}
	}
	next, err := c.requestToken(ctx, x.with, state.Next)
	if errors.Is(err, errRefused) && x.with.Key == nil && len(state.Token.Reveal()) > 0 {
		c.refuse(x.with.Token)
		c.Log.Warn("the bootstrap credential is refused; the agent continues with the previous one", "error", err.Error())
		return nil
	}
	if err != nil {
		return err
	}
	done := State{From: x.from, Token: next, Key: state.Next}
	if err := c.adopt(done); err != nil {
		return err
	}
	c.Log.Info("the agent's credential is renewed")
	return c.save(ctx, stored, done)
}

// due returns the exchange that must be made now, or nil.
func (c *Credential) due(stored Stored) (*exchange, error) {
	bootstrap, state := stored.Bootstrap, stored.State
	hasToken := len(state.Token.Reveal()) > 0
	c.mu.Lock()
	defer c.mu.Unlock()
	if from := digest(bootstrap); len(bootstrap.Reveal()) > 0 && from != state.From && from != c.refused || !hasToken {
		if _, _, err := life(bootstrap); err != nil {
			return nil, err
		}
		return &exchange{possession.Credential{Token: bootstrap}, from}, nil
	}
	if !state.hasBegun() && c.now().Before(c.renewal) {
		return nil, nil
	}
	return &exchange{c.current, state.From}, nil
}

func (c *Credential) refuse(bootstrap secrets.Value) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.refused = digest(bootstrap)
}

// load makes the stored credential the current one. No agent renews a credential in the first half of its lifetime. The
// current one is then the newest, even if the store cannot be read.
func (c *Credential) load(ctx context.Context) (Stored, error) {
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	stored, err := c.Store.Load(ctx)
	if err != nil {
		c.mu.Lock()
		defer c.mu.Unlock()
		c.isNewest = c.now().Before(c.renewal)
		return Stored{}, fmt.Errorf("read the agent's credential: %w", err)
	}
	if len(stored.State.Token.Reveal()) > 0 {
		err = c.adopt(stored.State)
	}
	return stored, err
}

func (c *Credential) save(ctx context.Context, old Stored, s State) error {
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	if err := c.Store.Save(ctx, old, s); err != nil {
		return fmt.Errorf("store the agent's credential: %w", err)
	}
	return nil
}

func (c *Credential) adopt(s State) error {
	begin, end, err := life(s.Token)
	if err != nil {
		return err
	}
	key, err := possession.ParseKey(s.Key)
	if err != nil {
		return err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.current, c.renewal = possession.Credential{Token: s.Token, Key: key}, begin.Add(end.Sub(begin)/2)
	c.isNewest = !s.hasBegun()
	return nil
}

var errRefused = errors.New("the credential is refused")

// requestToken exchanges a credential for one that is bound to next. The gateway receives only the public key.
func (c *Credential) requestToken(
	ctx context.Context, with possession.Credential, next secrets.Value,
) (secrets.Value, error) {
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	key, err := possession.ParseKey(next)
	if err != nil {
		return secrets.Value{}, err
	}
	request, err := key.Request(c.Cluster)
	if err != nil {
		return secrets.Value{}, err
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, c.URL, nil)
	if err != nil {
		return secrets.Value{}, err
	}
	if req.Header, err = with.Header(possession.Renew, request, c.now()); err != nil {
		return secrets.Value{}, err
	}
	req.Header.Set("User-Agent", version.UserAgent())
	resp, err := c.Client.Do(req)
	if err != nil {
		return secrets.Value{}, err
	}
	defer func() { _ = resp.Body.Close() }()
	body, err := io.ReadAll(io.LimitReader(resp.Body, maxToken+1))
	switch {
	case err != nil:
	case len(body) > maxToken:
		err = fmt.Errorf("the bridge's response is over %d bytes", maxToken)
	case resp.StatusCode == http.StatusUnauthorized:
		err = fmt.Errorf("%w: %s", errRefused, explanation(body))
	case resp.StatusCode != http.StatusOK:
		err = fmt.Errorf("the bridge answers %s: %s", resp.Status, explanation(body))
	}
	return secrets.NewValue(body), err
}

// explanation returns the message of a Status, or the start of another body.
func explanation(body []byte) string {
	return cmp.Or(status.MessageOf(body), fmt.Sprintf("%.300s", body))
}

func sleep(ctx context.Context, d time.Duration) bool {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-ctx.Done():
		return false
	case <-t.C:
		return true
	}
}
