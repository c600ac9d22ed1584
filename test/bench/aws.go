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
	"strings"
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
	cacheReads = 200_000 // lookups in the warm cache
)

// gatewayURL is the audience of passes.
const gatewayURL = "https://gateway.example.com"

var awsStore = stores.Address{Kind: "aws", Where: "bench"}

// onAWS measures a gateway in this process, with its stores on an emulator of AWS, and direct calls. It measures the
// first call to a gateway that has just started, by certificate and by pass, and calls with warm caches. It prints the
// number of requests to AWS for each call, and the time of the caches.
func onAWS(ctx context.Context, out *report, set *cluster.Set, dir string) error {
	member := set.Cluster("member1")
	direct, err := newEndpoint("direct", member.RESTConfig())
	if err != nil {
		return err
	}
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
	if err := setEnvironment(front.URL); err != nil {
		return err
	}
	pass, err := fillStores(ctx, member)
	if err != nil {
		return err
	}
	ca, err := pki.LoadCA(filepath.Join(dir, "aws"), "client-ca")
	if err != nil {
		return err
	}
	gw := &restartable{ctx: ctx, env: assembly.Env{
		Store: awsStore, ClientCA: assembly.CertificatesOf(ca.Cert), URL: gatewayURL, AllowLoopback: true,
		Shared: assembly.Shared{LogLevel: slog.LevelError},
	}}
	byCertificate, byPass, stop, err := gw.serve(ca, pass)
	if err != nil {
		return err
	}
	defer stop()
	direct.reset = func() error { utilnet.CloseIdleConnectionsFor(direct.client.Transport); return nil }

	_, _ = fmt.Fprintln(out)
	const path = smallPath
	first := load{name: "first GET, nothing cached", path: path, rounds: coldRounds, parallel: 1, cold: true}
	cold, err := gw.count(ctx, out, front, direct, byCertificate, first)
	if err != nil {
		return err
	}
	coldByPass, err := gw.count(ctx, out, front, direct, byPass, first)
	if err != nil {
		return err
	}
	warm, err := gw.count(ctx, out, front, direct, byCertificate,
		load{name: "GET, all warm", path: path, rounds: warmRounds, parallel: 1})
	if err != nil {
		return err
	}
	coldRead, warmRead, err := gw.reads()
	if err != nil {
		return err
	}
	tw := tabwriter.NewWriter(out, 0, 0, 2, ' ', tabwriter.AlignRight)
	_, _ = fmt.Fprintln(tw, "\na call asks AWS for\tGetSecretValue\tother secrets calls\tDynamoDB calls\tfinding the "+
		"cluster µs\t")
	for _, row := range []struct {
		name  string
		calls awsCalls
		read  time.Duration
	}{{"nothing cached", cold, coldRead}, {"nothing cached, by pass", coldByPass, coldRead},
		{"all warm", warm, warmRead}} {
		_, _ = fmt.Fprintf(tw, "%s\t%.3f\t%.3f\t%.3f\t%.1f\t\n", row.name, row.calls.values, row.calls.others,
			row.calls.objects,
			float64(row.read)/float64(time.Microsecond))
	}
	if err := tw.Flush(); err != nil {
		return err
	}
	return storeReads(ctx, out, byCertificate, path, front)
}

// awsCalls counts calls to AWS: of GetSecretValue, of other operations of Secrets Manager, and of DynamoDB.
type awsCalls struct{ values, others, objects float64 }

func callsTo(f *mototest.Front) awsCalls {
	values := f.Calls("GetSecretValue")
	return awsCalls{float64(values), float64(f.Calls(mototest.SecretsManager) - values),
		float64(f.Calls(mototest.DynamoDB))}
}

// each returns the average for each of n calls since before.
func (c awsCalls) each(before awsCalls, n int) awsCalls {
	return awsCalls{(c.values - before.values) / float64(n), (c.others - before.others) / float64(n),
		(c.objects - before.objects) / float64(n)}
}

func awsEnvironment(endpoint string) []string {
	return []string{
		"AWS_ENDPOINT_URL=" + endpoint, "AWS_REGION=" + mototest.Config(endpoint).Region, "AWS_ACCESS_KEY_ID=bench",
		"AWS_SECRET_ACCESS_KEY=bench",
	}
}

// setEnvironment makes this process use an emulator of AWS.
func setEnvironment(endpoint string) error {
	for _, variable := range awsEnvironment(endpoint) {
		name, value, _ := strings.Cut(variable, "=")
		if err := os.Setenv(name, value); err != nil {
			return err
		}
	}
	return nil
}

// fillStores creates the stores with the member, a grant for all authenticated callers and a pass. It returns the
// token.
func fillStores(ctx context.Context, member *cluster.Cluster) (pass string, err error) {
	st, err := stores.Open(ctx, awsStore)
	if err != nil {
		return "", err
	}
	if err := st.Objects.(interface{ EnsureTable(context.Context) error }).EnsureTable(ctx); err != nil {
		return "", err
	}
	if err := grantToAll(ctx, st, member); err != nil {
		return "", err
	}
	issued, err := (&passes.Issuer{Objects: st.Objects, Secrets: st.Secrets, URL: gatewayURL}).Create(ctx,
		&passv1alpha1.Pass{
			ObjectMeta: metav1.ObjectMeta{Name: "bench"},
			Spec: passv1alpha1.PassSpec{User: "bench", Clusters: []string{passv1alpha1.Any},
				Verbs: []string{passv1alpha1.Any}},
		})
	if err != nil {
		return "", err
	}
	return string(issued.Token.Reveal()), nil
}

// grantToAll registers a member that all authenticated callers may call.
func grantToAll(ctx context.Context, st *stores.Stores, member *cluster.Cluster) error {
	for key, value := range map[string]string{
		access.RolePrefix + "all": `{"metadata":{"name":"all"},` +
			`"rules":[{"apiGroups":["cluster.karmada.io"],"resources":["clusters/proxy"],"verbs":["*"]}]}`,
		access.BindingPrefix + "all": `{"metadata":{"name":"all"},` +
			`"roleRef":{"apiGroup":"rbac.authorization.k8s.io","kind":"ClusterRole","name":"all"},"subjects":` +
			`[{"apiGroup":"rbac.authorization.k8s.io","kind":"Group","name":"system:authenticated"}]}`,
	} {
		if _, err := st.Objects.Create(ctx, key, []byte(value)); err != nil {
			return err
		}
	}
	r := registration.Registrar{Secrets: st.Secrets, Objects: st.Objects,
		Policy: clusterpkg.DialPolicy{AllowLoopback: true}}
	_, err := r.Register(ctx, registration.Request{
		Name: member.Name(), Kubeconfig: secrets.NewValue(member.Kubeconfig()), Identity: v1alpha1.Direct,
		DirectUsers: []string{v1alpha1.AnyUser},
	})
	return err
}

// restartable is a gateway that restarts behind the same address.
type restartable struct {
	ctx    context.Context //nolint:containedctx // the context of the whole run
	env    assembly.Env
	starts int
	calls  atomic.Int64

	now     atomic.Pointer[gateway.Gateway]
	members *clusterpkg.Members
}

// restart replaces the gateway by one with empty caches.
func (r *restartable) restart() error {
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

// count measures a load through the gateway and beside it, and returns what each call through it asks of AWS.
func (r *restartable) count(
	ctx context.Context, out io.Writer, front *mototest.Front, direct, through endpoint, l load,
) (each awsCalls, err error) {
	before, starts, calls := callsTo(front), r.starts, r.calls.Load()
	if err := measure(ctx, out, []endpoint{direct, through}, []load{l}); err != nil {
		return awsCalls{}, err
	}
	n := int(r.calls.Load() - calls)
	if l.cold {
		n = r.starts - starts
	}
	return callsTo(front).each(before, n), nil
}

// serve starts the gateway. It returns its endpoints, with a certificate of ca and with a pass as credential.
func (r *restartable) serve(ca *pki.CA, pass string) (byCertificate, byPass endpoint, stop func(), err error) {
	if err := r.restart(); err != nil {
		return endpoint{}, endpoint{}, nil, err
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
		return endpoint{}, endpoint{}, nil, err
	}
	to := rest.Config{Host: srv.URL + "/clusters/member1"}
	to.CAData = pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: srv.Certificate().Raw})
	bearer := to
	bearer.BearerToken = pass
	to.CertData, to.KeyData = cert, key
	if byCertificate, err = r.endpoint("gateway, stores on AWS", &to); err == nil {
		byPass, err = r.endpoint("the same, by pass", &bearer)
	}
	return byCertificate, byPass, stop, err
}

// endpoint returns an endpoint whose reset restarts the gateway.
func (r *restartable) endpoint(name string, cfg *rest.Config) (endpoint, error) {
	w, err := newEndpoint(name, cfg)
	w.reset = func() error {
		utilnet.CloseIdleConnectionsFor(w.client.Transport)
		return r.restart()
	}
	return w, err
}

// reads measures the lookup of the cluster and its credential in the gateway. cold is the median with empty caches.
// warm is the mean with warm caches, which the caches add to each call.
func (r *restartable) reads() (cold, warm time.Duration, err error) {
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
	for range cacheReads {
		if _, err := r.members.Get(r.ctx, "member1"); err != nil {
			return 0, 0, err
		}
	}
	warm = time.Since(start) / cacheReads
	if after := r.members.Stats(); after["secrets"].Hits-before["secrets"].Hits < cacheReads/2 {
		return 0, 0, errors.New("the cache was not warm")
	}
	return at(times, 0.5), warm, nil
}
