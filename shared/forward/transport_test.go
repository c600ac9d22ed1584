package forward

import (
	"net/http"
	"testing"

	"github.com/clusterpass/clusterpass/shared/cluster"
	"github.com/clusterpass/clusterpass/shared/route"
)

// TestSelectTransport fails if requests used connections that are made for others. A canceled request of the fleet
// would close one that callers need.
func TestSelectTransport(t *testing.T) {
	m := &cluster.Member{
		REST: &http.Transport{}, Single: &http.Transport{}, Streams: &http.Transport{}, Merged: &http.Transport{},
		Upgrade: &http.Transport{},
	}
	for _, tt := range []struct {
		name     string
		call     Call
		protocol string
		want     http.RoundTripper
	}{
		{"one cluster", Call{}, "", m.Single},
		{"fleet", Call{IsFleet: true}, "", m.REST},
		{"large fleet", Call{IsFleet: true, Buffer: cluster.SmallBuffer}, "", m.Merged},
		{"list of a large fleet", Call{IsFleet: true, Buffer: cluster.MediumBuffer}, "", m.Streams},
		{"stream", Call{Request: route.Request{IsStream: true}}, "", m.Streams},
		{"stream of a large fleet", Call{Request: route.Request{IsStream: true}, IsFleet: true, Buffer: cluster.SmallBuffer},
			"", m.Streams},
		{"upgrade", Call{Request: route.Request{IsStream: true}}, "websocket", m.Upgrade},
	} {
		t.Run(tt.name, func(t *testing.T) {
			tt.call.Member = m
			if got := selectTransport(&tt.call, tt.protocol); got != tt.want {
				t.Error("it uses other connections")
			}
		})
	}
}
