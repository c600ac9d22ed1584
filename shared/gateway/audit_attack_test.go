package gateway_test

import (
	"bytes"
	"context"
	"crypto/tls"
	"encoding/base64"
	"encoding/json"
	"io"
	"log/slog"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/clusterpass/clusterpass/shared/access"
	"github.com/clusterpass/clusterpass/shared/api/cluster/v1alpha1"
	"github.com/clusterpass/clusterpass/shared/audit"
	"github.com/clusterpass/clusterpass/shared/clustertest"
	"github.com/clusterpass/clusterpass/shared/gateway"
	"github.com/clusterpass/clusterpass/shared/gatewaytest"
	"github.com/clusterpass/clusterpass/shared/identity"
	"github.com/clusterpass/clusterpass/shared/pki"
	"github.com/clusterpass/clusterpass/shared/waittest"
)

// Requests without a credential once wrote 100 MB of events. The log must still count all of them.
func TestUnidentifiedCallersCannotFillTheAuditLog(t *testing.T) {
	const requests, size = 1025, 16 << 10
	dir := t.TempDir()
	file, err := audit.File{Path: filepath.Join(dir, "audit.log")}.Open()
	if err != nil {
		t.Fatal(err)
	}
	log := audit.New(audit.Config{To: file, Queue: 4096})
	h := newGateway(t, gatewaytest.Options{Configure: func(c *gateway.Config) { c.Audit = log }})
	h.HTTPClient.CloseIdleConnections()
	h.ClientTLS.Certificates = nil
	uri := "/clusters/m/api/v1/pods?" + strings.Repeat("&", size)
	for range requests {
		text, resp := h.DoText("GET", uri, nil, "")
		if resp.StatusCode != http.StatusUnauthorized {
			t.Fatalf("%s %s", resp.Status, text)
		}
	}
	h.Close()
	if err := log.Close(t.Context()); err != nil {
		t.Fatal(err)
	}
	files, err := filepath.Glob(filepath.Join(dir, "*"))
	if err != nil {
		t.Fatal(err)
	}
	written, counted := 0, 0
	for _, f := range files {
		data, err := os.ReadFile(f)
		if err != nil {
			t.Fatal(err)
		}
		written += len(data)
		for line := range bytes.Lines(data) {
			var e audit.Event
			if err := json.Unmarshal(line, &e); err != nil {
				t.Fatal(err)
			}
			n := 1
			if count := e.Annotations[audit.CountAnnotation]; count != "" {
				if n, err = strconv.Atoi(count); err != nil {
					t.Fatal(err)
				}
			}
			counted += n
		}
	}
	t.Logf("%d requests of %d bytes wrote %d bytes", requests, len(uri), written)
	if written > 1<<20 || counted != requests || log.Stats().Lost != 0 {
		t.Errorf("the log has %d bytes and counts %d requests, %+v", written, counted, log.Stats())
	}
}

func frontProxy(t *testing.T) (configure func(*gateway.Config), certificate tls.Certificate) {
	t.Helper()
	ca, err := pki.LoadCA(t.TempDir(), "front-proxy-ca")
	if err != nil {
		t.Fatal(err)
	}
	cert, key, err := ca.Client("front-proxy-client", nil)
	if err != nil {
		t.Fatal(err)
	}
	if certificate, err = tls.X509KeyPair(cert, key); err != nil {
		t.Fatal(err)
	}
	return func(c *gateway.Config) {
		c.Identity[0] = identity.FrontProxy{
			CA: identity.NewClientCA(ca.Pool(), nil), Names: []string{"front-proxy-client"}, Peer: identity.TLSPeer,
		}
	}, certificate
}

// A hostile member could point the reader of a response to the event of another request.
func TestMemberCannotReplaceAuditID(t *testing.T) {
	m := clustertest.NewMember(t, func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set(audit.IDHeader, "others")
		if r.Header.Get("Upgrade") == "" {
			return
		}
		conn, _, err := http.NewResponseController(w).Hijack()
		if err != nil {
			t.Error(err)
			return
		}
		_, _ = io.WriteString(conn, "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: SPDY/3.1\r\n"+
			"Audit-Id: others\r\n\r\n")
		_ = conn.Close()
	})
	h := newGateway(t, gatewaytest.Options{})
	h.AddCluster("m", m.Kubeconfig(token))
	for path, events := range map[string]int{"/clusters/m/api/v1/pods": 1, "/clusters/m/api/v1/pods?watch=1": 2} {
		_, resp := h.DoText("GET", path, nil, "")
		if got, want := resp.Header.Get(audit.IDHeader), h.Audit.Events(t, events)[0].AuditID; got != want {
			t.Errorf("%s: the response has the id %q, the event %q", path, got, want)
		}
	}
	_, _, resp := h.dialUpgrade("/clusters/m/api/v1/x", "")
	if got, want := resp.Header.Get(audit.IDHeader), h.Audit.Events(t, 1)[0].AuditID; got != want {
		t.Errorf("an upgrade: the response has the id %q, the event %q", got, want)
	}
}

// A client could reuse the ID of another event. A configured front proxy may choose the ID.
func TestAuditIDIsTheGateways(t *testing.T) {
	m := clustertest.NewMember(t, ok)
	configure, certificate := frontProxy(t)
	h := newGateway(t, gatewaytest.Options{Configure: configure})
	h.AddCluster("m", m.Kubeconfig(token))
	get := func(path string, header http.Header) (event audit.Event, answered string) {
		t.Helper()
		header.Set(audit.IDHeader, "chosen")
		_, resp := h.DoText("GET", path, header, "")
		return h.Audit.Events(t, 1)[0], resp.Header.Get(audit.IDHeader)
	}
	const path = "/clusters/m/api/v1/pods"
	event, answered := get(path, http.Header{"X-Remote-User": {"root"}})
	if arrived := m.TakeRequests()[0].Header.Get(audit.IDHeader); event.AuditID == "chosen" || event.AuditID == "" ||
		arrived != event.AuditID || answered != event.AuditID {
		t.Errorf("a user's call: event %q, member %q, answer %q", event.AuditID, arrived, answered)
	}
	if event, answered = get("/nowhere", http.Header{}); event.AuditID == "chosen" || answered != event.AuditID {
		t.Errorf("an error: event %q, answer %q", event.AuditID, answered)
	}
	h.HTTPClient.CloseIdleConnections()
	h.ClientTLS.Certificates = []tls.Certificate{certificate}
	event, answered = get(path, http.Header{"X-Remote-User": {"alice"}, "X-Remote-Group": {"dev"}})
	if arrived := m.TakeRequests()[0].Header.Get(audit.IDHeader); event.User.Username != "alice" ||
		event.AuditID != "chosen" || arrived != "chosen" || answered != "chosen" {
		t.Errorf("a front proxy's call: event %q, member %q, answer %q", event.AuditID, arrived, answered)
	}
	if event, answered = get(path, http.Header{}); event.AuditID == "chosen" || answered != event.AuditID {
		t.Errorf("a front proxy's call without a user: event %q, answer %q", event.AuditID, answered)
	}
}

// The gateway cannot verify the token's claims, so that none may become the event's user.
func TestPassthroughCallIsAuditedByItsToken(t *testing.T) {
	var code atomic.Int64
	m := clustertest.NewMember(t, func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(int(code.Load())) })
	h := newGateway(t, gatewaytest.Options{})
	h.AddCluster("p", m.Kubeconfig(token), func(s *v1alpha1.ClusterSpec) { s.Identity = v1alpha1.Passthrough })
	h.HTTPClient.CloseIdleConnections()
	h.ClientTLS.Certificates = nil
	segment := base64.RawURLEncoding.EncodeToString
	jwt := segment([]byte(`{"alg":"none"}`)) + "." +
		segment([]byte(`{"iss":"https://issuer","sub":"system:admin","jti":"token-7","aud":1}`)) + "." +
		segment([]byte("signature"))
	uri := "/clusters/p/api/v1/pods?" + strings.Repeat("a", 1000)
	for _, tt := range []struct {
		name, token         string
		code                int64
		issuer, subject, id string
		isCut               bool
	}{
		{"a token that the member accepts", jwt, 200, "https://issuer", "system:admin", "token-7", false},
		{"a token that the member refuses", jwt, 401, "https://issuer", "system:admin", "token-7", true},
		{"a token that is no JWT", "opaque-token", 403, "", "", "", false},
		{
			"claims that are no strings", "e30." + segment([]byte(`{"iss":{},"sub":7,"jti":"x"}`)) + ".", 200, "", "", "x",
			false,
		},
	} {
		t.Run(tt.name, func(t *testing.T) {
			code.Store(tt.code)
			h.DoText("GET", uri, http.Header{"Authorization": {"Bearer " + tt.token}}, "")
			e := h.Audit.Events(t, 1)[0]
			a := e.Annotations
			if e.User.Username != "" || a[audit.TokenHashAnnotation] != identity.Unverified(tt.token).Hash ||
				a[audit.TokenIssuerAnnotation] != tt.issuer || a[audit.TokenSubjectAnnotation] != tt.subject ||
				a[audit.TokenIDAnnotation] != tt.id || len(a[audit.TokenHashAnnotation]) != 64 {
				t.Errorf("%+v", e)
			}
			if text, err := json.Marshal(e); err != nil || bytes.Contains(text, []byte(tt.token)) ||
				tt.isCut == strings.Contains(string(text), uri) {
				t.Errorf("%v, %s", err, text)
			}
		})
	}
}

// Health checks succeed while audit events cannot be recorded, so that no process is restarted for it.
func TestFailClosed(t *testing.T) {
	m := clustertest.NewMember(t, ok)
	var isDown atomic.Bool
	var log waittest.Buffer
	sink := sinkFunc(func(events [][]byte) (int, error) {
		if isDown.Load() {
			return 0, io.ErrClosedPipe
		}
		return len(events), nil
	})
	events := audit.New(audit.Config{Sinks: []audit.Sink{sink}, Queue: 2, FailClosed: true, Log: jsonLog(&log)})
	t.Cleanup(func() {
		isDown.Store(false)
		_ = events.Close(context.Background())
	})
	h := newGateway(t, gatewaytest.Options{Configure: func(c *gateway.Config) {
		c.Audit, c.Log = events, jsonLog(&log)
		c.API = pathAPI{}
	}})
	h.AddCluster("m", m.Kubeconfig(token))
	isDown.Store(true)
	const path = "/clusters/m/api/v1/pods"
	for i, user := range []string{"ann", "bob"} { // each may use a quarter of the queue, but at least one place
		h.LogIn(user, access.Masters)
		if _, resp := h.DoText("GET", path, nil, ""); resp.StatusCode != http.StatusOK {
			t.Fatal(resp.Status)
		}
		// The event of a call is written after its response.
		waittest.Until(t, "the event waits", func() bool { return events.Stats().Waiting == i+1 })
		if i == 0 {
			gatewaytest.WantStatus(t, h.Do("GET", path, nil, ""), http.StatusServiceUnavailable, "audit_unavailable",
				"too many of your audit events wait for their delivery")
		}
	}
	h.LogIn("carol", access.Masters)
	m.TakeRequests()
	resp := h.Do("GET", path, nil, "")
	if resp.Header.Get("Retry-After") == "" {
		t.Errorf("%v", resp.Header)
	}
	const refused = "the call is refused: its audit event could not be recorded"
	gatewaytest.WantStatus(t, resp, http.StatusServiceUnavailable, "audit_unavailable", refused)
	if arrived := m.TakeRequests(); len(arrived) > 0 {
		t.Errorf("a refused call arrived: %+v", arrived)
	}
	for _, health := range []string{"/healthz", "/livez", "/readyz"} {
		if text, resp := h.DoText("GET", health, nil, ""); resp.StatusCode != http.StatusOK || text != health {
			t.Errorf("%s: %s %s", health, resp.Status, text)
		}
	}
	// The health of a member is a call like any other.
	if _, resp := h.DoText("GET", "/clusters/m/healthz", nil, ""); resp.StatusCode != http.StatusServiceUnavailable {
		t.Errorf("a member's health: %s", resp.Status)
	}
	const alarm = "calls are refused because audit events cannot be delivered"
	log.WaitFor(t, `"level":"ERROR","msg":"`+alarm+`","reason":"audit_unavailable"`)
	log.WaitFor(t, `"reason":"audit_unavailable","error":"`+refused) // the line of the call itself
	isDown.Store(false)
	waittest.Until(t, "calls are accepted again", func() bool {
		_, resp := h.DoText("GET", path, nil, "")
		return resp.StatusCode == http.StatusOK
	})
}

// A function serves no metrics, so an alarm of CloudWatch reads the count in the log.
func TestFunctionReportsLostEvents(t *testing.T) {
	var log waittest.Buffer
	h := newGateway(t, gatewaytest.Options{Function: gateway.NewFunction(""), Configure: func(c *gateway.Config) {
		c.Log, c.MetricsNamespace = jsonLog(&log), "Clusterpass/test"
		c.Audit = audit.New(audit.Config{
			Sinks: []audit.Sink{sinkFunc(func([][]byte) (int, error) { return 0, io.ErrClosedPipe })}, Log: jsonLog(io.Discard),
		})
	}})
	h.DoText("GET", "/clusters/m/api/v1/pods", nil, "")
	log.WaitFor(t, `"AuditEventsLost":1`)
	for _, want := range []string{
		`"level":"ERROR","msg":"request"`, `{"Name":"AuditEventsLost","Unit":"Count"}`, `"Namespace":"Clusterpass/test"`,
	} {
		if !strings.Contains(log.String(), want) {
			t.Errorf("no %s in %s", want, log.String())
		}
	}
	log.Reset()
	h.DoText("GET", "/clusters/m/api/v1/pods", nil, "")
	log.WaitFor(t, `"AuditEventsLost":1`)
}

// Without versions in metrics, an alarm could not distinguish the faults of a canary from those of the version before.
func TestFunctionReportsItsVersion(t *testing.T) {
	for version, want := range map[string][]string{
		"": {`"Dimensions":[[]]`},
		"7": {
			`"Dimensions":[[],["FunctionName","ExecutedVersion"]]`, `"FunctionName":"f"`, `"ExecutedVersion":"7"`,
			`"FailedRequests":1`, `{"Name":"FailedRequests","Unit":"Count"}`, `"AuditEventsWaiting":1`,
		},
	} {
		t.Run("version "+version, func(t *testing.T) {
			var log waittest.Buffer
			fn := gateway.NewFunction("")
			fn.Name, fn.Version = "f", version
			h := newGateway(t, gatewaytest.Options{Function: fn, Configure: func(c *gateway.Config) {
				c.Log, c.MetricsNamespace = jsonLog(&log), "Clusterpass/test"
				c.Audit = audit.New(audit.Config{
					Sinks:      []audit.Sink{sinkFunc(func([][]byte) (int, error) { return 0, io.ErrClosedPipe })},
					FailClosed: true, Log: jsonLog(io.Discard),
				})
			}})
			h.LogIn("ann", access.Masters)
			resp := h.Do("GET", "/clusters/m/api/v1/pods", nil, "")
			gatewaytest.WantStatus(t, resp, http.StatusServiceUnavailable, "audit_unavailable",
				"the call is refused: its audit event could not be recorded")
			log.WaitFor(t, `"AuditCallsRefused":1`)
			for _, text := range want {
				if !strings.Contains(log.String(), text) {
					t.Errorf("no %s in %s", text, log.String())
				}
			}
			if version == "" && strings.Contains(log.String(), "FailedRequests") {
				t.Errorf("a metric that no alarm reads: %s", log.String())
			}
		})
	}
}

// A client without a credential could end a deployment by requests to a cluster that cannot be reached.
func TestMadeUpTokensAreNoFailures(t *testing.T) {
	var log waittest.Buffer
	fn := gateway.NewFunction("")
	fn.Name, fn.Version = "f", "7"
	h := newGateway(t, gatewaytest.Options{Function: fn, Configure: func(c *gateway.Config) {
		c.Log, c.MetricsNamespace = jsonLog(&log), "Clusterpass/test"
	}})
	m := clustertest.NewMember(t, ok)
	h.AddCluster("p", m.Kubeconfig(token), func(s *v1alpha1.ClusterSpec) { s.Identity = v1alpha1.Passthrough })
	m.Close()
	h.ClientTLS.Certificates = nil
	h.HTTPClient.CloseIdleConnections()
	resp := h.Do("GET", "/clusters/p/version", http.Header{"Authorization": {"Bearer made-up"}}, "")
	gatewaytest.WantStatus(t, resp, http.StatusBadGateway, "unreachable", "")
	log.WaitFor(t, "unreachable")
	if strings.Contains(log.String(), "FailedRequests") {
		t.Errorf("a request of an unidentified caller counts: %s", log.String())
	}
}

type sinkFunc func(events [][]byte) (int, error)

func (f sinkFunc) Deliver(_ context.Context, events [][]byte) (int, error) { return f(events) }

type pathAPI struct{}

func (pathAPI) ServePublic(http.ResponseWriter, *http.Request, string) bool { return false }

func (pathAPI) Serve(w http.ResponseWriter, _ *http.Request, c *gateway.APICall) (string, error) {
	_, err := io.WriteString(w, c.Route.Path)
	return "", err
}

func jsonLog(w io.Writer) *slog.Logger { return slog.New(slog.NewJSONHandler(w, nil)) }
