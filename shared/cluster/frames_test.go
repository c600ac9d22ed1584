package cluster

import (
	"crypto/tls"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"testing"

	"golang.org/x/net/http2"
)

// TestFrameSizes fails if lists cost more CPU time again, or if each stream kept a buffer for large frames. Members
// send frames of the size that a client announces.
func TestFrameSizes(t *testing.T) {
	announced := make(chan uint32, 1)
	srv := httptest.NewUnstartedServer(nil)
	srv.TLS = &tls.Config{NextProtos: []string{http2.NextProtoTLS}, MinVersion: tls.VersionTLS12}
	srv.Config.TLSNextProto = map[string]func(*http.Server, *tls.Conn, http.Handler){
		http2.NextProtoTLS: func(_ *http.Server, conn *tls.Conn, _ http.Handler) { announced <- frameSize(t, conn) },
	}
	srv.StartTLS()
	t.Cleanup(srv.Close)
	m := newTrustingMember(t, srv)
	for _, tt := range []struct {
		name      string
		transport http.RoundTripper
		want      uint32
	}{
		{"REST", m.REST, 64 << 10},
		{"Streams", m.Streams, 16 << 10},
		{"Merged", m.Merged, 16 << 10},
	} {
		t.Run(tt.name, func(t *testing.T) {
			r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, srv.URL, nil)
			if err != nil {
				t.Fatal(err)
			}
			if resp, err := tt.transport.RoundTrip(r); err == nil { // the server closes the connection
				_ = resp.Body.Close()
			}
			if got := <-announced; got != tt.want {
				t.Errorf("it announces frames of %d bytes, want %d", got, tt.want)
			}
		})
	}
}

// frameSize returns the size of frames that a client announces at the beginning of its connection.
func frameSize(t *testing.T, conn net.Conn) uint32 {
	if _, err := io.CopyN(io.Discard, conn, int64(len(http2.ClientPreface))); err != nil {
		t.Error(err)
		return 0
	}
	frame, err := http2.NewFramer(io.Discard, conn).ReadFrame()
	settings, ok := frame.(*http2.SettingsFrame)
	if !ok {
		t.Errorf("the client began with %v, %v", frame, err)
		return 0
	}
	size, _ := settings.Value(http2.SettingMaxFrameSize)
	return size
}
