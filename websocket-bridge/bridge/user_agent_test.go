package bridge

import (
	"io"
	"net/http"
	"strings"
	"testing"

	"github.com/clusterpass/clusterpass/websocket-bridge/text"
)

// TestMembersSeeTheCallersUserAgent fails if a member's audit log does not name the program that opened a stream.
func TestMembersSeeTheCallersUserAgent(t *testing.T) {
	const agent = "kubectl/v1.36.0 (linux/amd64)"
	for _, tt := range []struct{ name, path, protocol, want string }{ // want is the last upgrade that the member sees
		{"watch", watchPath, "", ""},
		{"log as text", logPath, text.Protocol, ""},
		{"exec by websocket, translated to SPDY", translated, "v5.channel.k8s.io", "spdy/3.1"},
		{"exec as text", translated, text.Protocol, "spdy/3.1"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			seen := make(chan [2]string, 20)
			hs := serve(t, Limits{}, Drain{}, func(w http.ResponseWriter, r *http.Request) {
				upgrade := r.Header.Get("Upgrade")
				seen <- [2]string{strings.ToLower(upgrade), r.UserAgent()}
				if upgrade == "websocket" {
					http.Error(w, "what is a websocket?", http.StatusBadRequest)
					return
				}
				w.Header().Set("Content-Type", "application/json")
				w.WriteHeader(http.StatusNotFound)
				_, _ = io.WriteString(w, `{"kind":"Status","code":404}`)
			})
			if tt.protocol == "" {
				hs.get("alice", tt.path, "User-Agent: "+agent)
			} else if _, _, err := hs.dial("alice", tt.path, http.Header{"User-Agent": {agent}}, tt.protocol); err == nil {
				t.Error("the member refuses every session")
			}
			last := <-seen
			for more := true; more; {
				if last[1] != agent {
					t.Errorf("the member sees the User-Agent %q with the upgrade %q", last[1], last[0])
				}
				select {
				case last = <-seen:
				default:
					more = false
				}
			}
			if last[0] != tt.want {
				t.Errorf("the member sees the upgrade %q, want %q", last[0], tt.want)
			}
		})
	}
}
