package identity

import (
	"context"
	"crypto/sha256"
	"errors"
	"sync"
	"time"

	"github.com/clusterpass/clusterpass/shared/cache"
	"github.com/clusterpass/clusterpass/shared/limits"
	"github.com/clusterpass/clusterpass/shared/status"
)

const (
	// maxCalls is the maximum number of concurrent calls to STS in each lane, and maxCallsPerKey for one accepted
	// credential.
	maxCalls       = 32
	maxCallsPerKey = 4
	// keyAccepted starts with a credential's last success. Sessions of AWS last up to 12 hours.
	keyAccepted     = 12 * time.Hour
	maxAcceptedKeys = 4096
	// maxWaiting is the maximum number of calls that wait for a slot in the lane of other credentials, and
	// maxWaitingPerKey for one accepted credential. Further calls are refused at once.
	maxWaiting              = 8 * maxCalls
	maxWaitingPerKey        = 8 * maxCallsPerKey
	defaultUnknownPerMinute = 120
	laneRetry               = time.Second
)

// credentialKey hashes the id of the access key and the session token. An id is no secret, so it must not open the lane
// of accepted credentials alone.
type credentialKey [sha256.Size]byte

func newCredentialKey(accessKey, sessionToken string) credentialKey {
	return sha256.Sum256([]byte(accessKey + "\x00" + sessionToken))
}

// stsLanes limits the calls to STS, which alone can reject invented tokens. Credentials that STS accepted in the last
// 12 hours have their own slots. All others are limited by the source address of the request. It is safe for concurrent
// use.
type stsLanes struct {
	now              func() time.Time
	accepted, others chan struct{} // slots
	waiting          chan struct{} // a place for each call of others, with a slot or waiting
	sources          *limits.SourceRate

	mu   sync.Mutex // makes the lookup and the addition of a key atomic
	keys *cache.Expiring[credentialKey, acceptedKey]
}

type acceptedKey struct {
	slots, waiting chan struct{}
}

func newSTSLanes(unknownPerMinute int, now func() time.Time) *stsLanes {
	if unknownPerMinute == 0 {
		unknownPerMinute = defaultUnknownPerMinute
	}
	return &stsLanes{
		now: now, accepted: make(chan struct{}, maxCalls), others: make(chan struct{}, maxCalls),
		waiting: make(chan struct{}, maxCalls+maxWaiting),
		sources: limits.NewSourceRate(unknownPerMinute, now),
		keys:    cache.NewExpiring[credentialKey, acceptedKey](maxAcceptedKeys, now),
	}
}

// acquire blocks until a call of STS with a credential may begin, or ctx ends. Call release when the call has ended.
// The error is a *status.Error of reason TooManyRequests.
func (l *stsLanes) acquire(ctx context.Context, key credentialKey) (release func(), err error) {
	if k, ok := l.keys.Get(key); ok {
		return acquireAll(ctx, k.waiting, k.slots, l.accepted)
	}
	if after, ok := l.sources.Allow(limits.SourceFrom(ctx)); !ok {
		return nil, &status.Error{
			Reason: status.TooManyRequests, RetryAfter: after,
			Message: "the AWS token was not checked: your address sends too many tokens of AWS credentials that are new here; " +
				"try again later",
		}
	}
	return acquireAll(ctx, l.waiting, l.others)
}

// acquireAll blocks until it has one slot of each lane, in their order, or ctx ends. It returns an error at once if
// waiting is full.
func acquireAll(ctx context.Context, waiting chan struct{}, lanes ...chan struct{}) (release func(), err error) {
	select {
	case waiting <- struct{}{}:
		release = func() { <-waiting }
	default:
		return nil, errNoSlot("too many calls of STS wait")
	}
	for _, lane := range lanes {
		select {
		case lane <- struct{}{}:
			before := release
			release = func() { <-lane; before() }
		case <-ctx.Done():
			release()
			return nil, errNoSlot("no slot for a call of STS")
		}
	}
	return release, nil
}

func errNoSlot(cause string) error {
	return &status.Error{
		Reason: status.TooManyRequests, RetryAfter: laneRetry, Err: errors.New(cause),
		Message: "the AWS token was not checked: the gateway checks too many others now; try again",
	}
}

func (l *stsLanes) accept(key credentialKey) {
	l.mu.Lock()
	defer l.mu.Unlock()
	k, ok := l.keys.Get(key)
	if !ok {
		k.slots = make(chan struct{}, maxCallsPerKey)
		k.waiting = make(chan struct{}, maxCallsPerKey+maxWaitingPerKey)
	}
	l.keys.Add(key, k, l.now().Add(keyAccepted))
}
