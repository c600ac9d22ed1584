package bridge

import (
	"bufio"
	"crypto/tls"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"

	"github.com/clusterpass/clusterpass/shared/api/cluster/v1alpha1"
	"github.com/clusterpass/clusterpass/shared/gatewaytest"
	"github.com/clusterpass/clusterpass/shared/limits"
	"github.com/clusterpass/clusterpass/shared/waittest"
)

const openPath = "/clusters/open/api/v1/pods"

var behindBalancer = Unidentified{Source: limits.ForwardedSource}

// openServer is a bridge with a passthrough cluster named open. Its member accepts tokens that begin with good, and
// answers others with 401 after release.
func openServer(t *testing.T, l Limits) (hs *bridgeServer, release func()) {
	t.Helper()
	released := make(chan struct{})
	hs = serve(t, l, Drain{}, stays)
	hs.addMember("open", func(w http.ResponseWriter, r *http.Request) {
		switch {
		case !strings.HasPrefix(r.Header.Get("Authorization"), "Bearer good"):
			select {
			case <-released:
			case <-r.Context().Done():
			}
			w.WriteHeader(http.StatusUnauthorized)
		case r.URL.Query().Has("watch"):
			stays(w, r)
		}
	}, func(s *v1alpha1.ClusterSpec) { s.Identity = v1alpha1.Passthrough })
	return hs, func() { close(released) }
}

// sender returns headers as a load balancer forwards them for a client at an address.
func sender(token, address string) []string {
	return []string{"Authorization: Bearer " + token, "X-Forwarded-For: " + address}
}

func (hs *bridgeServer) list(token, address string) *http.Response {
	hs.t.Helper()
	resp, _ := hs.get("", openPath, sender(token, address)...)
	return resp
}

// postWithoutBody never sends its body. It returns once the bridge waits for the body, or responds.
func (hs *bridgeServer) postWithoutBody(token, address, length string) {
	hs.t.Helper()
	conn, err := tls.Dial("tcp", hs.addr, hs.tls(""))
	if err != nil {
		hs.t.Fatal(err)
	}
	hs.t.Cleanup(func() { _ = conn.Close() })
	head := []string{"POST " + openPath + " HTTP/1.1", "Host: x", "Expect: 100-continue", length}
	head = append(head, sender(token, address)...)
	if _, err := io.WriteString(conn, strings.Join(head, "\r\n")+"\r\n\r\n"); err != nil {
		hs.t.Fatal(err)
	}
	if _, err := bufio.NewReader(conn).ReadString('\n'); err != nil { // 100 Continue, or an error
		hs.t.Fatal(err)
	}
}

// TestBodyThatNeverComesOccupiesNoSlot: one client with a made-up token must not lock out all users of such clusters.
func TestBodyThatNeverComesOccupiesNoSlot(t *testing.T) {
	waiting := behindBalancer
	waiting.MaxUnknown = 2 // bodies that may be awaited; there is one slot
	for name, length := range map[string]string{
		"a small body": "Content-Length: 100", "a large body": "Content-Length: 3000000",
		"a body of unknown length": "Transfer-Encoding: chunked",
	} {
		t.Run(name, func(t *testing.T) {
			hs, _ := openServer(t, Limits{MaxUnverified: 1, Unidentified: waiting})
			hs.postWithoutBody("made-up", "198.51.100.1", length)
			if resp := hs.list("good", "192.0.2.1"); resp.StatusCode != http.StatusOK {
				t.Errorf("a user beside it: %s", resp.Status)
			}
		})
	}
}

// TestLimitOfAcceptedTokensIsNamed: a user whose token the cluster accepted must not read that no cluster accepted it.
func TestLimitOfAcceptedTokensIsNamed(t *testing.T) {
	hs, _ := openServer(t, Limits{MaxUnverified: 1, Unidentified: behindBalancer})
	if resp := hs.list("good", "192.0.2.1"); resp.StatusCode != http.StatusOK {
		t.Fatal(resp.Status)
	}
	if resp, _ := hs.get("", openPath+"?watch=true", sender("good-2", "192.0.2.2")...); resp.StatusCode != http.StatusOK {
		t.Fatal(resp.Status)
	}
	gatewaytest.WantStatus(t, hs.list("good", "192.0.2.1"), http.StatusTooManyRequests, "too_many_requests",
		"tokens that only clusters can verify; try again later")
	if n := hs.metric("clusterpass_calls_refused_total", "limit=unverified"); n != 1 {
		t.Errorf("%v calls were refused", n)
	}
}

// TestOneCallerLeavesSlotsForOthers: the owner of one valid token, or one address with many, must not lock out all
// users of passthrough clusters. Neither bodies that never arrive nor watches may do that.
func TestOneCallerLeavesSlotsForOthers(t *testing.T) {
	one := func(text string) func(int) string { return func(int) string { return text } }
	each := func(format string) func(int) string { return func(n int) string { return fmt.Sprintf(format, n) } }
	for name, tt := range map[string]struct {
		token, address func(n int) string
		limit          string
		want           float64 // refusals
	}{
		"one token":   {one("good-greedy"), each("198.51.100.%d"), "limit=caller", 10},
		"one address": {each("good-%d"), one("198.51.100.1"), "limit=source", 8},
	} {
		for kind, occupy := range map[string]func(hs *bridgeServer, token, address string){
			"bodies": func(hs *bridgeServer, token, address string) {
				hs.postWithoutBody(token, address, "Content-Length: 1")
			},
			"watches": func(hs *bridgeServer, token, address string) {
				hs.get("", openPath+"?watch=true", sender(token, address)...)
			},
		} {
			t.Run(name+", "+kind, func(t *testing.T) {
				hs, _ := openServer(t, Limits{MaxUnverified: 8, Unidentified: behindBalancer})
				for n := range 12 {
					if resp := hs.list(tt.token(n), tt.address(n)); resp.StatusCode != http.StatusOK {
						t.Fatal(resp.Status)
					}
				}
				if resp := hs.list("good", "192.0.2.1"); resp.StatusCode != http.StatusOK {
					t.Fatal(resp.Status)
				}
				for n := range 12 {
					occupy(hs, tt.token(n), tt.address(n))
				}
				if resp := hs.list("good", "192.0.2.1"); resp.StatusCode != http.StatusOK {
					t.Errorf("a user beside it: %s", resp.Status)
				}
				if n := hs.metric("clusterpass_calls_refused_total", tt.limit); n != tt.want {
					t.Errorf("%v calls were refused, want %v", n, tt.want)
				}
			})
		}
	}
}

// TestJunkTokensDoNotStarveAcceptedTokens: users of recently accepted tokens must be served during an attack.
func TestJunkTokensDoNotStarveAcceptedTokens(t *testing.T) {
	hs, release := openServer(t, Limits{
		MaxUnverified: 12, Unidentified: Unidentified{MaxUnknown: 2, Source: limits.ForwardedSource},
	})
	for _, path := range []string{openPath, openPath + "?watch=true"} {
		if resp, _ := hs.get("", path, sender("good", "192.0.2.1")...); resp.StatusCode != http.StatusOK {
			t.Fatalf("%s: %s", path, resp.Status)
		}
	}
	var answers []func() int
	for n := range 2 { // the member does not respond to these
		junk := sender(fmt.Sprintf("junk-%d", n), fmt.Sprintf("198.51.100.%d", n))
		answers = append(answers, hs.hang("", openPath, junk...))
	}
	waittest.Until(t, "the junk is in flight", func() bool { return hs.metric("clusterpass_calls_open") == 2 })
	for n := range 4 {
		hs.postWithoutBody(fmt.Sprintf("junk-with-body-%d", n), fmt.Sprintf("203.0.113.%d", n), "Content-Length: 100")
	}
	resp := hs.list("new", "192.0.2.2")
	if resp.Header.Get("Retry-After") == "" {
		t.Error("no Retry-After")
	}
	gatewaytest.WantStatus(t, resp, http.StatusTooManyRequests, "too_many_requests",
		"tokens that their cluster did not accept in the last 10 minutes; try again later")
	for range 3 {
		if resp := hs.list("good", "198.51.100.1"); resp.StatusCode != http.StatusOK {
			t.Errorf("an accepted token: %s", resp.Status)
		}
	}
	if n := hs.metric("clusterpass_calls_refused_total", "limit=unknown"); n != 3 {
		t.Errorf("%v calls were refused, want two with bodies and one without", n)
	}
	release()
	for _, code := range answers {
		if got := code(); got != http.StatusUnauthorized {
			t.Errorf("answer %d", got)
		}
	}
}

// TestJunkTokensOfOneSourceAreLimited: one address with many made-up tokens must leave slots for new users elsewhere.
// Callers with unknown addresses must not count as one.
func TestJunkTokensOfOneSourceAreLimited(t *testing.T) {
	hs, release := openServer(t, Limits{
		MaxUnverified: 6, Unidentified: Unidentified{MaxUnknown: 6, MaxUnknownPerSource: 2, Source: limits.ForwardedSource},
	})
	defer release()
	const greedy = "2001:db8:0:1::"
	for n := range 2 {
		hs.hang("", openPath, sender(fmt.Sprintf("junk-%d", n), fmt.Sprintf("%s%d", greedy, n))...)
	}
	waittest.Until(t, "the junk is in flight", func() bool { return hs.metric("clusterpass_calls_open") == 2 })
	resp := hs.list("junk", greedy+"ff")
	gatewaytest.WantStatus(t, resp, http.StatusTooManyRequests, "too_many_requests", "your address has 2 calls in flight")
	if resp := hs.list("good", "2001:db8:0:2::1"); resp.StatusCode != http.StatusOK {
		t.Errorf("a new user at another address: %s", resp.Status)
	}
	for n := range 3 { // addresses that the load balancer did not write
		hs.hang("", openPath, "Authorization: Bearer junk-of-nowhere-"+fmt.Sprint(n))
	}
	waittest.Until(t, "calls of unknown addresses are in flight", func() bool {
		return hs.metric("clusterpass_calls_open") == 5
	})
	if n := hs.metric("clusterpass_calls_refused_total", "limit=source"); n != 1 {
		t.Errorf("%v calls were refused", n)
	}
}

// TestRefusedTokenIsForgotten: a token that its cluster refuses now must not use the slots of accepted tokens.
func TestRefusedTokenIsForgotten(t *testing.T) {
	u := newUnverified(Limits{}, nil)
	isAccepted := func() bool {
		c, err := u.begin(limits.Source{}, "open", "token")
		if err != nil {
			t.Fatal(err)
		}
		defer c.End()
		return c.IsAccepted()
	}
	for _, tt := range []struct {
		code int
		want bool
	}{
		{http.StatusServiceUnavailable, false},
		{http.StatusTooManyRequests, false},
		{http.StatusBadRequest, false},
		{http.StatusFound, false},
		{http.StatusForbidden, true},
		{http.StatusBadGateway, true},
		{http.StatusUnauthorized, false},
		{http.StatusSwitchingProtocols, true},
	} {
		c, err := u.begin(limits.Source{}, "open", "token")
		if err != nil {
			t.Fatal(err)
		}
		if err := c.ObserveResponse(tt.code); err != nil {
			t.Fatal(err)
		}
		c.End()
		if got := isAccepted(); got != tt.want {
			t.Errorf("accepted after %d: %v", tt.code, got)
		}
	}
	if c, _ := u.begin(limits.Source{}, "another", "token"); c.IsAccepted() {
		t.Error("the token is accepted for another cluster")
	}
}
