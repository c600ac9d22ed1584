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

// TestAnnouncedSettings fails if lists cost more CPU time again, or if each stream kept a buffer for large frames. It
// also fails if lists of far members waited for more round trips. Members send frames of the size that a client
// announces, and at most a window of bytes that it has not read.
func TestAnnouncedSettings(t *testing.T) {
	announced := make(chan settings, 1)
	srv := httptest.NewUnstartedServer(nil)
	srv.TLS = &tls.Config{NextProtos: []string{http2.NextProtoTLS}, MinVersion: tls.VersionTLS12}
	srv.Config.TLSNextProto = map[string]func(*http.Server, *tls.Conn, http.Handler){
		http2.NextProtoTLS: func(_ *http.Server, conn *tls.Conn, _ http.Handler) { announced <- settingsOf(t, conn) },
	}
	srv.StartTLS()
	t.Cleanup(srv.Close)
	m := newTrustingMember(t, srv)
	for _, tt := range []struct {
		name      string
		transport http.RoundTripper
		want      settings
	}{
		{"large buffer", m.ForFleet(LargeBuffer), settings{64 << 10, 2 << 20}},
		{"medium buffer", m.ForFleet(MediumBuffer), settings{16 << 10, 256 << 10}},
		{"small buffer", m.ForFleet(SmallBuffer), settings{16 << 10, 32 << 10}},
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
				t.Errorf("it announces %+v bytes, want %+v", got, tt.want)
			}
		})
	}
}

type settings struct{ frame, window uint32 } // in bytes

// settingsOf returns the settings that a client announces at the beginning of its connection.
func settingsOf(t *testing.T, conn net.Conn) (s settings) {
	if _, err := io.CopyN(io.Discard, conn, int64(len(http2.ClientPreface))); err != nil {
		t.Error(err)
		return s
	}
	frame, err := http2.NewFramer(io.Discard, conn).ReadFrame()
	announced, ok := frame.(*http2.SettingsFrame)
	if !ok {
		t.Errorf("the client began with %v, %v", frame, err)
		return s
	}
	s.frame, _ = announced.Value(http2.SettingMaxFrameSize)
	s.window, _ = announced.Value(http2.SettingInitialWindowSize)
	return s
}
