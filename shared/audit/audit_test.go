package audit

import (
	"bytes"
	"encoding/json"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"go.uber.org/goleak"

	"github.com/clusterpass/clusterpass/shared/leaktest"
	"github.com/clusterpass/clusterpass/shared/route"
	"github.com/clusterpass/clusterpass/shared/status"
)

func TestMain(m *testing.M) {
	// The goroutine that File.Open documents.
	leaktest.Main(m, goleak.IgnoreTopFunction("gopkg.in/natefinch/lumberjack%2ev2.(*Logger).millRun"))
}

var quiet = slog.New(slog.DiscardHandler)

func request(uri string) *http.Request {
	r := httptest.NewRequest(http.MethodGet, uri, nil)
	r.RequestURI = uri
	r.RemoteAddr = "192.0.2.7:1234"
	r.Header = http.Header{
		"User-Agent": {"kubectl/v1.37"}, "Audit-Id": {"abc"}, "X-Forwarded-For": {"198.51.100.1, 10.0.0.1"},
		"Authorization": {"Bearer s3cret"}, "Cookie": {"c=s3cret"},
		"Sec-Websocket-Protocol": {"base64url.bearer.authorization.k8s.io.czNjcmV0"},
		"Impersonate-User":       {"s3cret"}, "X-Amzn-Mtls-Clientcert": {"s3cret"},
	}
	return r
}

func events(t *testing.T, b []byte) []map[string]any {
	t.Helper()
	var out []map[string]any
	for line := range bytes.Lines(b) {
		var e map[string]any
		if err := json.Unmarshal(line, &e); err != nil {
			t.Fatalf("%v: %s", err, line)
		}
		out = append(out, e)
	}
	return out
}

func TestEvents(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		began := time.Now().UTC().Format("2006-01-02T15:04:05.000000Z")
		var b bytes.Buffer
		l := New(Config{To: &b, Log: quiet})
		uri := "/clusters/member1/api/v1/namespaces/default/pods/web/exec?command=sh&token=x"
		q := l.Begin(request(uri))
		q.User(User{Username: "ann", UID: "1", Groups: []string{"dev"}, Extra: map[string][]string{"k": {"v"}}}, "x509")
		q.As(User{Username: "bob"})
		q.Target("member1", route.ParseResource("GET", "/api/v1/namespaces/default/pods/web/exec", "command=sh"))
		q.Decision(true, "RBAC: allowed by x")
		q.Started(101)
		q.Started(101)
		time.Sleep(1500 * time.Millisecond)
		q.Bytes(5, 7)
		q.Completed(101, nil)
		ended := time.Now().UTC().Format("2006-01-02T15:04:05.000000Z")
		want := map[string]any{
			"kind": "Event", "apiVersion": "audit.k8s.io/v1", "level": "Metadata", "stage": "ResponseStarted",
			"requestURI": uri, "verb": "get",
			"user": map[string]any{"username": "ann", "uid": "1", "groups": []any{"dev"},
				"extra": map[string]any{"k": []any{"v"}}},
			"impersonatedUser": map[string]any{"username": "bob"},
			"sourceIPs":        []any{"198.51.100.1", "10.0.0.1", "192.0.2.7"}, "userAgent": "kubectl/v1.37",
			"objectRef": map[string]any{"resource": "pods", "namespace": "default", "name": "web",
				"apiVersion": "v1", "subresource": "exec"},
			"responseStatus":           map[string]any{"metadata": map[string]any{}, "code": 101.0},
			"requestReceivedTimestamp": began, "stageTimestamp": began,
			"annotations": map[string]any{
				"authorization.k8s.io/decision": "allow", "authorization.k8s.io/reason": "RBAC: allowed by x",
				"clusterpass.io/cluster": "member1", "clusterpass.io/authentication": "x509",
			},
		}
		got := events(t, b.Bytes())
		if len(got) != 2 {
			t.Fatalf("%d events:\n%s", len(got), &b)
		}
		want["auditID"] = q.ID()
		if diff := cmp.Diff(want, got[0]); diff != "" {
			t.Error(diff)
		}
		a := want["annotations"].(map[string]any)
		a["clusterpass.io/duration"], a["clusterpass.io/bytes-sent"], a["clusterpass.io/bytes-received"] = "1.5s", "5", "7"
		want["stage"], want["stageTimestamp"] = "ResponseComplete", ended
		if diff := cmp.Diff(want, got[1]); diff != "" {
			t.Error(diff)
		}
		if strings.Contains(b.String(), "s3cret") || strings.Contains(b.String(), "czNjcmV0") {
			t.Errorf("a secret:\n%s", &b)
		}
	})
}

func TestOtherEvents(t *testing.T) {
	var b bytes.Buffer
	l := New(Config{To: &b, Log: quiet})
	one := func(f func(q *Request)) map[string]any {
		t.Helper()
		b.Reset()
		r := request("/version")
		r.Header = http.Header{}
		q := l.Begin(r)
		f(q)
		got := events(t, b.Bytes())
		if len(got) != 1 || len(got[0]["auditID"].(string)) != 36 {
			t.Fatalf("%s", &b)
		}
		return got[0]
	}
	e := one(func(q *Request) { q.Completed(401, status.New(status.Unauthenticated, "", "no credential")) })
	if diff := cmp.Diff(map[string]any{"metadata": map[string]any{}, "status": "Failure", "message": "no credential",
		"code": 401.0}, e["responseStatus"]); diff != "" {
		t.Error(diff)
	}
	if e["verb"] != "get" || e["annotations"].(map[string]any)["clusterpass.io/failure"] != "unauthenticated" {
		t.Errorf("%v", e)
	}
	e = one(func(q *Request) {
		q.Decision(true, "RBAC: allowed")
		q.Completed(403, status.New(status.Forbidden, "c", "not that"))
	})
	if a := e["annotations"].(map[string]any); a["authorization.k8s.io/decision"] != "forbid" ||
		a["authorization.k8s.io/reason"] != "not that" {
		t.Errorf("refused after all: %v", a)
	}
	e = one(func(q *Request) {
		q.Target("", route.ParseResource("GET", "/version", ""))
		q.Decision(false, "")
		q.Panicked()
	})
	if a := e["annotations"].(map[string]any); e["stage"] != "Panic" || e["objectRef"] != nil ||
		a["authorization.k8s.io/decision"] != "forbid" || a["clusterpass.io/cluster"] != nil {
		t.Errorf("%v", e)
	}
	e = one(func(q *Request) {
		q.Target("c", route.ParseResource("GET", "/apis/apps/v1/deployments", "watch=1"))
		q.Completed(200, nil)
	})
	if diff := cmp.Diff(map[string]any{"resource": "deployments", "apiGroup": "apps", "apiVersion": "v1"},
		e["objectRef"]); diff != "" || e["verb"] != "watch" {
		t.Errorf("%v\n%s", e["verb"], diff)
	}

	e = one(func(q *Request) {
		q.Created("before it is known of what kind")
		q.Target("", route.ParseResource("POST", "/apis/clusterpass.io/v1alpha1/passes", ""))
		q.Created("a-1x2y3")
		q.Created("another")
		q.Completed(201, nil)
	})
	if diff := cmp.Diff(map[string]any{"resource": "passes", "apiGroup": "clusterpass.io", "apiVersion": "v1alpha1",
		"name": "a-1x2y3"}, e["objectRef"]); diff != "" {
		t.Error(diff)
	}

	var none *Log // auditing is off
	q := none.Begin(request("/"))
	q.Created("a")
	q.User(User{}, "")
	q.As(User{})
	q.Target("", route.Resource{})
	q.Decision(true, "")
	q.Bytes(1, 1)
	q.Started(1)
	q.Completed(1, nil)
	q.Panicked()
}

// A client that chose the id of another's event would blame that request for its own.
func TestOnlyFrontProxyChoosesAuditID(t *testing.T) {
	for _, tt := range []struct {
		name, method, sent string
		adopted            bool
	}{
		{"a front proxy's", "front-proxy", "abc", true},
		{"of 64 bytes", "front-proxy", strings.Repeat("a", 64), true},
		{"a certificate's", "x509", "abc", false},
		{"without a credential", "", "abc", false},
		{"a long one", "front-proxy", strings.Repeat("a", 65), false},
		{"with a line break", "front-proxy", "a\nb", false},
		{"none", "front-proxy", "", false},
	} {
		t.Run(tt.name, func(t *testing.T) {
			var b bytes.Buffer
			r := request("/")
			r.Header.Set(IDHeader, tt.sent)
			q := New(Config{To: &b, Log: quiet}).Begin(r)
			if tt.method != "" {
				q.User(User{Username: "ann"}, tt.method)
			}
			q.Completed(200, nil)
			id := events(t, b.Bytes())[0]["auditID"]
			if id != q.ID() || tt.adopted != (id == tt.sent) || !tt.adopted && len(q.ID()) != 36 {
				t.Errorf("the event has id %q and the request %q, sent was %q", id, q.ID(), tt.sent)
			}
		})
	}
}

func TestStrangersText(t *testing.T) {
	for name, change := range map[string]func(r *http.Request){
		"a line break in the agent": func(r *http.Request) { r.Header.Set("User-Agent", "a\n{\"kind\":\"Event\"}") },
		"a long agent":              func(r *http.Request) { r.Header.Set("User-Agent", strings.Repeat("ä", 1<<20)) },
		"no UTF-8":                  func(r *http.Request) { r.Header.Set("User-Agent", "\xff") },
		"a long URI":                func(r *http.Request) { r.RequestURI = "/" + strings.Repeat("a", 1<<20) },
		"many addresses": func(r *http.Request) {
			r.Header.Set("X-Forwarded-For", strings.Repeat("1.1.1.1,2.2.2.2,", 1<<16))
		},
		"addresses that are none": func(r *http.Request) { r.Header.Set("X-Forwarded-For", "unknown, <script>, s3cret") },
		"a password": func(r *http.Request) {
			r.RequestURI = "https://ann:s3cret@x/api"
			r.URL, _ = r.URL.Parse(r.RequestURI)
		},
	} {
		var b bytes.Buffer
		r := request("/")
		change(r)
		New(Config{To: &b, Log: quiet}).Begin(r).Completed(200, nil)
		got := events(t, b.Bytes())
		if len(got) != 1 || b.Len() > 64<<10 || strings.Contains(b.String(), "s3cret") ||
			len(got[0]["auditID"].(string)) > 64 {
			t.Errorf("%s: %.500s", name, &b)
		}
		if ips := got[0]["sourceIPs"].([]any); len(ips) > maxIPs || ips[len(ips)-1] != "192.0.2.7" {
			t.Errorf("%s: %v", name, ips)
		}
	}
}

func FuzzBegin(f *testing.F) {
	f.Add("/a?b", "agent", "id", "1.1.1.1", "1.2.3.4:5", "reason")
	f.Fuzz(func(t *testing.T, uri, agent, id, forwarded, remote, reason string) {
		var b bytes.Buffer
		r := &http.Request{Method: http.MethodGet, RequestURI: uri, RemoteAddr: remote,
			Header: http.Header{"User-Agent": {agent}, "Audit-Id": {id}, "X-Forwarded-For": {forwarded}}}
		l := New(Config{To: &b, Log: quiet})
		q := l.Begin(r)
		q.Decision(true, reason)
		q.Target("c", route.ParseResource("GET", uri, ""))
		q.Completed(200, nil)
		if n := bytes.Count(b.Bytes(), []byte("\n")); n != 1 || len(events(t, b.Bytes())) != 1 || l.Stats().Lost != 0 {
			t.Error(fmt.Sprintf("%d lines", n), b.String())
		}
	})
}
