package gateway_test

import (
	"io"
	"net/http"
	"strings"
	"testing"

	"github.com/clusterpass/clusterpass/shared/audit"
	"github.com/clusterpass/clusterpass/shared/clustertest"
	"github.com/clusterpass/clusterpass/shared/gatewaytest"
)

func TestAuditEventsOfCalls(t *testing.T) {
	m := clustertest.NewMember(t, ok)
	h := newGateway(t, gatewaytest.Options{})
	h.AddCluster("m", m.Kubeconfig(token))
	h.Grant("actors", `{"apiGroups":[""],"resources":["users","groups"],"verbs":["impersonate"]}`)
	const proxy = "/clusters/m/api/v1/namespaces/a/services/s/proxy/"
	asCarol := http.Header{"Impersonate-User": {"carol"}, "Impersonate-Group": {"dev"}}
	tests := []struct {
		name, method, path string
		header             http.Header
		caller             []string // user and groups
		want               []audit.Event
	}{
		{"a read", "GET", "/clusters/m/api/v1/namespaces/a/pods/p", nil, []string{"alice", "dev"}, []audit.Event{
			{
				Stage: audit.ResponseComplete, Verb: "get", User: audit.User{Username: "alice"},
				ResponseStatus: &audit.Status{Code: 200},
				Annotations: map[string]string{
					audit.DecisionAnnotation: "allow", audit.ClusterAnnotation: "m", audit.SentAnnotation: "2",
				},
			},
		}},
		{"a refusal", "DELETE", "/clusters/m/api/v1/namespaces/a/pods/p", nil, []string{"bob"}, []audit.Event{
			{
				Stage: audit.ResponseComplete, Verb: "delete", User: audit.User{Username: "bob"},
				ResponseStatus: &audit.Status{Code: 403},
				Annotations:    map[string]string{audit.DecisionAnnotation: "forbid", audit.FailureAnnotation: "forbidden"},
			},
		}},
		{"a proxy that the cluster does not allow", "GET", proxy, nil, []string{"alice", "dev"}, []audit.Event{
			{
				Stage: audit.ResponseComplete, Verb: "get", User: audit.User{Username: "alice"},
				ResponseStatus: &audit.Status{Code: 403},
				Annotations:    map[string]string{audit.DecisionAnnotation: "forbid"},
			},
		}},
		{"an impersonated user", "GET", "/clusters/m/version", asCarol, []string{"bob", "actors"}, []audit.Event{
			{
				Stage: audit.ResponseComplete, Verb: "get", User: audit.User{Username: "bob"},
				ImpersonatedUser: &audit.User{Username: "carol"}, ResponseStatus: &audit.Status{Code: 200},
			},
		}},
		{"a stream", "GET", "/clusters/m/api/v1/pods?watch=1", nil, []string{"alice", "dev"}, []audit.Event{
			{
				Stage: audit.ResponseStarted, Verb: "watch", User: audit.User{Username: "alice"},
				ResponseStatus: &audit.Status{Code: 200},
			},
			{
				Stage: audit.ResponseComplete, Verb: "watch", User: audit.User{Username: "alice"},
				ResponseStatus: &audit.Status{Code: 200},
			},
		}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			h.LogIn(tt.caller[0], tt.caller[1:]...)
			_, _ = io.Copy(io.Discard, h.Do(tt.method, tt.path, tt.header, "").Body)
			got := h.Audit.Events(t, len(tt.want))
			if len(got) != len(tt.want) {
				t.Fatalf("%d events, want %d: %+v", len(got), len(tt.want), got)
			}
			for i, want := range tt.want {
				wantEvent(t, got[i], want)
			}
		})
	}
}

func wantEvent(t *testing.T, got, want audit.Event) {
	t.Helper()
	if got.Stage != want.Stage || got.Verb != want.Verb || got.User.Username != want.User.Username ||
		impersonated(got) != impersonated(want) || got.ResponseStatus.Code != want.ResponseStatus.Code {
		t.Errorf("got event %+v, want %+v", got, want)
	}
	for k, v := range want.Annotations {
		if got.Annotations[k] != v {
			t.Errorf("annotation %s is %q, want %q", k, got.Annotations[k], v)
		}
	}
	if got.AuditID == "" || !strings.HasPrefix(got.RequestURI, "/clusters/m/") || len(got.SourceIPs) != 1 {
		t.Errorf("got event %+v", got)
	}
}

func impersonated(e audit.Event) string {
	if e.ImpersonatedUser == nil {
		return ""
	}
	return e.ImpersonatedUser.Username
}

// A chunked body announces no length, so an event must count the received bytes.
func TestAuditCountsReceivedBytes(t *testing.T) {
	m := clustertest.NewMember(t, ok)
	h := newGateway(t, gatewaytest.Options{})
	h.AddCluster("m", m.Kubeconfig(token))
	resp := h.SendRaw("POST /clusters/m/api/v1/namespaces HTTP/1.1\nHost: x\nTransfer-Encoding: chunked\n" +
		"Connection: close\n\n3\nabc\n0\n\n")
	_, _ = io.Copy(io.Discard, resp.Body)
	if got := h.Audit.Events(t, 1); got[0].Annotations[audit.ReceivedAnnotation] != "3" {
		t.Errorf("%+v", got[0].Annotations)
	}
}

func TestAuditNamesWhyStreamEnded(t *testing.T) {
	m := clustertest.NewMember(t, func(w http.ResponseWriter, r *http.Request) {
		_ = http.NewResponseController(w).Flush()
		<-r.Context().Done()
	})
	h := newGateway(t, gatewaytest.Options{})
	h.AddCluster("m", m.Kubeconfig(token))
	resp := h.Do("GET", "/clusters/m/api/v1/pods?watch=1", nil, "")
	o, err := h.Objects.Get(t.Context(), "clusterrolebindings/dev")
	if err == nil {
		_, err = h.Objects.Delete(t.Context(), o.Key, o.Revision)
	}
	if err != nil {
		t.Fatal(err)
	}
	_, _ = io.Copy(io.Discard, resp.Body)
	got := h.Audit.Events(t, 2)
	if end := got[len(got)-1]; end.Annotations[audit.FailureAnnotation] != "forbidden" ||
		end.Annotations[audit.DecisionAnnotation] != "forbid" || end.ResponseStatus.Code != 200 {
		t.Errorf("%+v, %+v", end, end.ResponseStatus)
	}
}
