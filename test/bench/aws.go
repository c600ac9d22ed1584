package main

import (
	"context"
	"crypto/tls"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"sync/atomic"
	"text/tabwriter"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	utilnet "k8s.io/apimachinery/pkg/util/net"
	"k8s.io/client-go/rest"

	"github.com/clusterpass/clusterpass/shared/access"
	"github.com/clusterpass/clusterpass/shared/api/cluster/v1alpha1"
	passv1alpha1 "github.com/clusterpass/clusterpass/shared/api/clusterpass/v1alpha1"
	"github.com/clusterpass/clusterpass/shared/assembly"
	"github.com/clusterpass/clusterpass/shared/awsclient/mototest"
	clusterpkg "github.com/clusterpass/clusterpass/shared/cluster"
	"github.com/clusterpass/clusterpass/shared/gateway"
	"github.com/clusterpass/clusterpass/shared/identity"
	"github.com/clusterpass/clusterpass/shared/passes"
	"github.com/clusterpass/clusterpass/shared/pki"
	"github.com/clusterpass/clusterpass/shared/registration"
	"github.com/clusterpass/clusterpass/shared/secrets"
	"github.com/clusterpass/clusterpass/shared/stores"
	"github.com/clusterpass/clusterpass/test/cluster"
)

const (
	coldRounds = 100
	warmRounds = 2000
	cacheTurns = 200_000 // looks into the warm cache
)

// gatewayURL is what passes are for.
const gatewayURL = "https://gateway.example.com"

var awsStore = stores.Address{Kind: "aws", Where: "bench"}

// onAWS measures a gateway in this process whose stores are on an imitation of AWS, beside direct calls: the first call of a caller, by
// certificate and by pass, to a gateway that has just started, with nothing cached and no connection open, and calls with everything warm.
// It prints what those calls asked of AWS, and what the caches themselves cost.
func onAWS(ctx context.Context, out io.Writer, direct way, member *cluster.Cluster, dir string) error {
	moto, err := mototest.Start()
	if err != nil {
		return err
	}
	defer moto.Close()
	front, err := mototest.StartFront(moto.URL)
	if err != nil {
		return err
	}
	defer front.Close()
	for name, value := range map[string]string{
		"AWS_ENDPOINT_URL": front.URL, "AWS_REGION": mototest.Config(front.URL).Region, "AWS_ACCESS_KEY_ID": "bench", "AWS_SECRET_ACCESS_KEY": "bench",
	} {
		if err := os.Setenv(name, value); err != nil {
			return err
		}
	}
	pass, err := fillStores(ctx, member)
	if err != nil {
		return err
	}
	ca, err := pki.LoadCA(filepath.Join(dir, "aws"), "client-ca")
	if err != nil {
		return err
	}
	gw := &restarted{ctx: ctx, env: assembly.Env{
		Store: awsStore, ClientCA: assembly.CertificatesOf(ca.Cert), URL: gatewayURL, AllowLoopback: true,
		LogLevel: slog.LevelError,
	}}
	through, byPass, stop, err := gw.serve(ca, pass)
	if err != nil {
		return err
	}
	defer stop()
	direct.forget = func() error { utilnet.CloseIdleConnectionsFor(direct.client.Transport); return nil }

	_, _ = fmt.Fprintln(out)
	const path = "/api/v1/namespaces/default"
	ways := []way{direct, through}
	before, starts := callsTo(front), gw.starts
	if err := measure(ctx, out, ways, []load{{name: "first GET, nothing cached", path: path, rounds: coldRounds, parallel: 1, cold: true}}); err != nil {
		return err
	}
	cold := callsTo(front).each(before, gw.starts-starts)
	before, starts = callsTo(front), gw.starts
	if err := measure(ctx, out, []way{direct, byPass}, []load{{name: "first GET, nothing cached", path: path, rounds: coldRounds, parallel: 1, cold: true}}); err != nil {
		return err
	}
	coldByPass := callsTo(front).each(before, gw.starts-starts)
	before, calls := callsTo(front), gw.calls.Load()
	if err := measure(ctx, out, ways, []load{{name: "GET, all warm", path: path, rounds: warmRounds, parallel: 1}}); err != nil {
		return err
	}
	warm := callsTo(front).each(before, int(gw.calls.Load()-calls))
	coldRead, warmRead, err := gw.reads()
	if err != nil {
		return err
	}
	tw := tabwriter.NewWriter(out, 0, 0, 2, ' ', tabwriter.AlignRight)
	_, _ = fmt.Fprintln(tw, "\na call asks AWS for\tGetSecretValue\tother secrets calls\tDynamoDB calls\tfinding the cluster µs\t")
	for _, row := range []struct {
		name  string
		calls awsCalls
		read  time.Duration
	}{{"nothing cached", cold, coldRead}, {"nothing cached, by pass", coldByPass, coldRead}, {"all warm", warm, warmRead}} {
		_, _ = fmt.Fprintf(tw, "%s\t%.3f\t%.3f\t%.3f\t%.1f\t\n", row.name, row.calls.values, row.calls.others, row.calls.objects,
			float64(row.read)/float64(time.Microsecond))
	}
	return tw.Flush()
}

// awsCalls counts calls to AWS: of GetSecretValue, of other operations of Secrets Manager, and of DynamoDB.
type awsCalls struct{ values, others, objects float64 }

func callsTo(f *mototest.Front) awsCalls {
	values := f.Calls("GetSecretValue")
	return awsCalls{float64(values), float64(f.Calls(mototest.SecretsManager) - values), float64(f.Calls(mototest.DynamoDB))}
}

// each is what each of n calls made, which came after before.
func (c awsCalls) each(before awsCalls, n int) awsCalls {
	return awsCalls{(c.values - before.values) / float64(n), (c.others - before.others) / float64(n), (c.objects - before.objects) / float64(n)}
}

// fillStores makes the stores, with the member, a grant for everybody who calls, and a pass, whose token it returns.
func fillStores(ctx context.Context, member *cluster.Cluster) (pass string, err error) {
	st, err := stores.Open(ctx, awsStore)
	if err != nil {
		return "", err
	}
	if err := st.Objects.(interface{ EnsureTable(context.Context) error }).EnsureTable(ctx); err != nil {
		return "", err
	}
	for key, value := range map[string]string{
		access.RolePrefix + "all":    `{"metadata":{"name":"all"},"rules":[{"apiGroups":["cluster.karmada.io"],"resources":["clusters/proxy"],"verbs":["*"]}]}`,
		access.BindingPrefix + "all": `{"metadata":{"name":"all"},"roleRef":{"apiGroup":"rbac.authorization.k8s.io","kind":"ClusterRole","name":"all"},"subjects":[{"apiGroup":"rbac.authorization.k8s.io","kind":"Group","name":"system:authenticated"}]}`,
	} {
		if _, err := st.Objects.Create(ctx, key, []byte(value)); err != nil {
			return "", err
		}
	}
	r := registration.Registrar{Secrets: st.Secrets, Objects: st.Objects, Policy: clusterpkg.DialPolicy{AllowLoopback: true}}
	if _, err = r.Register(ctx, registration.Request{
		Name: member.Name(), Kubeconfig: secrets.NewValue(member.Kubeconfig()), Identity: v1alpha1.Direct, DirectUsers: []string{v1alpha1.AnyUser},
	}); err != nil {
		return "", err
	}
	issued, err := (&passes.Issuer{Objects: st.Objects, Secrets: st.Secrets, URL: gatewayURL}).Create(ctx, &passv1alpha1.Pass{
		ObjectMeta: metav1.ObjectMeta{Name: "bench"},
		Spec:       passv1alpha1.PassSpec{User: "bench", Clusters: []string{passv1alpha1.Any}, Verbs: []string{passv1alpha1.Any}},
	})
	if err != nil {
		return "", err
	}
	return string(issued.Token.Reveal()), nil
}

// restarted is a gateway that can be started anew behind its address.
type restarted struct {
	ctx    context.Context //nolint:containedctx // of the whole run
	env    assembly.Env
	starts int
	calls  atomic.Int64

	now     atomic.Pointer[gateway.Gateway]
	members *clusterpkg.Members
}

// restart has the next call meet a gateway that has read nothing.
func (r *restarted) restart() error {
	parts, err := assembly.Open(r.ctx, r.env, io.Discard)
	if err != nil {
		return err
	}
	members := parts.NewMembers(nil)
	gw, err := parts.NewGateway(r.ctx, assembly.Options{Peer: identity.TLSPeer, Members: members})
	if err != nil {
		return err
	}
	if r.members != nil {
		r.members.Close()
	}
	r.members = members
	r.now.Store(gw)
	r.starts++
	return nil
}

// serve starts it and returns the ways through it, by a certificate of ca and by a pass.
func (r *restarted) serve(ca *pki.CA, pass string) (byCertificate, byPass way, stop func(), err error) {
	if err := r.restart(); err != nil {
		return way{}, way{}, nil, err
	}
	srv := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		r.calls.Add(1)
		r.now.Load().ServeHTTP(w, req)
	}))
	srv.EnableHTTP2 = true
	srv.TLS = &tls.Config{ClientAuth: tls.RequestClientCert, MinVersion: tls.VersionTLS12}
	srv.StartTLS()
	stop = func() { srv.Close(); r.members.Close() }
	cert, key, err := ca.Client("bench", nil)
	if err != nil {
		stop()
		return way{}, way{}, nil, err
	}
	to := rest.Config{Host: srv.URL + "/clusters/member1"}
	to.CAData = pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: srv.Certificate().Raw})
	bearer := to
	bearer.BearerToken = pass
	to.CertData, to.KeyData = cert, key
	if byCertificate, err = r.way("gateway, stores on AWS", &to); err == nil {
		byPass, err = r.way("the same, by pass", &bearer)
	}
	return byCertificate, byPass, stop, err
}

// way is one whose first call meets a gateway that has read nothing.
func (r *restarted) way(name string, cfg *rest.Config) (way, error) {
	w, err := wayOf(name, cfg)
	w.forget = func() error {
		utilnet.CloseIdleConnectionsFor(w.client.Transport)
		return r.restart()
	}
	return w, err
}

// reads measures how long the gateway takes to find the cluster and its credential: the median where nothing is cached, and the mean where
// both are, which is what the caches add to a call.
func (r *restarted) reads() (cold, warm time.Duration, err error) {
	var times []time.Duration
	for range coldRounds {
		if err := r.restart(); err != nil {
			return 0, 0, err
		}
		start := time.Now()
		if _, err := r.members.Get(r.ctx, "member1"); err != nil {
			return 0, 0, err
		}
		times = append(times, time.Since(start))
	}
	slices.Sort(times)
	before := r.members.Stats()
	start := time.Now()
	for range cacheTurns {
		if _, err := r.members.Get(r.ctx, "member1"); err != nil {
			return 0, 0, err
		}
	}
	warm = time.Since(start) / cacheTurns
	if after := r.members.Stats(); after["secrets"].Hits-before["secrets"].Hits < cacheTurns/2 {
		return 0, 0, errors.New("the cache was not warm")
	}
	return at(times, 0.5), warm, nil
}
