package hub

import (
	"cmp"
	"context"
	"crypto/tls"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/kms"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	clusterv1alpha1 "github.com/clusterpass/clusterpass/shared/api/cluster/v1alpha1"
	"github.com/clusterpass/clusterpass/shared/api/clusterpass/v1alpha1"
	"github.com/clusterpass/clusterpass/shared/awsclient/mototest"
	"github.com/clusterpass/clusterpass/shared/clustertest"
	"github.com/clusterpass/clusterpass/shared/gateway"
	"github.com/clusterpass/clusterpass/shared/gatewaytest"
	"github.com/clusterpass/clusterpass/shared/identity"
	"github.com/clusterpass/clusterpass/shared/passes"
	"github.com/clusterpass/clusterpass/shared/passes/agenttest"
	"github.com/clusterpass/clusterpass/shared/passes/possession"
	"github.com/clusterpass/clusterpass/shared/stores"
	"github.com/clusterpass/clusterpass/shared/stores/kubernetes"
	"github.com/clusterpass/clusterpass/test/e2e"
)

const (
	movedURL              = "https://gateway.example.com"
	region, standbyRegion = "eu-central-1", "eu-west-1"
)

// movingInstallation has the credentials of its callers and agents.
type movingInstallation struct {
	*clustertest.Installation
	t *testing.T

	pass, revokedPass, passOfLab string
	revokedCertificate           tls.Certificate
	agent                        possession.Credential
	privateCluster               *clusterv1alpha1.Cluster
	objectsOfTheStart            map[string]string
}

func openStoresAt(t *testing.T, address string) *stores.Stores {
	t.Helper()
	var a stores.Address
	if err := a.Decode(address); err != nil {
		t.Fatal(err)
	}
	st, err := stores.Open(t.Context(), a, kubernetes.Opener())
	if err != nil {
		t.Fatal(err)
	}
	for _, s := range []any{st.Objects, st.Secrets} {
		if c, ok := s.(interface{ Close() error }); ok {
			t.Cleanup(func() { _ = c.Close() })
		}
	}
	return st
}

func newMovingInstallation(t *testing.T, address string) *movingInstallation {
	t.Helper()
	st := openStoresAt(t, address)
	i := &movingInstallation{Installation: clustertest.NewInstallation(t).InStores(st.Objects, st.Secrets), t: t}
	i.Create("installation/id", "abcdefgh")
	i.Grant("dev", `{"apiGroups":["cluster.karmada.io"],"resources":["clusters/proxy"],"verbs":["get"]}`)
	i.AddRegistry("pods", `{"targetCluster":{},"resourceSelectors":[{"apiVersion":"v1","kind":"Pod"}]}`)
	i.Create("recordingpolicies/all", `{"metadata":{"name":"all"},"spec":{"level":"required"}}`)
	lab := clustertest.NewMember(t, func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		_, _ = io.WriteString(w, `{"kind":"PodList","apiVersion":"v1","metadata":{"resourceVersion":"7"},`+
			`"items":[{"metadata":{"name":"one","namespace":"x"}}]}`)
	})
	i.AddCluster("lab", lab.Kubeconfig(`{token: t}`))
	i.AddCluster("far", lab.Kubeconfig(`{token: t}`), func(s *clusterv1alpha1.ClusterSpec) {
		s.SyncMode, s.ProxyURL = clusterv1alpha1.Pull, "https://bridge.example.com:8444"
	})
	i.pass, i.passOfLab, i.revokedPass = i.createPass("ann"), i.createPass("lab-only", "lab"), i.createPass("bob")
	issuer := i.issuer()
	i.must(issuer.Revoke(t.Context(), "bob"))
	i.revokedCertificate = i.ClientCertificate("eve", "dev")
	_, err := issuer.RevokeCertificate(t.Context(), passes.Revocation{Serial: passes.Serial(i.revokedCertificate.Leaf)})
	i.must(err)
	i.privateCluster = &clusterv1alpha1.Cluster{ObjectMeta: metav1.ObjectMeta{Name: "far"}}
	i.agent, err = i.agents().Enrol(t.Context(), i.privateCluster, 24*time.Hour)
	i.must(err)
	i.objectsOfTheStart = i.objects()
	return i
}

func (i *movingInstallation) must(err error) {
	i.t.Helper()
	if err != nil {
		i.t.Fatal(err)
	}
}

func (i *movingInstallation) issuer() *passes.Issuer {
	return &passes.Issuer{Objects: i.Objects, Secrets: i.Secrets, URL: movedURL, Now: i.Clock.Now}
}

func (i *movingInstallation) verifier() *passes.Verifier {
	return passes.NewVerifier(passes.Config{Objects: i.Objects, Secrets: i.Secrets, URL: movedURL, Now: i.Clock.Now})
}

func (i *movingInstallation) agents() agenttest.Gateway {
	return agenttest.Gateway{Issuer: i.issuer(), Verifier: i.verifier()}
}

func (i *movingInstallation) createPass(name string, clusters ...string) string {
	i.t.Helper()
	if len(clusters) == 0 {
		clusters = []string{v1alpha1.Any}
	}
	issued, err := i.issuer().Create(i.t.Context(), &v1alpha1.Pass{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec: v1alpha1.PassSpec{
			User: name, Groups: []string{"dev"}, Clusters: clusters, Verbs: []string{v1alpha1.Any},
		},
	})
	i.must(err)
	return string(issued.Token.Reveal())
}

// objects returns the values of the objects that a user sees.
func (i *movingInstallation) objects() map[string]string {
	i.t.Helper()
	out := map[string]string{}
	for _, prefix := range []string{
		"clusters/", "passes/", "revocations/", "clusterroles/", "clusterrolebindings/", "resourceregistries/",
		"recordingpolicies/",
	} {
		page, err := i.Objects.List(i.t.Context(), prefix, 0, "")
		i.must(err)
		for _, o := range page.Objects {
			out[o.Key] = string(o.Value)
		}
	}
	return out
}

// check fails the test unless everything works in the present stores.
func (i *movingInstallation) check(place string) {
	i.t.Helper()
	now := i.objects()
	for key, value := range i.objectsOfTheStart {
		if now[key] != value {
			i.t.Errorf("%s: %s is %q, want %q", place, key, now[key], value)
		}
	}
	g := gatewaytest.Start(i.t, i.Installation, gatewaytest.Options{Configure: func(c *gateway.Config) {
		v := i.verifier()
		c.Passes = v
		c.Identity = identity.Chain{
			identity.X509{CA: identity.NewClientCA(i.CA.Pool(), nil), Peer: identity.TLSPeer, Inspect: v.CheckCertificate},
			identity.Bearer{v},
		}
	}})
	g.LogOut()
	for _, tt := range []struct {
		name, path, token string
		want              int
		body              string
	}{
		{"a pass reaches a cluster", "/clusters/lab/api/v1/pods", i.pass, http.StatusOK, `"one"`},
		{"the registry covers", "/fleet/api/v1/pods?clusters=lab", i.pass, http.StatusOK, "cached-from-cluster"},
		{"no registry covers", "/fleet/api/v1/secrets?clusters=lab", i.pass, http.StatusNotFound, "not_global"},
		{"a pass for its cluster", "/clusters/lab/api/v1/pods", i.passOfLab, http.StatusOK, `"one"`},
		{"a pass for no other", "/clusters/far/api/v1/pods", i.passOfLab, http.StatusForbidden, "far"},
		{"a revoked pass", "/clusters/lab/api/v1/pods", i.revokedPass, http.StatusUnauthorized, "revoked"},
	} {
		body, resp := g.DoText("GET", tt.path, http.Header{"Authorization": {"Bearer " + tt.token}}, "")
		if resp.StatusCode != tt.want || !strings.Contains(body, tt.body) {
			i.t.Errorf("%s: %s: %d %s", place, tt.name, resp.StatusCode, body)
		}
	}
	withCertificate := g.ClientTLS.Clone()
	withCertificate.Certificates = []tls.Certificate{i.revokedCertificate}
	g.HTTPClient = &http.Client{Transport: &http.Transport{TLSClientConfig: withCertificate}}
	i.t.Cleanup(g.HTTPClient.CloseIdleConnections)
	if body, resp := g.DoText("GET", "/clusters/lab/api/v1/pods", nil, ""); resp.StatusCode != http.StatusUnauthorized {
		i.t.Errorf("%s: a revoked certificate: %d %s", place, resp.StatusCode, body)
	}
	i.Clock.Advance(time.Minute) // an agent may not renew sooner
	next, err := i.agents().Exchange(i.t.Context(), "far", i.agent)
	if err != nil {
		i.t.Fatalf("%s: the agent does not renew: %v", place, err)
	}
	i.agent = next
	i.must(i.issuer().PublishAll(i.t.Context())) // as a gateway that starts
	token, err := i.verifier().TunnelToken(i.t.Context(), "far")
	if err == nil {
		err = i.verifier().VerifyTunnelToken(i.t.Context(), string(token.Reveal()), "far")
	}
	if err != nil {
		i.t.Errorf("%s: no token for the tunnel port: %v", place, err)
	}
}

// startAWS starts a fake of AWS, sets the environment of the AWS SDK, and returns a key in KMS.
func startAWS(t *testing.T) (kmsKey string) {
	t.Helper()
	moto, err := mototest.Start()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(moto.Close)
	front := mototest.NewFront(t, moto.URL)
	for name, value := range map[string]string{
		"AWS_ENDPOINT_URL": front.URL, "AWS_REGION": region, "AWS_ACCESS_KEY_ID": "AKIAIOSFODNN7EXAMPLE",
		"AWS_SECRET_ACCESS_KEY": "wJalrXUtnFEMI", "AWS_CONFIG_FILE": os.DevNull, "AWS_SHARED_CREDENTIALS_FILE": os.DevNull,
	} {
		t.Setenv(name, value)
	}
	out, err := kms.NewFromConfig(mototest.Config(front.URL)).CreateKey(t.Context(), &kms.CreateKeyInput{})
	if err != nil {
		t.Fatal(err)
	}
	return aws.ToString(out.KeyMetadata.Arn)
}

// hubAddress returns the address of the stores in a new namespace of the hub.
func hubAddress(t *testing.T) string {
	t.Helper()
	name, _ := cached.namespace(t)
	return cached.address(t, name)
}

// clusterpass runs the command line, and returns both of its outputs.
func clusterpass(t *testing.T, args ...string) string {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 4*time.Minute)
	defer cancel()
	out, err := exec.CommandContext(ctx, e2e.Program(t, "scripts/clusterpass", "clusterpass"), args...).CombinedOutput()
	if err != nil {
		t.Fatalf("clusterpass %s: %v\n%s", strings.Join(args, " "), err, out)
	}
	return string(out)
}

// TestInstallationMoves: an operator can change the place of an installation, and no caller or agent needs another
// credential.
func TestInstallationMoves(t *testing.T) {
	key := startAWS(t)
	t.Setenv("CLUSTERPASS_BACKUP_PASSPHRASE", "correct horse battery")
	first := "dir:" + t.TempDir()
	i := newMovingInstallation(t, first)
	i.check(first)
	from := first
	for _, tt := range []struct {
		to     string
		region string // empty means region
		flags  []string
		init   bool // the place needs clusterpass init
	}{
		{to: hubAddress(t)},
		{to: "aws:moved", init: true},
		{to: "aws:moved", region: standbyRegion, init: true},
		{to: hubAddress(t)},
		{to: "dir:" + filepath.Join(t.TempDir(), "new"), flags: []string{"--kms-key", key}},
	} {
		file := filepath.Join(t.TempDir(), "backup")
		clusterpass(t, append([]string{"--store", from, "backup", file}, tt.flags...)...)
		info, err := os.Stat(file)
		if err != nil || info.Mode().Perm() != 0o600 {
			t.Errorf("%v, %v; want a file of mode 0600", info, err)
		}
		t.Setenv("AWS_REGION", cmp.Or(tt.region, region))
		if tt.init {
			clusterpass(t, "--store", tt.to, "init")
		}
		out := clusterpass(t, append([]string{"--store", tt.to, "restore", file}, tt.flags...)...)
		if !strings.Contains(out, "https://bridge.example.com:8444: far") {
			t.Fatalf("restore into %s: %s", tt.to, out)
		}
		st := openStoresAt(t, tt.to)
		i.Installation = i.InStores(st.Objects, st.Secrets)
		i.check(tt.to)
		from = tt.to
	}
}
