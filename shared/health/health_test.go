package health

import (
	"encoding/base64"
	"encoding/json"
	"encoding/pem"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"

	"github.com/clusterpass/clusterpass/shared/api/cluster/v1alpha1"
	"github.com/clusterpass/clusterpass/shared/cluster"
	"github.com/clusterpass/clusterpass/shared/leaktest"
	"github.com/clusterpass/clusterpass/shared/objects"
	objectsdir "github.com/clusterpass/clusterpass/shared/objects/dir"
	"github.com/clusterpass/clusterpass/shared/secrets"
	secretsdir "github.com/clusterpass/clusterpass/shared/secrets/dir"
	"github.com/clusterpass/clusterpass/shared/status"
)

func TestMain(m *testing.M) { leaktest.Main(m) }

// kubeconfig leads to srv with a token.
func kubeconfig(srv *httptest.Server, token string) secrets.Value {
	ca := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: srv.Certificate().Raw})
	return secrets.NewValue(fmt.Appendf(nil, `{apiVersion: v1, kind: Config, current-context: x,
contexts: [{name: x, context: {cluster: c, user: u}}],
clusters: [{name: c, cluster: {server: %q, certificate-authority-data: %q}}],
users: [{name: u, user: {token: %q}}]}`, srv.URL, base64.StdEncoding.EncodeToString(ca), token))
}

// TestProbeAfterRotation holds: a rotation is no failure, although the probe is the first to find that the old credential is refused;
// a credential that is refused for good is.
func TestProbeAfterRotation(t *testing.T) {
	var known atomic.Value
	known.Store("first")
	srv := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Header.Get("Authorization") != "Bearer "+known.Load().(string) {
			w.WriteHeader(http.StatusUnauthorized)
			return
		}
		_, _ = io.WriteString(w, `{"gitVersion":"v1.99.0"}`)
	}))
	defer srv.Close()
	dir := t.TempDir()
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	objects, err := objectsdir.Open(dir + "/objects")
	must(err)
	store, err := secretsdir.Open(dir + "/secrets")
	must(err)
	_, err = objects.Create(t.Context(), v1alpha1.Prefix+"m", []byte(`{}`))
	must(err)
	version, err := store.Create(t.Context(), "clusters/m", kubeconfig(srv, "first"), nil)
	must(err)
	start, ahead := time.Now(), atomic.Int64{}
	members := cluster.NewMembers(cluster.Config{
		Objects: objects, Secrets: store, Freshness: cluster.Freshness{Object: time.Hour, Secret: time.Hour},
		Policy: cluster.DialPolicy{AllowLoopback: true}, Log: slog.New(slog.DiscardHandler),
		Now: func() time.Time { return start.Add(time.Duration(ahead.Load())) },
	})
	defer members.Close()
	p := &Prober{Objects: objects, Members: members, Log: slog.New(slog.DiscardHandler)}
	look := func(what string, wantReady bool, wantReason string) {
		t.Helper()
		for {
			ahead.Add(int64(10 * time.Second)) // the last renewal is a while ago
			ready, err := p.Probe(t.Context(), "m")
			must(err)
			o, err := objects.Get(t.Context(), v1alpha1.Prefix+"m")
			must(err)
			var c v1alpha1.Cluster
			must(json.Unmarshal(o.Value, &c))
			found := meta.FindStatusCondition(c.Status.Conditions, v1alpha1.Ready)
			switch {
			case found != nil && (found.Reason == string(status.Timeout) || found.Reason == string(status.StoreUnavailable)):
				continue // the machine stood still
			case ready != wantReady || found == nil || found.Reason != wantReason:
				t.Errorf("%s: ready %v, %+v; want %s", what, ready, found, wantReason)
			}
			return
		}
	}
	look("at first", true, readyReason)
	_, err = store.Replace(t.Context(), "clusters/m", version, kubeconfig(srv, "second"))
	must(err)
	known.Store("second")
	look("after a rotation", true, readyReason)
	known.Store("nobody's")
	look("refused for good", false, "credential_refused")
}

// late reports whether a member was not asked, or did not answer, in time.
func late(t *testing.T, store objects.Store) bool {
	t.Helper()
	page, err := store.List(t.Context(), v1alpha1.Prefix, 0, "")
	if err != nil {
		t.Fatal(err)
	}
	return slices.ContainsFunc(page.Objects, func(o objects.Object) bool {
		var c v1alpha1.Cluster
		if err := json.Unmarshal(o.Value, &c); err != nil {
			t.Fatal(err)
		}
		ready := meta.FindStatusCondition(c.Status.Conditions, v1alpha1.Ready)
		return ready != nil && (ready.Reason == string(status.Timeout) || ready.Reason == string(status.StoreUnavailable))
	})
}

// TestProbesAreBounded holds: every member is asked, and no more than a few at a time.
func TestProbesAreBounded(t *testing.T) {
	for !bounded(t) {
		t.Log("the machine stood still: once more")
	}
}

// bounded looks at more members than are asked together. It reports whether that says something: a probe that gives up has another one
// take its place.
func bounded(t *testing.T) bool {
	t.Helper()
	const members = 3 * atOnce
	var asked atomic.Int64
	full := make(chan struct{})
	srv := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		asked.Add(1)
		<-full
		_, _ = io.WriteString(w, `{"gitVersion":"v1.99.0"}`)
	}))
	defer srv.Close()
	dir := t.TempDir()
	obj, err := objectsdir.Open(dir + "/objects")
	if err != nil {
		t.Fatal(err)
	}
	store, err := secretsdir.Open(dir + "/secrets")
	if err != nil {
		t.Fatal(err)
	}
	for i := range members {
		name := fmt.Sprintf("m%d", i)
		if _, err := obj.Create(t.Context(), v1alpha1.Prefix+name, []byte(`{}`)); err != nil {
			t.Fatal(err)
		}
		if _, err := store.Create(t.Context(), "clusters/"+name, kubeconfig(srv, "token"), nil); err != nil {
			t.Fatal(err)
		}
	}
	all := cluster.NewMembers(cluster.Config{Objects: obj, Secrets: store, Policy: cluster.DialPolicy{AllowLoopback: true}, Log: slog.New(slog.DiscardHandler)})
	defer all.Close()
	p := &Prober{Objects: obj, Members: all, Log: slog.New(slog.DiscardHandler)}
	began, ended := time.Now(), make(chan error, 1)
	go func() { ended <- p.all(t.Context()) }()
	for asked.Load() < atOnce && len(ended) == 0 {
		time.Sleep(time.Millisecond)
	}
	time.Sleep(200 * time.Millisecond) // in which those that are too many would come
	together, stood := asked.Load(), time.Since(began) > patience/2
	close(full)
	if err := <-ended; err != nil {
		t.Fatal(err)
	}
	if stood || late(t, obj) {
		return false
	}
	if together != atOnce || asked.Load() != members {
		t.Errorf("%d were asked together and %d in all, want %d and %d", together, asked.Load(), atOnce, members)
	}
	return true
}
