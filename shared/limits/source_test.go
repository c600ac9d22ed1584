package limits

import (
	"net/http"
	"net/netip"
	"testing"
	"time"
)

// A client that writes X-Forwarded-For, or changes its address in a /64, must not escape its limit.
func TestSourceIsWhatTheBalancerWrote(t *testing.T) {
	const balancer = "10.0.0.1:80"
	for name, tt := range map[string]struct {
		mode      SourceMode
		peer      string
		forwarded []string
		want      string
	}{
		"a client":                       {"", "192.0.2.1:4711", nil, "192.0.2.1/32"},
		"a client that writes a header":  {PeerSource, "192.0.2.1:4711", []string{"198.51.100.7"}, "192.0.2.1/32"},
		"a client by IPv6":               {PeerSource, "[2001:db8:1:2:3:4:5:6]:4711", nil, "2001:db8:1:2::/64"},
		"a client on the link":           {PeerSource, "[fe80::1%eth0]:4711", nil, "fe80::/64"},
		"a client by mapped IPv4":        {PeerSource, "[::ffff:192.0.2.1]:4711", nil, "192.0.2.1/32"},
		"a health check of a function":   {PeerSource, "", nil, ""},
		"behind a balancer":              {ForwardedSource, balancer, []string{"192.0.2.1"}, "192.0.2.1/32"},
		"a made-up entry before":         {ForwardedSource, balancer, []string{"198.51.100.7, 192.0.2.1"}, "192.0.2.1/32"},
		"a made-up line before":          {ForwardedSource, balancer, []string{"198.51.100.7", "192.0.2.1"}, "192.0.2.1/32"},
		"with a port":                    {ForwardedSource, balancer, []string{"192.0.2.1:4711"}, "192.0.2.1/32"},
		"a balancer that writes nothing": {ForwardedSource, balancer, nil, ""},
		"no address":                     {ForwardedSource, balancer, []string{"192.0.2.1, unknown"}, ""},
		"a balancer that hides clients":  {NoSource, balancer, []string{"192.0.2.1"}, ""},
	} {
		t.Run(name, func(t *testing.T) {
			r := &http.Request{RemoteAddr: tt.peer, Header: http.Header{}}
			if tt.forwarded != nil {
				r.Header["X-Forwarded-For"] = tt.forwarded
			}
			if got := tt.mode.Source(r).String(); got != tt.want {
				t.Errorf("source %q, want %q", got, tt.want)
			}
		})
	}
}

// TestSourceRateLimitsEachSource: one source that uses up its limit must not use up that of others.
func TestSourceRateLimitsEachSource(t *testing.T) {
	now := time.Now()
	l := NewSourceRate(60, func() time.Time { return now })
	greedy, other := SourceOf(netip.MustParseAddr("192.0.2.1")), SourceOf(netip.MustParseAddr("192.0.2.2"))
	for i := range 60 {
		if _, ok := l.Allow(greedy); !ok {
			t.Fatalf("event %d is refused", i)
		}
	}
	if after, ok := l.Allow(greedy); ok || after <= 0 || after > time.Second {
		t.Errorf("allowed %v, retry after %v", ok, after)
	}
	if _, ok := l.Allow(other); !ok {
		t.Error("another source is refused")
	}
	for range 1000 {
		if _, ok := l.Allow(Source{}); !ok {
			t.Fatal("an unknown source is refused")
		}
	}
	now = now.Add(time.Second)
	if _, ok := l.Allow(greedy); !ok {
		t.Error("refused after the time to wait")
	}
	if _, ok := l.Allow(greedy); ok {
		t.Error("a second event is allowed")
	}
}
