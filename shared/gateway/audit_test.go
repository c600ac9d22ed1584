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

func TestAudit(t *testing.T) {
	m := clustertest.NewMember(t, ok)
	h := newGateway(t, gatewaytest.Options{})
	h.AddCluster("m", m.Kubeconfig(token))
	h.Grant("actors", `{"apiGroups":[""],"resources":["users","groups"],"verbs":["impersonate"]}`)
	tests := []struct {
		name, method, path string
		header             http.Header
		as                 []string // user and groups
		want               []audit.Event
	}{
		{"a read", "GET", "/clusters/m/api/v1/namespaces/a/pods/p", nil, []string{"alice", "dev"}, []audit.Event{
			{Stage: audit.ResponseComplete, Verb: "get", User: audit.User{Username: "alice"}, ResponseStatus: &audit.Status{Code: 200},
				Annotations: map[string]string{audit.DecisionAnnotation: "allow", audit.ClusterAnnotation: "m", audit.SentAnnotation: "2"}},
		}},
		{"a refusal", "DELETE", "/clusters/m/api/v1/namespaces/a/pods/p", nil, []string{"bob"}, []audit.Event{
			{Stage: audit.ResponseComplete, Verb: "delete", User: audit.User{Username: "bob"}, ResponseStatus: &audit.Status{Code: 403},
				Annotations: map[string]string{audit.DecisionAnnotation: "forbid", audit.FailureAnnotation: "forbidden"}},
		}},
		{"a proxy that the cluster does not allow", "GET", "/clusters/m/api/v1/namespaces/a/services/s/proxy/", nil, []string{"alice", "dev"}, []audit.Event{
			{Stage: audit.ResponseComplete, Verb: "get", User: audit.User{Username: "alice"}, ResponseStatus: &audit.Status{Code: 403},
				Annotations: map[string]string{audit.DecisionAnnotation: "forbid"}},
		}},
		{"as somebody else", "GET", "/clusters/m/version", http.Header{"Impersonate-User": {"carol"}, "Impersonate-Group": {"dev"}}, []string{"bob", "actors"}, []audit.Event{
			{Stage: audit.ResponseComplete, Verb: "get", User: audit.User{Username: "bob"}, ImpersonatedUser: &audit.User{Username: "carol"}, ResponseStatus: &audit.Status{Code: 200}},
		}},
		{"a stream", "GET", "/clusters/m/api/v1/pods?watch=1", nil, []string{"alice", "dev"}, []audit.Event{
			{Stage: audit.ResponseStarted, Verb: "watch", User: audit.User{Username: "alice"}, ResponseStatus: &audit.Status{Code: 200}},
			{Stage: audit.ResponseComplete, Verb: "watch", User: audit.User{Username: "alice"}, ResponseStatus: &audit.Status{Code: 200}},
		}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			h.LogIn(tt.as[0], tt.as[1:]...)
			_, _ = io.Copy(io.Discard, h.Do(tt.method, tt.path, tt.header, "").Body)
			got := h.Audit.Take(t, len(tt.want))
			if len(got) != len(tt.want) {
				t.Fatalf("%d events, want %d: %+v", len(got), len(tt.want), got)
			}
			for i, want := range tt.want {
				g := got[i]
				as := ""
				if g.ImpersonatedUser != nil {
					as = g.ImpersonatedUser.Username
				}
				wantAs := ""
				if want.ImpersonatedUser != nil {
					wantAs = want.ImpersonatedUser.Username
				}
				if g.Stage != want.Stage || g.Verb != want.Verb || g.User.Username != want.User.Username || as != wantAs || g.ResponseStatus.Code != want.ResponseStatus.Code {
					t.Errorf("event %d: %+v, want %+v", i, g, want)
				}
				for k, v := range want.Annotations {
					if g.Annotations[k] != v {
						t.Errorf("event %d: %s is %q, want %q", i, k, g.Annotations[k], v)
					}
				}
				if g.AuditID == "" || !strings.HasPrefix(g.RequestURI, "/clusters/m/") || len(g.SourceIPs) != 1 {
					t.Errorf("event %d: %+v", i, g)
				}
			}
		})
	}
}

// TestAuditOfChunks holds: what is counted is what came, not what the header says of it.
func TestAuditOfChunks(t *testing.T) {
	m := clustertest.NewMember(t, ok)
	h := newGateway(t, gatewaytest.Options{})
	h.AddCluster("m", m.Kubeconfig(token))
	_, _ = io.Copy(io.Discard, h.SendRaw("POST /clusters/m/api/v1/namespaces HTTP/1.1\nHost: x\nTransfer-Encoding: chunked\nConnection: close\n\n3\nabc\n0\n\n").Body)
	if got := h.Audit.Take(t, 1); got[0].Annotations[audit.ReceivedAnnotation] != "3" {
		t.Errorf("%+v", got[0].Annotations)
	}
}

// TestAuditOfAnEnd holds: the last event of a stream says why the gateway ended it.
func TestAuditOfAnEnd(t *testing.T) {
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
	got := h.Audit.Take(t, 2)
	if end := got[len(got)-1]; end.Annotations[audit.FailureAnnotation] != "forbidden" || end.Annotations[audit.DecisionAnnotation] != "forbid" || end.ResponseStatus.Code != 200 {
		t.Errorf("%+v, %+v", end, end.ResponseStatus)
	}
}
