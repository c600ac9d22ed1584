package cluster

import (
	"context"
	"encoding/json"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"unicode/utf8"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/clusterpass/clusterpass/shared/api/cluster/v1alpha1"
	"github.com/clusterpass/clusterpass/shared/cluster/kubeconfig"
	"github.com/clusterpass/clusterpass/shared/eks"
	"github.com/clusterpass/clusterpass/shared/status"
	"github.com/clusterpass/clusterpass/shared/version"
)

type fakeTokens struct {
	err     error
	another bool     // the result of Refused
	refused []string // clusters and their tokens
}

func (f *fakeTokens) Token(_ context.Context, s eks.Spec) (string, error) {
	return "k8s-aws-v1." + s.Cluster, f.err
}

func (f *fakeTokens) Refused(s eks.Spec, token string) bool {
	f.refused = append(f.refused, s.Cluster+" "+token)
	return f.another
}

func TestAuthorize(t *testing.T) {
	gone, leave := context.WithCancel(t.Context())
	leave()
	onEKS := kubeconfig.Credential{EKS: &eks.Spec{Cluster: "demo"}}
	tests := []struct {
		name       string
		ctx        context.Context
		credential kubeconfig.Credential
		tokenErr   error
		want       string
		wantReason status.Reason
		wantErr    error
	}{
		{name: "token", credential: kubeconfig.Credential{Token: "t"}, want: "Bearer t"},
		{name: "basic", credential: kubeconfig.Credential{Username: "u", Password: "p"}, want: "Basic dTpw"},
		{name: "certificate", credential: kubeconfig.Credential{Certificate: true}},
		{name: "EKS", credential: onEKS, want: "Bearer k8s-aws-v1.demo"},
		{name: "AWS refuses", credential: onEKS, tokenErr: errors.New("AccessDenied of role hidden"),
			wantReason: status.Misconfigured},
		{name: "AWS is down", credential: onEKS, tokenErr: fmt.Errorf("%w: hidden", eks.ErrUnavailable),
			wantReason: status.StoreUnavailable},
		{name: "AWS is slow", credential: onEKS, tokenErr: context.DeadlineExceeded, wantReason: status.Timeout},
		{name: "the caller left", ctx: gone, credential: onEKS, tokenErr: context.Canceled, wantErr: context.Canceled},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			if tt.ctx == nil {
				tt.ctx = t.Context()
			}
			m := &Member{Cluster: &v1alpha1.Cluster{ObjectMeta: metav1.ObjectMeta{Name: "member1"}}, Credential: tt.credential,
				tokens: &fakeTokens{err: tt.tokenErr}}
			h := http.Header{"Authorization": {"Bearer the-callers"}}
			err := m.Authorize(tt.ctx, h)
			var se *status.Error
			switch {
			case tt.wantErr != nil && errors.Is(err, tt.wantErr):
			case tt.wantReason != "" && errors.As(err, &se) && se.Reason == tt.wantReason:
				if strings.Contains(se.Message, "hidden") || !strings.Contains(se.Message, "member1") ||
					!errors.Is(se, tt.tokenErr) {
					t.Errorf("message %q, cause %v", se.Message, se.Err)
				}
			case tt.wantErr != nil, tt.wantReason != "", err != nil:
				t.Errorf("error %#v, want %s %v", err, tt.wantReason, tt.wantErr)
			}
			if got := h.Get("Authorization"); got != tt.want {
				t.Errorf("Authorization %q, want %q", got, tt.want)
			}
		})
	}
}

func TestCall(t *testing.T) {
	srv := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch body, _ := io.ReadAll(r.Body); r.URL.Path {
		case "/base/echo":
			_ = json.NewEncoder(w).Encode(map[string]string{"got": r.Method + " " + string(body) + " " +
				r.Header.Get("Authorization") + " " + r.Header.Get("User-Agent")})
		case "/base/wrong":
			_, _ = io.WriteString(w, "<html>")
		case "/base/unknown":
			w.WriteHeader(http.StatusUnauthorized)
		case "/base/html":
			http.Error(w, "<html>you sent "+r.Header.Get("Authorization"), http.StatusBadGateway)
		default:
			w.WriteHeader(http.StatusForbidden)
			_ = json.NewEncoder(w).Encode(metav1.Status{TypeMeta: metav1.TypeMeta{Kind: "Status"},
				Message: "you may not, with " + r.Header.Get("Authorization") + strings.Repeat("é", 400)})
		}
	}))
	defer srv.Close()
	ca := string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: srv.Certificate().Raw}))
	quoted, err := json.Marshal([]byte(ca))
	if err != nil {
		t.Fatal(err)
	}
	c := &v1alpha1.Cluster{ObjectMeta: metav1.ObjectMeta{Name: "member1"}}
	kc, err := kubeconfig.Parse(fmt.Appendf(nil, `{contexts: [{name: x, context: {cluster: c, user: u}}],
clusters: [{name: c, cluster: {server: %q, certificate-authority-data: %s}}],
users: [{name: u, user: {exec: {command: aws, args: [eks, get-token, --cluster-name, demo]}}}]}`, srv.URL+"/base",
		quoted), kubeconfig.Options{})
	if err != nil {
		t.Fatal(err)
	}
	m := NewMember(c, kc, DialPolicy{AllowLoopback: true}, &fakeTokens{})
	defer m.Close()
	var out struct {
		Got string `json:"got"`
	}
	if err := m.Call(t.Context(), http.MethodPost, "/echo", map[string]int{"a": 1}, &out); err != nil {
		t.Fatal(err)
	}
	if want := `POST {"a":1} Bearer k8s-aws-v1.demo ` + version.UserAgent(); out.Got != want {
		t.Errorf("arrived %q, want %q", out.Got, want)
	}
	for path, want := range map[string]string{
		"/wrong": "is not a Kubernetes API server", "/unknown": "refuses the credential (401)",
		"/forbidden": "answers 403 Forbidden: you may not, with Bearer [hidden]é",
		"/html":      "answers 502 Bad Gateway",
	} {
		err := m.Call(t.Context(), http.MethodGet, path, nil, &out)
		if err == nil || !strings.Contains(err.Error(), want) || !strings.Contains(err.Error(), srv.URL) {
			t.Errorf("%s: error %v, want one with %q", path, err, want)
		}
		if text := fmt.Sprintf("%+v %#v", err, err); strings.Contains(text, "k8s-aws-v1.demo") || len(text) > 1500 ||
			!utf8.ValidString(err.Error()) {
			t.Errorf("%s: the error shows what a member echoes: %s", path, text)
		}
	}
	broken := NewMember(c, kc, DialPolicy{AllowLoopback: true}, &fakeTokens{err: errors.New("AccessDenied")})
	defer broken.Close()
	if err := broken.Call(t.Context(), http.MethodGet, "/echo", nil, &out); err == nil ||
		!strings.Contains(err.Error(), "AccessDenied") {
		t.Errorf("the operator does not learn why: %v", err)
	}
}
