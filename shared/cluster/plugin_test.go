package cluster_test

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/clusterpass/clusterpass/shared/api/cluster/v1alpha1"
	"github.com/clusterpass/clusterpass/shared/cluster"
	"github.com/clusterpass/clusterpass/shared/cluster/kubeconfig"
	"github.com/clusterpass/clusterpass/shared/clustertest"
	"github.com/clusterpass/clusterpass/shared/secrets"
	"github.com/clusterpass/clusterpass/shared/status"
)

// fakePlugin returns next, and counts the calls that would run a program.
type fakePlugin struct {
	mu           sync.Mutex
	latest, next kubeconfig.PluginCredential
	err          error
	runs         int
}

func (p *fakePlugin) run() {
	p.latest = p.next
	p.runs++
}

func (p *fakePlugin) Credential(context.Context) (kubeconfig.PluginCredential, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.latest == (kubeconfig.PluginCredential{}) {
		p.run()
	}
	return p.latest, p.err
}

func (p *fakePlugin) Latest() (kubeconfig.PluginCredential, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.latest, p.err
}

func (p *fakePlugin) Renew(_ context.Context, refusedToken string) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	before := p.latest
	if before.Token != refusedToken {
		return true
	}
	p.run()
	return p.latest != before
}

func (p *fakePlugin) set(change func()) {
	p.mu.Lock()
	defer p.mu.Unlock()
	change()
}

func direct(s *v1alpha1.ClusterSpec) { s.Identity, s.DirectUsers = v1alpha1.Direct, []string{"alice"} }

func withPlugins(i *clustertest.Installation, plugins cluster.Plugins) *cluster.Members {
	return cluster.NewMembers(cluster.Config{
		MaxReadConns: 100,
		Objects:      i.Objects, Secrets: i.Secrets, Policy: cluster.DialPolicy{AllowLoopback: true}, Plugins: plugins,
		Log: slog.New(slog.DiscardHandler),
	})
}

// call sends a request with the gateway's credential and returns the answer's version, or the error.
func call(ctx context.Context, members *cluster.Members) (string, error) {
	m, err := members.Get(ctx, "m")
	if err != nil {
		return "", err
	}
	var v struct {
		GitVersion string `json:"gitVersion"`
	}
	err = members.Call(ctx, m, http.MethodGet, "/version", nil, &v)
	return v.GitVersion, err
}

// TestPluginOfOtherServer: a cluster that an administrator registers elsewhere must not receive the user's credential.
func TestPluginOfOtherServer(t *testing.T) {
	m := clustertest.NewMember(t, func(w http.ResponseWriter, _ *http.Request) {
		_, _ = io.WriteString(w, `{"gitVersion":"v1.99.0"}`)
	})
	own, plugin := m.Kubeconfig("{}"), &fakePlugin{next: kubeconfig.PluginCredential{Token: "t"}}
	elsewhere := strings.Replace(string(own), m.URL, "https://localhost:1", 1)
	for _, tt := range []struct {
		name, kubeconfig string
		edit             func(*v1alpha1.ClusterSpec)
		wantErr          string
	}{
		{"the registered one", string(own), direct, ""},
		{"another server", elsewhere, direct, "identity direct needs a credential"},
		{"impersonation", string(own), nil, "identity impersonate needs a credential"},
		{"a credential of its own", string(m.Kubeconfig("{token: own}")), direct, ""},
	} {
		t.Run(tt.name, func(t *testing.T) {
			i := clustertest.NewInstallation(t)
			i.AddCluster("m", []byte(tt.kubeconfig), tt.edit)
			members := withPlugins(i, cluster.Plugins{"m": {Plugin: plugin, Kubeconfig: secrets.NewValue(own)}})
			defer members.Close()
			_, err := call(t.Context(), members)
			if tt.wantErr == "" && err != nil || tt.wantErr != "" && (err == nil || !strings.Contains(err.Error(), tt.wantErr)) {
				t.Errorf("error %v, want %q", err, tt.wantErr)
			}
			got := "not called"
			if requests := m.TakeRequests(); len(requests) > 0 {
				got = requests[0].Header.Get("Authorization")
			}
			want := map[string]string{"the registered one": "Bearer t", "a credential of its own": "Bearer own"}[tt.name]
			if want == "" {
				want = "not called"
			}
			if got != want {
				t.Errorf("the member receives %q, want %q", got, want)
			}
		})
	}
}

// TestPluginRuns: a user's request runs the plugin again after a 401, and probes never run it. A probe that did would
// open a login page again and again.
func TestPluginRuns(t *testing.T) {
	m := clustertest.NewMember(t, func(w http.ResponseWriter, r *http.Request) {
		if r.Header.Get("Authorization") != "Bearer good" {
			w.WriteHeader(http.StatusUnauthorized)
			return
		}
		_, _ = io.WriteString(w, `{"gitVersion":"v1.99.0"}`)
	})
	plugin := &fakePlugin{next: kubeconfig.PluginCredential{Token: "expired"}}
	i := clustertest.NewInstallation(t)
	i.AddCluster("m", m.Kubeconfig("{}"), direct)
	members := withPlugins(i, cluster.Plugins{"m": {Plugin: plugin, Kubeconfig: secrets.NewValue(m.Kubeconfig("{}"))}})
	defer members.Close()
	user, probe := t.Context(), cluster.AsProbe(t.Context())
	failed := errors.New("it exited with code 1")
	for _, tt := range []struct {
		name         string
		change       func() // before the call
		ctx          context.Context
		wantRuns     int // since the previous call
		wantRequests int
		want         string // part of the error
	}{
		{"a probe without a credential", func() {}, probe, 0, 1, "refuses the credential (401)"},
		{"a user whose credential is refused for good", func() {}, user, 2, 1, "refuses the credential (401)"},
		{"a probe with the old credential", func() { plugin.next.Token = "good" }, probe, 0, 1,
			"refuses the credential (401)"},
		{"a user whose credential is refused", func() {}, user, 1, 2, ""},
		{"a probe with the new credential", func() {}, probe, 0, 1, ""},
		{"a probe after a failure", func() { plugin.err = failed }, probe, 0, 0, "its credential plugin failed: it exited"},
		{"a user after a failure", func() {}, user, 0, 0, "its credential plugin failed: it exited with code 1"},
		{"a plugin that waits for the user", func() { plugin.err = fmt.Errorf("wait: %w", context.DeadlineExceeded) }, user,
			0, 0, "its credential plugin still runs"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			before := 0
			plugin.set(func() { tt.change(); before = plugin.runs })
			m.TakeRequests()
			_, err := call(tt.ctx, members)
			if tt.want == "" && err != nil || tt.want != "" && (err == nil || !strings.Contains(err.Error(), tt.want)) {
				t.Errorf("error %v, want %q", err, tt.want)
			}
			plugin.set(func() { before = plugin.runs - before })
			if requests := len(m.TakeRequests()); before != tt.wantRuns || requests != tt.wantRequests {
				t.Errorf("%d runs and %d requests, want %d and %d", before, requests, tt.wantRuns, tt.wantRequests)
			}
		})
	}
	plugin.set(func() { plugin.err = failed })
	gone, leave := context.WithCancel(t.Context())
	leave()
	if _, err := call(gone, members); !errors.Is(err, context.Canceled) {
		t.Errorf("a caller who is gone: %v", err)
	}
	plugin.set(func() { plugin.err = context.DeadlineExceeded })
	if _, err := call(user, members); status.From(err).Reason != status.Timeout {
		t.Errorf("a plugin that waits: %v", err)
	}
}

// TestPluginCertificates: a request must not use a connection or TLS session of the previous certificate. The member
// would see the user of before.
func TestPluginCertificates(t *testing.T) {
	srv := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		user := "nobody"
		if len(r.TLS.PeerCertificates) > 0 {
			user = r.TLS.PeerCertificates[0].Subject.CommonName
		}
		_, _ = fmt.Fprintf(w, `{"gitVersion":%q}`, user+" by "+r.Proto)
	}))
	srv.EnableHTTP2 = true
	srv.TLS = &tls.Config{ClientAuth: tls.RequestClientCert, MinVersion: tls.VersionTLS12}
	srv.StartTLS()
	defer srv.Close()
	i := clustertest.NewInstallation(t)
	plain := clustertest.ServerKubeconfig(srv, "{}")
	i.AddCluster("m", plain, direct)
	plugin := &fakePlugin{next: kubeconfig.PluginCredential{Token: "t"}}
	members := withPlugins(i, cluster.Plugins{"m": {Plugin: plugin, Kubeconfig: secrets.NewValue(plain)}})
	defer members.Close()
	for _, user := range []string{"nobody", "ann", "ann", "bob", "nobody", "bob"} {
		plugin.set(func() {
			if plugin.latest.Certificate = nil; user != "nobody" {
				pair := i.ClientCertificate(user)
				plugin.latest.Certificate = &pair
			}
		})
		for range 2 {
			if got, err := call(t.Context(), members); err != nil || got != user+" by HTTP/2.0" {
				t.Errorf("the member sees %q, %v; want %s", got, err, user)
			}
		}
		readByBoth(t, members, user)
	}
}

// readByBoth reads until a connection of HTTP/1.1 is used.
func readByBoth(t *testing.T, members *cluster.Members, user string) {
	t.Helper()
	m, err := members.Get(t.Context(), "m")
	if err != nil {
		t.Fatal(err)
	}
	for began := time.Now(); time.Since(began) < time.Minute; {
		r := &http.Request{Method: http.MethodGet, Header: http.Header{}, Host: m.Server.Host,
			URL: &url.URL{Scheme: m.Server.Scheme, Host: m.Server.Host, Opaque: "/version"}}
		resp, err := m.Single.RoundTrip(r.WithContext(t.Context()))
		if err != nil {
			t.Fatal(err)
		}
		body, err := io.ReadAll(resp.Body)
		_ = resp.Body.Close()
		if err != nil || !strings.Contains(string(body), user+" by ") {
			t.Errorf("the member sees %s, %v; want %s", body, err, user)
		}
		if resp.ProtoMajor == 1 {
			return
		}
	}
	t.Error("no read uses HTTP/1.1")
}
