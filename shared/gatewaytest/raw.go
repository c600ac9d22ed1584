package gatewaytest

import (
	"bufio"
	"crypto/tls"
	"encoding/json"
	"io"
	"net/http"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// SendRaw sends a request unchanged to a TLS server, and reads the header of the response. r reads its body. The
// connection is closed when the test ends.
func SendRaw(tb testing.TB, addr string, cfg *tls.Config, request string,
) (resp *http.Response, conn *tls.Conn, r *bufio.Reader) {
	tb.Helper()
	dialed, err := (&tls.Dialer{Config: cfg}).DialContext(tb.Context(), "tcp", addr)
	if err != nil {
		tb.Fatal(err)
	}
	conn = dialed.(*tls.Conn)
	tb.Cleanup(func() { _ = conn.Close() })
	if _, err := io.WriteString(conn, request); err != nil {
		tb.Fatal(err)
	}
	r = bufio.NewReader(conn)
	resp, err = http.ReadResponse(r, nil)
	if err != nil {
		tb.Fatal(err)
	}
	return resp, conn, r
}

// WantStatus checks for a Status of the gateway with reason as its only cause, and a message that contains message.
func WantStatus(tb testing.TB, resp *http.Response, code int, reason, message string) {
	tb.Helper()
	body, err := io.ReadAll(resp.Body)
	if err != nil {
		tb.Fatal(err)
	}
	var st metav1.Status
	if err := json.Unmarshal(body, &st); err != nil {
		tb.Fatalf("response %d is no Status: %q", resp.StatusCode, body)
	}
	if resp.StatusCode != code || int(st.Code) != code || st.Kind != "Status" || st.Details == nil ||
		len(st.Details.Causes) != 1 || string(st.Details.Causes[0].Type) != reason || !strings.Contains(st.Message, message) {
		tb.Errorf("response %d %s\nwant %d (%s) with %q", resp.StatusCode, body, code, reason, message)
	}
}
