package identity

import (
	"context"
	"crypto/sha256"
	"errors"
	"sync"
	"time"

	lru "github.com/hashicorp/golang-lru/v2"

	"github.com/clusterpass/clusterpass/shared/limits"
	"github.com/clusterpass/clusterpass/shared/status"
)

const (
	// maxCalls is the number of concurrent calls to STS in each lane, and maxCallsPerKey that for one accepted credential.
	maxCalls       = 32
	maxCallsPerKey = 4
	// keyAccepted is how long a credential counts as accepted after its last success. Sessions of AWS last up to 12 hours.
	keyAccepted     = 12 * time.Hour
	maxAcceptedKeys = 4096
	// defaultUnknownPerMinute is used where EKSConfig.UnknownPerMinute is 0.
	defaultUnknownPerMinute = 120
	laneRetry               = time.Second
)

// credentialKey identifies an AWS credential. It hashes the id of the access key and the session token. An id is no
// secret, so it must not open the lane of accepted credentials alone.
type credentialKey [sha256.Size]byte

func newCredentialKey(accessKey, sessionToken string) credentialKey {
	return sha256.Sum256([]byte(accessKey + "\x00" + sessionToken))
}

// stsLanes bounds the calls to STS. Anybody can make tokens up, and STS alone can verify them. Credentials that STS
// accepted lately therefore have slots of their own. All others are limited by the source address of the request. It is
// safe for concurrent use.
type stsLanes struct {
	now              func() time.Time
	accepted, others chan struct{} // slots
	sources          *limits.SourceRate

	mu   sync.Mutex
	keys *lru.Cache[credentialKey, acceptedKey]
}

// acceptedKey is a credential that STS accepted.
type acceptedKey struct {
	until time.Time
	slots chan struct{}
}

func newSTSLanes(unknownPerMinute int, now func() time.Time) *stsLanes {
	if unknownPerMinute == 0 {
		unknownPerMinute = defaultUnknownPerMinute
	}
	keys, err := lru.New[credentialKey, acceptedKey](maxAcceptedKeys)
	if err != nil {
		panic(err) // maxAcceptedKeys is positive
	}
	return &stsLanes{
		now: now, accepted: make(chan struct{}, maxCalls), others: make(chan struct{}, maxCalls),
		sources: limits.NewSourceRate(unknownPerMinute, now), keys: keys,
	}
}

// enter blocks until a call of STS with a credential may begin, or ctx ends. Call leave when the call has ended. The
// error is a *status.Error of reason TooManyRequests.
func (l *stsLanes) enter(ctx context.Context, key credentialKey) (leave func(), err error) {
	if slots, ok := l.slotsOf(key); ok {
		return acquire(ctx, slots, l.accepted)
	}
	if after, ok := l.sources.Allow(limits.SourceFrom(ctx)); !ok {
		return nil, &status.Error{
			Reason: status.TooManyRequests, RetryAfter: after,
			Message: "the AWS token was not checked: your address sends too many tokens of AWS credentials that are new here; " +
				"try again later",
		}
	}
	return acquire(ctx, l.others)
}

// acquire blocks until it has one slot of each lane, in their order, or ctx ends.
func acquire(ctx context.Context, lanes ...chan struct{}) (leave func(), err error) {
	leave = func() {}
	for _, lane := range lanes {
		select {
		case lane <- struct{}{}:
			before := leave
			leave = func() { <-lane; before() }
		case <-ctx.Done():
			leave()
			return nil, &status.Error{
				Reason: status.TooManyRequests, RetryAfter: laneRetry, Err: errors.New("no slot for a call of STS"),
				Message: "the AWS token was not checked: the gateway checks too many others now; try again",
			}
		}
	}
	return leave, nil
}

// slotsOf returns the slots of a credential that was accepted lately.
func (l *stsLanes) slotsOf(key credentialKey) (chan struct{}, bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	k, ok := l.keys.Get(key)
	return k.slots, ok && l.now().Before(k.until)
}

// accept records that STS accepted a credential.
func (l *stsLanes) accept(key credentialKey) {
	l.mu.Lock()
	defer l.mu.Unlock()
	k, ok := l.keys.Get(key)
	if !ok {
		k.slots = make(chan struct{}, maxCallsPerKey)
	}
	k.until = l.now().Add(keyAccepted)
	l.keys.Add(key, k)
}
