package text

import (
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/gorilla/websocket"

	"github.com/clusterpass/clusterpass/shared/forward"
	"github.com/clusterpass/clusterpass/shared/route"
)

// member switches protocols and ends at once. accept replaces the correct value of Sec-WebSocket-Accept.
type member struct{ accept string }

func (m member) Do(_, ws http.ResponseWriter, r *http.Request, _ *forward.Call) error {
	if m.accept == "" {
		u := websocket.Upgrader{Subprotocols: []string{"v5.channel.k8s.io"}}
		conn, err := u.Upgrade(ws, r, nil)
		if err == nil {
			_ = conn.Close()
		}
		return err
	}
	conn, _, err := http.NewResponseController(ws).Hijack()
	if err == nil {
		_, err = io.WriteString(conn,
			"HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\nSec-WebSocket-Accept: "+
				m.accept+"\r\n\r\n")
	}
	return err
}

func TestSwitch(t *testing.T) {
	for name, tt := range map[string]struct {
		accept string // sent by the member; "" is the correct one
		want   int
	}{
		"ends at once":     {"", http.StatusSwitchingProtocols},
		"switches wrongly": {"wrong", http.StatusBadGateway},
	} {
		t.Run(name, func(t *testing.T) {
			e := &Endpoint{Upgrades: member{tt.accept}}
			srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				to := route.Route{Cluster: "m", Path: "/api/v1/namespaces/a/pods/p/exec"}
				c := &forward.Call{Request: route.NewRequest(r.Method, to, "", r.Header)}
				if err := e.Do(w, w, r, c); err != nil {
					http.Error(w, err.Error(), http.StatusBadGateway)
				}
			}))
			defer srv.Close()
			d := websocket.Dialer{Subprotocols: []string{Protocol}}
			for range 200 { // the order of events is random
				conn, resp, err := d.DialContext(t.Context(), "ws"+strings.TrimPrefix(srv.URL, "http"), nil)
				if resp == nil || resp.StatusCode != tt.want {
					t.Fatalf("%v, %v; want %d", resp, err, tt.want)
				}
				if conn != nil {
					_ = conn.Close()
				}
			}
		})
	}
}
