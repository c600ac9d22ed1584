package main

import (
	"bytes"
	"crypto/tls"
	"io"
	"net/http"
	"os"
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
)

const movedURL = "https://gateway.example.com"

// installation is one that moves, with the credentials of its callers and agents.
type installation struct {
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
	st, err := stores.Open(t.Context(), a)
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

func newMovedInstallation(t *testing.T, address string) *installation {
	t.Helper()
	st := openStoresAt(t, address)
	i := &installation{Installation: clustertest.NewInstallation(t).InStores(st.Objects, st.Secrets), t: t}
	i.Create("installation/id", "abcdefgh")
	i.Grant("dev", `{"apiGroups":["cluster.karmada.io"],"resources":["clusters/proxy"],"verbs":["get"]}`)
	i.AddRegistry("pods", `{"targetCluster":{},"resourceSelectors":[{"apiVersion":"v1","kind":"Pod"}]}`)
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

func (i *installation) must(err error) {
	i.t.Helper()
	if err != nil {
		i.t.Fatal(err)
	}
}

func (i *installation) issuer() *passes.Issuer {
	return &passes.Issuer{Objects: i.Objects, Secrets: i.Secrets, URL: movedURL, Now: i.Clock.Now}
}

func (i *installation) verifier() *passes.Verifier {
	return passes.NewVerifier(passes.Config{Objects: i.Objects, Secrets: i.Secrets, URL: movedURL, Now: i.Clock.Now})
}

func (i *installation) agents() agenttest.Gateway {
	return agenttest.Gateway{Issuer: i.issuer(), Verifier: i.verifier()}
}

func (i *installation) createPass(name string, clusters ...string) string {
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
func (i *installation) objects() map[string]string {
	i.t.Helper()
	out := map[string]string{}
	for _, prefix := range []string{
		"clusters/", "passes/", "revocations/", "clusterroles/", "clusterrolebindings/", "resourceregistries/",
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
func (i *installation) check(place string) {
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
			identity.X509{CA: identity.NewClientCA(i.CA.Pool(), nil), Peer: identity.TLSPeer, Inspect: v.Certificate},
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
		"AWS_ENDPOINT_URL": front.URL, "AWS_REGION": "eu-central-1", "AWS_ACCESS_KEY_ID": "AKIAIOSFODNN7EXAMPLE",
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

// TestInstallationMoves: an operator can change the place of an installation, and no caller or agent needs another
// credential.
func TestInstallationMoves(t *testing.T) {
	key := startAWS(t)
	t.Setenv(passphraseVariable, "correct horse battery")
	first := "dir:" + t.TempDir()
	i := newMovedInstallation(t, first)
	i.check(first)
	from := first
	for _, tt := range []struct {
		to    string
		flags []string
		init  bool // the place needs clusterpass init
	}{
		{"aws:moved", nil, true},
		{"dir:" + filepath.Join(t.TempDir(), "new"), []string{"--kms-key", key}, false},
	} {
		file := filepath.Join(t.TempDir(), "backup")
		if out, err := (clusterpass{from}).run(t, append([]string{"backup", file}, tt.flags...)...); err != nil {
			t.Fatalf("back up %s: %s%v", from, out, err)
		}
		info, err := os.Stat(file)
		if err != nil || info.Mode().Perm() != 0o600 {
			t.Errorf("%v, %v; want a file of mode 0600", info, err)
		}
		if tt.init {
			if out, err := (clusterpass{tt.to}).run(t, "init"); err != nil {
				t.Fatalf("%s%v", out, err)
			}
		}
		out, err := (clusterpass{tt.to}).run(t, append([]string{"restore", file}, tt.flags...)...)
		if err != nil || !strings.Contains(out, "https://bridge.example.com:8444: far") {
			t.Fatalf("restore into %s: %s%v", tt.to, out, err)
		}
		st := openStoresAt(t, tt.to)
		i.Installation = i.InStores(st.Objects, st.Secrets)
		i.check(tt.to)
		from = tt.to
	}
}

// TestBackupByStandardStreams: a pipeline to another machine must work, and ask nothing.
func TestBackupByStandardStreams(t *testing.T) {
	c, kc := setup(t)
	addLab(t, c, kc)
	passphrase := filepath.Join(t.TempDir(), "passphrase")
	if err := os.WriteFile(passphrase, []byte("correct horse battery\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	var file, messages bytes.Buffer
	cmd := root()
	cmd.SetOut(&file)
	cmd.SetErr(&messages)
	cmd.SetArgs([]string{"--store", c.store, "backup", "-", "--passphrase-file", passphrase})
	if err := cmd.ExecuteContext(t.Context()); err != nil || !strings.Contains(messages.String(), "is backed up: ") {
		t.Fatalf("%s%v", messages.String(), err)
	}
	cmd = root()
	var out bytes.Buffer
	cmd.SetIn(&file)
	cmd.SetOut(&out)
	cmd.SetErr(&out)
	to := clusterpass{"dir:" + filepath.Join(t.TempDir(), "to")}
	cmd.SetArgs([]string{"--store", to.store, "restore", "-", "--passphrase-file", passphrase})
	if err := cmd.ExecuteContext(t.Context()); err != nil {
		t.Fatalf("%s%v", out.String(), err)
	}
	if shown, err := to.run(t, "cluster", "show", "lab"); err != nil || !strings.Contains(shown, "region: eu") {
		t.Errorf("%s%v", shown, err)
	}
}

// TestRefusedRestoreWritesNothing fails if a wrong file or a short passphrase leaves something behind.
func TestRefusedRestoreWritesNothing(t *testing.T) {
	c, kc := setup(t)
	addLab(t, c, kc)
	dir := t.TempDir()
	file, target := filepath.Join(dir, "backup"), filepath.Join(dir, "target")
	t.Setenv(passphraseVariable, "short")
	if out, err := c.run(t, "backup", file); err == nil || !strings.Contains(err.Error(), "at least 12") {
		t.Errorf("a short passphrase: %s%v", out, err)
	}
	if left, err := os.ReadDir(dir); err != nil || len(left) > 0 {
		t.Errorf("%v, %v is left", left, err)
	}
	t.Setenv(passphraseVariable, "correct horse battery")
	if out, err := c.run(t, "backup", file); err != nil {
		t.Fatalf("%s%v", out, err)
	}
	whole, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	changed := bytes.Clone(whole)
	changed[len(changed)-20] ^= 1
	for name, tt := range map[string]struct {
		file             []byte
		passphrase, want string
	}{
		"wrong passphrase": {whole, "wrong horse battery", "the passphrase is wrong"},
		"cut file":         {whole[:len(whole)-1], "correct horse battery", "damaged or incomplete"},
		"changed byte":     {changed, "correct horse battery", "damaged or incomplete"},
	} {
		t.Run(name, func(t *testing.T) {
			if err := os.WriteFile(file, tt.file, 0o600); err != nil {
				t.Fatal(err)
			}
			t.Setenv(passphraseVariable, tt.passphrase)
			out, err := (clusterpass{"dir:" + target}).run(t, "restore", file)
			if err == nil || !strings.Contains(err.Error(), tt.want) {
				t.Errorf("%s%v, want %s", out, err, tt.want)
			}
			if _, err := os.Stat(target); !os.IsNotExist(err) {
				t.Errorf("the store was created: %v", err)
			}
		})
	}
}
