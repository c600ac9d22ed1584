package identity

import (
	"context"
	"fmt"
	"net/http"
	"net/netip"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/clusterpass/clusterpass/shared/eks/ststest"
	"github.com/clusterpass/clusterpass/shared/limits"
	"github.com/clusterpass/clusterpass/shared/status"
	"github.com/clusterpass/clusterpass/shared/waittest"
)

// madeUp returns a token that a stranger without AWS credentials invented. Only STS can reject it.
func madeUp(n int, at time.Time) string {
	made := strings.Replace(goodURL, "20260102T030405Z", at.UTC().Format(stsDate), 1)
	made = strings.Replace(made, "AKIDEXAMPLE", fmt.Sprintf("AKIDMADEUP%d", n), 1)
	return eksToken(made)
}

func isMadeUp(r *http.Request) bool { return strings.Contains(r.URL.RawQuery, "AKIDMADEUP") }

func from(ctx context.Context, address string) context.Context {
	return limits.WithSource(ctx, limits.SourceOf(netip.MustParseAddr(address)))
}

func slowSTS(t *testing.T) (s *ststest.STS, release func()) {
	t.Helper()
	s, released := ststest.New(t), make(chan struct{})
	release = sync.OnceFunc(func() { close(released) })
	t.Cleanup(release) // before the server closes
	s.Instead(func(w http.ResponseWriter, r *http.Request) {
		if isMadeUp(r) {
			<-released
		}
		s.Identity(w)
	})
	return s, release
}

// Otherwise a stranger with many source addresses locks out all users.
func TestMadeUpTokensDoNotBlockKnownKeys(t *testing.T) {
	s, release := slowSTS(t)
	c := newClock()
	e := eksOf(t, s, c)
	token := awsToken(t, "gateway-1", c.now())
	if _, err := e.AuthenticateToken(from(t.Context(), "192.0.2.1"), token); err != nil {
		t.Fatal(err)
	}
	asked := s.Asked.Load()
	var strangers sync.WaitGroup
	ctx, cancelStrangers := context.WithCancel(t.Context())
	for n := range 2 * maxCalls {
		strangers.Go(func() {
			_, _ = e.AuthenticateToken(from(ctx, fmt.Sprintf("198.51.100.%d", n)), madeUp(n, c.now()))
		})
	}
	waittest.Until(t, "made-up tokens occupy their slots", func() bool { return s.Asked.Load()-asked >= maxCalls })
	c.pass(eksCached) // STS must be called about the user again
	user, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	if _, err := e.AuthenticateToken(from(user, "192.0.2.1"), token); err != nil {
		t.Errorf("the token of a known key: %v", err)
	}
	again := awsToken(t, "gateway-1", c.now())
	if _, err := e.AuthenticateToken(from(user, "198.51.100.1"), again); err != nil {
		t.Errorf("a new token of a known key, from the address of the attack: %v", err)
	}
	cancelStrangers()
	strangers.Wait()
	release()
	waittest.Until(t, "the calls have ended", func() bool { return len(e.lanes.others) == 0 })
}

// One address that sends invented tokens must not keep new users at other addresses from signing in.
func TestSourceOfMadeUpTokensIsLimited(t *testing.T) {
	s, c := ststest.New(t), newClock()
	e := eksOf(t, s, c)
	limited := 0
	for n := range 2 * defaultUnknownPerMinute {
		_, err := e.AuthenticateToken(from(t.Context(), "198.51.100.1"), madeUp(n, c.now()))
		if refusal := status.From(err); refusal.Reason == status.TooManyRequests {
			limited++
			if refusal.RetryAfter <= 0 || !strings.Contains(refusal.Message, "try again later") {
				t.Fatalf("%v, after %v", refusal, refusal.RetryAfter)
			}
		}
	}
	if asked := s.Asked.Load(); asked != defaultUnknownPerMinute || limited != defaultUnknownPerMinute {
		t.Errorf("STS was asked %d times, %d tokens were refused unasked", asked, limited)
	}
	if _, err := e.AuthenticateToken(from(t.Context(), "192.0.2.1"), awsToken(t, "gateway-1", c.now())); err != nil {
		t.Errorf("a new user at another address: %v", err)
	}
	_, err := e.AuthenticateToken(t.Context(), madeUp(0, c.now().Add(time.Second)))
	if status.From(err).Reason != status.Unauthenticated {
		t.Errorf("an unknown address is limited: %v", err)
	}
}

// A script that repeats one refused token must not cost a call of STS each time.
func TestRefusalIsRemembered(t *testing.T) {
	s, c := ststest.New(t), newClock()
	e := eksOf(t, s, c)
	token := madeUp(1, c.now())
	for range 100 {
		u, err := e.AuthenticateToken(t.Context(), token)
		wantRefused(t, u, err, "AWS does not accept the token, or it is not for this gateway: "+
			"get one with --cluster-name gateway-1")
	}
	if asked := s.Asked.Load(); asked != 1 {
		t.Errorf("STS was asked %d times", asked)
	}
	c.pass(eksRefused)
	if _, err := e.AuthenticateToken(t.Context(), token); err == nil || s.Asked.Load() != 2 {
		t.Errorf("after a while: %v, asked %d times", err, s.Asked.Load())
	}
}

// A token must not choose a distant or a disabled region, whose STS is slow.
func TestTokenOfAnotherRegionIsNotSent(t *testing.T) {
	s, c := ststest.New(t), newClock()
	e := eksOf(t, s, c)
	e.cfg.Regions = []string{ststest.Region}
	if _, err := e.AuthenticateToken(t.Context(), awsToken(t, "gateway-1", c.now())); err != nil {
		t.Fatal(err)
	}
	date := c.now().UTC().Format(stsDate)
	for host, region := range map[string]string{
		"sts.ap-southeast-2.amazonaws.com": "ap-southeast-2", "sts.us-east-2.api.aws": "us-east-2",
		"sts.amazonaws.com": GlobalRegion,
	} {
		made := strings.Replace(strings.Replace(goodURL, ststest.Host, host, 1), "20260102T030405Z", date, 1)
		u, err := e.AuthenticateToken(t.Context(), eksToken(made))
		wantRefused(t, u, err, "the AWS token was not checked: it is for AWS STS of "+region+
			"; get one with --region eu-west-1")
	}
	if asked := s.Asked.Load(); asked != 1 {
		t.Errorf("STS was asked %d times", asked)
	}
}

// The id of an access key is not secret. A stranger with the id must not occupy the slots of all accepted keys.
func TestStolenKeyIDIsLimited(t *testing.T) {
	l := newSTSLanes(0, time.Now)
	stolen, other := newCredentialKey("AKIDSTOLEN", ""), newCredentialKey("AKIDOTHER", "")
	l.accept(stolen)
	l.accept(other)
	for range maxCallsPerKey {
		release, err := l.acquire(t.Context(), stolen)
		if err != nil {
			t.Fatal(err)
		}
		defer release()
	}
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := l.acquire(ended, stolen); status.From(err).Reason != status.TooManyRequests {
		t.Errorf("one more call: %v", err)
	}
	if release, err := l.acquire(t.Context(), other); err != nil {
		t.Errorf("another key: %v", err)
	} else {
		release()
	}
	if len(l.accepted) != maxCallsPerKey {
		t.Errorf("%d slots are used", len(l.accepted))
	}
	if _, ok := l.keys.Get(newCredentialKey("AKIDSTOLEN", "session")); ok {
		t.Error("another session of the key is accepted")
	}
}

// Without a bound, a stranger could make the gateway keep a goroutine for each invented token.
func TestMadeUpTokensThatWaitAreBounded(t *testing.T) {
	s, release := slowSTS(t)
	c := newClock()
	e := eksOf(t, s, c)
	ctx, cancel := context.WithCancel(t.Context())
	var strangers sync.WaitGroup
	for n := range maxCalls + maxWaiting {
		strangers.Go(func() { _, _ = e.AuthenticateToken(ctx, madeUp(n, c.now())) })
	}
	waittest.Until(t, "all places are occupied", func() bool { return len(e.lanes.waiting) == cap(e.lanes.waiting) })
	_, err := e.AuthenticateToken(t.Context(), madeUp(maxCalls+maxWaiting, c.now()))
	if refusal := status.From(err); refusal.Reason != status.TooManyRequests || refusal.RetryAfter == 0 {
		t.Errorf("one token more: %v", err)
	}
	cancel()
	strangers.Wait()
	release()
	waittest.Until(t, "the places are free again", func() bool { return len(e.lanes.waiting) == 0 })
}
