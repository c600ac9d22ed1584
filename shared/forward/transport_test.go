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
		{"fleet with many members", Call{IsFleet: true, Together: cluster.Many + 1}, "", m.Streams},
		{"fleet with very many members", Call{IsFleet: true, Together: cluster.VeryMany + 1}, "", m.Merged},
		{"stream", Call{Request: route.Request{IsStream: true}}, "", m.Streams},
		{"stream of a fleet with very many members",
			Call{Request: route.Request{IsStream: true}, IsFleet: true, Together: cluster.VeryMany + 1}, "", m.Streams},
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
