package lambdahttp

import (
	"context"
	"encoding/json"
	"io"
	"net/http"
	"net/netip"
	"os"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func payload(t testing.TB, name string) []byte {
	t.Helper()
	b, err := os.ReadFile("testdata/" + name + ".json")
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// seen is the request that a handler receives.
type seen struct {
	Method, RequestURI, Path, RawPath, RawQuery, Host, RemoteAddr, Body string
	ContentLength                                                       int64
	Header                                                              http.Header
	Event                                                               *Event
}

const targetGroupARN = "arn:aws:elasticloadbalancing:eu-central-1:123456789012:targetgroup/proxy/6d0ecf831eec9f09"

var sourceIP = netip.MustParseAddr("203.0.113.9")

var requestTests = []struct {
	event string
	want  seen
}{{
	event: "alb-multi",
	want: seen{
		Method: "PATCH", Host: "gateway.example.com", RemoteAddr: "203.0.113.9:0",
		RequestURI: "/clusters/member1/apis/rbac.authorization.k8s.io/v1/clusterroles/system%3Anode%2Fproxy/" +
			"?fieldManager=kubectl-client-side%2Dapply&labelSelector=app%3Dfoo%2Ctier+in+%28a%29&labelSelector=b=c&dryRun=",
		Path:    "/clusters/member1/apis/rbac.authorization.k8s.io/v1/clusterroles/system:node/proxy/",
		RawPath: "/clusters/member1/apis/rbac.authorization.k8s.io/v1/clusterroles/system%3Anode%2Fproxy/",
		RawQuery: "fieldManager=kubectl-client-side%2Dapply&labelSelector=app%3Dfoo%2Ctier+in+%28a%29" +
			"&labelSelector=b=c&dryRun=",
		Body: "{\"spec\":\"\xff\xfe\x80\"}", ContentLength: 14,
		Header: http.Header{
			"Accept": {"application/json"}, "Authorization": {"Bearer abc"}, "Content-Length": {"14"},
			"Content-Type": {"application/merge-patch+json"}, "Impersonate-Group": {"a,b", "c"},
			"User-Agent":      {"kubectl/v1.37.0"},
			"X-Amzn-Trace-Id": {"Root=1-6a5145a7-5c3686ff7df3149177a89157"},
			"X-Forwarded-For": {"10.0.0.7, 203.0.113.9"}, "X-Forwarded-Port": {"443"}, "X-Forwarded-Proto": {"https"},
		},
		Event: &Event{Kind: ALB, SourceIP: sourceIP, TargetGroupARN: targetGroupARN},
	},
}, {
	event: "alb-single",
	want: seen{
		Method: "GET", Host: "gateway.example.com", RemoteAddr: "[2001:db8::9]:0",
		RequestURI: "/api/v1/pods?watch=&labelSelector=a%3Db", Path: "/api/v1/pods", RawQuery: "watch=&labelSelector=a%3Db",
		Header: http.Header{
			"Accept":          {"application/json;as=Table, application/json"},
			"X-Forwarded-For": {"[2001:db8::9]:51234"}, "X-Forwarded-Port": {"443"}, "X-Forwarded-Proto": {"https"},
		},
		Event: &Event{Kind: ALB, SourceIP: netip.MustParseAddr("2001:db8::9"), TargetGroupARN: targetGroupARN},
	},
}, {
	event: "alb-health",
	want: seen{
		Method: "GET", RequestURI: "/livez", Path: "/livez",
		Header: http.Header{"User-Agent": {"ELB-HealthChecker/2.0"}},
		Event:  &Event{Kind: ALB, TargetGroupARN: targetGroupARN},
	},
}, {
	event: "rest",
	want: seen{
		Method: "POST", Host: "a1b2c3d4e5.execute-api.eu-central-1.amazonaws.com", RemoteAddr: "203.0.113.9:0",
		RequestURI: "/clusters/member1/api/v1/namespaces/a%2Fb/pods/" +
			"?labelSelector=app%3Dfoo%2Ctier%20in%20%28a%29&labelSelector=b&fieldSelector=&text=a%2Bb%20c",
		Path: "/clusters/member1/api/v1/namespaces/a/b/pods/", RawPath: "/clusters/member1/api/v1/namespaces/a%2Fb/pods/",
		RawQuery: "labelSelector=app%3Dfoo%2Ctier%20in%20%28a%29&labelSelector=b&fieldSelector=&text=a%2Bb%20c",
		Body:     `{"unicode":"λ"}`, ContentLength: 16,
		Header: http.Header{
			"Accept": {"application/json"}, "Content-Length": {"16"}, "Content-Type": {"application/json"},
			"Impersonate-Group": {"a,b", "c"},
			"X-Forwarded-For":   {"203.0.113.9, 70.132.20.1"}, "X-Forwarded-Port": {"443"}, "X-Forwarded-Proto": {"https"},
		},
		Event: &Event{
			Kind: REST, SourceIP: sourceIP, APIID: "a1b2c3d4e5", Stage: "prod",
			RequestID: "7c2af7db-31f3-42b5-8a6d-9ffc74e3b9e0",
			ClientCert: &ClientCert{
				PEM:       "-----BEGIN CERTIFICATE-----\nMIIB\n-----END CERTIFICATE-----\n",
				SubjectDN: "CN=alice,O=dev", IssuerDN: "CN=clusterpass", SerialNumber: "a1:b2",
			},
		},
	},
}, {
	event: "http",
	want: seen{
		Method: "PUT", Host: "a1b2c3d4e5.execute-api.eu-central-1.amazonaws.com", RemoteAddr: "203.0.113.9:0",
		RequestURI: "/clusters/member1/api/v1/pods/a%20b%3Fc%252Fd" +
			"?labelSelector=app%3Dfoo&labelSelector=b&text=a+b&empty=&bare",
		Path:     "/clusters/member1/api/v1/pods/a b?c%2Fd",
		RawQuery: "labelSelector=app%3Dfoo&labelSelector=b&text=a+b&empty=&bare",
		Body:     "\xff\x00\xfe", ContentLength: 3,
		Header: http.Header{
			"Accept": {"application/json,text/plain"}, "Content-Length": {"3"}, "Content-Type": {"application/octet-stream"},
			"Cookie":          {"session=abc123; theme=dark"},
			"X-Forwarded-For": {"203.0.113.9"}, "X-Forwarded-Port": {"443"}, "X-Forwarded-Proto": {"https"},
		},
		Event: &Event{Kind: HTTP, SourceIP: sourceIP, APIID: "a1b2c3d4e5", Stage: "prod", RequestID: "ATfSmjLgPHcESJw="},
	},
}, {
	event: "function-url",
	want: seen{
		Method: "GET", Host: "2cxn22odiwguak4feg4jtt7cwm0ziblr.lambda-url.eu-central-1.on.aws", RemoteAddr: "203.0.113.9:0",
		RequestURI: "/a%2Fb/c%20d?a=%2F", Path: "/a/b/c d", RawPath: "/a%2Fb/c%20d", RawQuery: "a=%2F",
		Header: http.Header{"Cookie": {"session=abc123"}, "X-Forwarded-For": {"203.0.113.9"}},
		Event: &Event{
			Kind: HTTP, SourceIP: sourceIP, APIID: "2cxn22odiwguak4feg4jtt7cwm0ziblr", Stage: "$default",
			RequestID: "d16a6b55-dea9-4b23-8499-eb85c3d2d904",
		},
	},
}}

func TestRequest(t *testing.T) {
	for _, tt := range requestTests {
		t.Run(tt.event, func(t *testing.T) {
			var got seen
			f := New(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				body, err := io.ReadAll(r.Body)
				if err != nil {
					t.Error(err)
				}
				if r.TLS != nil {
					t.Error("r.TLS is set: the front ended TLS, not the function")
				}
				ev, ok := EventFrom(r.Context())
				if !ok {
					t.Error("no event in the context")
				}
				got = seen{
					Method: r.Method, RequestURI: r.RequestURI, Path: r.URL.Path, RawPath: r.URL.RawPath, RawQuery: r.URL.RawQuery,
					Host: r.Host, RemoteAddr: r.RemoteAddr, Body: string(body), ContentLength: r.ContentLength, Header: r.Header,
					Event: ev,
				}
				if want := r.URL.RequestURI(); want != r.RequestURI {
					t.Errorf("r.URL is forwarded as %s, the request was %s", want, r.RequestURI)
				}
			}), Options{})
			if _, err := f.Invoke(t.Context(), payload(t, tt.event)); err != nil {
				t.Fatal(err)
			}
			if d := cmp.Diff(tt.want, got, cmp.Comparer(func(a, b netip.Addr) bool { return a == b })); d != "" {
				t.Error(d)
			}
		})
	}
}

// TestPaths has paths as observed from live fronts.
func TestPaths(t *testing.T) {
	tests := []struct{ kind, stage, domain, path, want string }{
		{"alb", "", "", "/a%2Fb", "/a%2Fb"},
		{"alb", "", "", "/a%2fb%3A/", "/a%2fb%3A/"},
		{"alb", "", "", "//a//b", "//a//b"},
		{"alb", "", "", "/a:b@c;d,e=f+g&h!i$j'k(l)*", "/a:b@c;d,e=f+g&h!i$j'k(l)*"},
		{"alb", "", "", "/%E4%B8%96%25", "/%E4%B8%96%25"},
		{"alb", "", "", "", "/"},
		{"rest", "prod", "", "/prod/a%2Fb", "/prod/a%2Fb"}, // the path never contains the stage, so this one is the client's
		{"rest1.0", "$default", "", "/a b%", "/a%20b%25"},
		{"http", "$default", "", "/capture/hash#value", "/capture/hash%23value"},
		{"http", "$default", "", "/capture/literal%value", "/capture/literal%25value"},
		{"http", "$default", "", "/$default/a", "/$default/a"},
		{"http", "prod", "", "/prod", "/"},
		{"http", "prod", "", "/prod/", "/"},
		{"http", "prod", "", "/production/a", "/production/a"},
		{"http", "$default", "x.lambda-url.eu-west-1.on.aws", "/a%2Fb", "/a%2Fb"},
	}
	for _, tt := range tests {
		t.Run(tt.kind+tt.path, func(t *testing.T) {
			rc := map[string]any{"stage": tt.stage, "domainName": tt.domain}
			ev := map[string]any{"httpMethod": "GET", "path": tt.path, "requestContext": rc}
			switch tt.kind {
			case "alb":
				rc["elb"] = map[string]any{}
			case "rest1.0":
				ev["version"] = "1.0"
				fallthrough
			case "rest":
				rc["identity"] = map[string]any{}
			case "http":
				ev["version"], ev["rawPath"] = "2.0", tt.path
				rc["http"] = map[string]any{"method": "GET"}
			}
			b, err := json.Marshal(ev)
			if err != nil {
				t.Fatal(err)
			}
			var got string
			f := New(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
				got = r.RequestURI
				if tt.want != r.URL.EscapedPath() && r.URL.RawPath != "" {
					t.Errorf("path %q has RawPath %q", tt.want, r.URL.RawPath)
				}
			}), Options{})
			if _, err := f.Invoke(t.Context(), b); err != nil {
				t.Fatal(err)
			}
			if got != tt.want {
				t.Errorf("got %q, want %q", got, tt.want)
			}
		})
	}
}

// TestBadRequests: an event that no front sends, but a privileged invoker may, results in a 400.
func TestBadRequests(t *testing.T) {
	const rc = `"requestContext":{"elb":{}}`
	for name, event := range map[string]string{
		"method":            `{"httpMethod":"GET /x","path":"/",` + rc + `}`,
		"no method":         `{"path":"/",` + rc + `}`,
		"relative":          `{"httpMethod":"GET","path":"x",` + rc + `}`,
		"star":              `{"httpMethod":"OPTIONS","path":"*",` + rc + `}`,
		"question mark":     `{"httpMethod":"GET","path":"/a?b",` + rc + `}`,
		"request splitting": `{"httpMethod":"GET","path":"/a HTTP/1.1\r\nHost: x",` + rc + `}`,
		"query splitting":   `{"httpMethod":"GET","path":"/","queryStringParameters":{"a":"b HTTP/1.1"},` + rc + `}`,
		"escape":            `{"httpMethod":"GET","path":"/%zz",` + rc + `}`,
		"header value":      `{"httpMethod":"GET","path":"/","headers":{"a":"b\r\nc: d"},` + rc + `}`,
		"header name":       `{"httpMethod":"GET","path":"/","headers":{"a b":"c"},` + rc + `}`,
		"cookie": `{"version":"2.0","rawPath":"/","cookies":["a\r\nb"],` +
			`"requestContext":{"http":{"method":"GET"}}}`,
		"base64": `{"httpMethod":"POST","path":"/","body":"%%","isBase64Encoded":true,` + rc + `}`,
	} {
		t.Run(name, func(t *testing.T) {
			f := New(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { t.Error("the handler was called") }), Options{})
			b, err := f.Invoke(t.Context(), []byte(event))
			if err != nil {
				t.Fatal(err)
			}
			if got := decode(t, b); got.StatusCode != 400 || statusOf(t, got).Reason != "BadRequest" {
				t.Errorf("got %s", b)
			}
		})
	}
}

func TestNoEvent(t *testing.T) {
	f := New(http.NotFoundHandler(), Options{})
	for name, b := range map[string]string{
		"empty":       ``,
		"null":        `null`,
		"array":       `[]`,
		"other":       `{"Records":[]}`,
		"websocket":   `{"httpMethod":"GET","path":"/","requestContext":{"connectionId":"x","identity":{}}}`,
		"wrong types": `{"headers":[1],"requestContext":{"elb":{}}}`,
		"wrong value": `{"headers":{"a":1},"requestContext":{"elb":{}}}`,
	} {
		t.Run(name, func(t *testing.T) {
			if got, err := f.Invoke(t.Context(), []byte(b)); err == nil {
				t.Errorf("got %s, want an error", got)
			}
		})
	}
	if _, ok := EventFrom(context.Background()); ok {
		t.Error("an event outside of a function")
	}
}
