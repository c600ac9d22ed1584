// Package upgrade tests that the code reads the stores and the credentials of earlier versions. Two versions share the
// stores during a deployment, and credentials are valid for days. testdata has a directory for each format. Invariants:
//   - A format is written once, by -update FORMAT, and never changed.
//   - Each later version reads all formats.
//   - The numbers of the formats have no gaps.
package upgrade

import (
	"bytes"
	"crypto/tls"
	"encoding/base64"
	"encoding/json"
	"encoding/pem"
	"errors"
	"flag"
	"fmt"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/yaml"

	"github.com/clusterpass/clusterpass/shared/access"
	clusterv1alpha1 "github.com/clusterpass/clusterpass/shared/api/cluster/v1alpha1"
	"github.com/clusterpass/clusterpass/shared/api/clusterpass/v1alpha1"
	searchv1alpha1 "github.com/clusterpass/clusterpass/shared/api/search/v1alpha1"
	"github.com/clusterpass/clusterpass/shared/cluster"
	"github.com/clusterpass/clusterpass/shared/fleet/registry"
	"github.com/clusterpass/clusterpass/shared/identity"
	"github.com/clusterpass/clusterpass/shared/objects"
	"github.com/clusterpass/clusterpass/shared/passes"
	"github.com/clusterpass/clusterpass/shared/passes/agenttest"
	"github.com/clusterpass/clusterpass/shared/passes/possession"
	"github.com/clusterpass/clusterpass/shared/pki"
	"github.com/clusterpass/clusterpass/shared/secrets"
	"github.com/clusterpass/clusterpass/shared/stores"
)

var update = flag.String("update", "", "write this format, such as format1, as the code does today")

const (
	gatewayURL = "https://clusterpass.example.com"
	tunnelURL  = "https://bridge.internal:8444"
	prefix     = "upgraded" // names the installation on AWS
)

var issuedAt = time.Date(2026, 11, 21, 12, 0, 0, 0, time.UTC)

func now() time.Time { return issuedAt.Add(time.Hour) }

// TestFormats: an upgrade must not lose clusters, grants or passes, or disconnect agents.
func TestFormats(t *testing.T) {
	if *update != "" {
		writeFormat(t, filepath.Join("testdata", *update))
	}
	for i, dir := range formats(t) {
		for kind, restore := range map[string]func(*testing.T, string) *stores.Stores{"dir": restoreDir, "aws": restoreAWS} {
			t.Run(filepath.Base(dir)+"/"+kind, func(t *testing.T) {
				st := restore(t, dir)
				// Each program that signs passes does this at its start.
				if err := (&passes.Issuer{Objects: st.Objects, Secrets: st.Secrets, Now: now}).PublishAll(t.Context()); err != nil {
					t.Fatal(err)
				}
				if i > 0 { // format1 is older than private clusters
					checkPrivate(t, dir, st)
					checkAgent(t, dir, st, i > 1) // format2 has credentials without a key
				}
				checkCluster(t, st)
				checkCredentials(t, dir, st)
				checkRevisions(t, st)
			})
		}
	}
}

// formats returns the directories of all formats in the order of their numbers.
func formats(t *testing.T) []string {
	t.Helper()
	entries, err := os.ReadDir("testdata")
	if err != nil || len(entries) == 0 {
		t.Fatalf("%d formats, %v", len(entries), err)
	}
	dirs := make([]string, len(entries))
	for i := range dirs {
		dirs[i] = filepath.Join("testdata", fmt.Sprintf("format%d", i+1))
		if _, err := os.Stat(dirs[i]); err != nil {
			t.Fatal(err)
		}
	}
	return dirs
}

func checkCluster(t *testing.T, st *stores.Stores) {
	t.Helper()
	ctx := t.Context()
	members := cluster.NewMembers(cluster.Config{Objects: st.Objects, Secrets: st.Secrets,
		Policy: cluster.DialPolicy{AllowLoopback: true}})
	defer members.Close()
	m, err := members.Get(ctx, "member1")
	if err != nil {
		t.Fatal(err)
	}
	if m.Server.String() != "https://member1.example.com:6443" || m.Cluster.Labels["env"] != "prod" ||
		m.Cluster.Spec.SyncMode != clusterv1alpha1.Push {
		t.Errorf("member1 is %s, %+v", m.Server, m.Cluster)
	}

	policy := access.NewAuthorizer(access.Config{Store: st.Objects})
	ann := &identity.User{Name: "ann"}
	attributes := func(name string) access.Attributes { return access.Cluster(name, http.MethodGet, nil) }
	if err := policy.Authorize(ctx, ann, attributes("member1")); err != nil {
		t.Errorf("ann lost her grant: %v", err)
	}
	if policy.Authorize(ctx, ann, attributes("member2")) == nil {
		t.Error("ann was granted another cluster")
	}

	page, err := st.Objects.List(ctx, searchv1alpha1.Prefix, 0, "")
	if err != nil || len(page.Objects) != 1 {
		t.Fatalf("%d registries, %v", len(page.Objects), err)
	}
	var r searchv1alpha1.ResourceRegistry
	if err := json.Unmarshal(page.Objects[0].Value, &r); err != nil {
		t.Fatal(err)
	}
	scope := func(resource, kind string) registry.Scope {
		return registry.ScopeOf([]searchv1alpha1.ResourceRegistry{r}, m.Cluster,
			registry.Kind{APIVersion: "v1", Resource: resource, Kind: kind})
	}
	if !scope("pods", "Pod").Covers("default") || scope("secrets", "Secret").Covers("default") {
		t.Errorf("the registry takes in %+v and %+v", scope("pods", "Pod"), scope("secrets", "Secret"))
	}
}

func checkCredentials(t *testing.T, dir string, st *stores.Stores) {
	t.Helper()
	ctx := t.Context()
	verifier := passes.NewVerifier(passes.Config{Objects: st.Objects, Secrets: st.Secrets, URL: gatewayURL, Now: now})
	user, err := verifier.AuthenticateToken(ctx, strings.TrimSpace(readFile(t, dir, "token")))
	if err != nil || user.Name != "ann" || user.Scope == nil {
		t.Errorf("the token is %+v, %v", user, err)
	}
	good, revoked := readCertificate(t, dir, "good.pem"), readCertificate(t, dir, "revoked.pem")
	if err := verifier.CheckCertificate(ctx, good, &identity.User{Name: "ann"}); err != nil {
		t.Errorf("the certificate is refused: %v", err)
	}
	if verifier.CheckCertificate(ctx, revoked, &identity.User{Name: "ann"}) == nil {
		t.Error("the revoked certificate is taken")
	}
}

// checkRevisions: watches and conditional writes of clients must continue after an upgrade.
func checkRevisions(t *testing.T, st *stores.Stores) {
	t.Helper()
	ctx := t.Context()
	var events int
	enough := errors.New("enough")
	if rev, err := st.Objects.Revision(ctx); err != nil || rev < 6 {
		t.Errorf("revision %d, %v", rev, err)
	} else if err := st.Objects.Watch(ctx, "", rev-3, func(objects.Event) error {
		if events++; events == 3 {
			return enough
		}
		return nil
	}, nil); !errors.Is(err, enough) {
		t.Errorf("the log: %d events, %v", events, err)
	}
	old, err := st.Objects.Get(ctx, clusterv1alpha1.Prefix+"member1")
	if err != nil {
		t.Fatal(err)
	}
	changed, err := st.Objects.Update(ctx, clusterv1alpha1.Prefix+"member1", old.Value, old.Revision)
	if err != nil || changed.Revision <= old.Revision {
		t.Errorf("an update: %+v, %v", changed, err)
	}
}

// checkAgent: an upgrade of the gateway must not disconnect agents for good.
func checkAgent(t *testing.T, dir string, st *stores.Stores, isBound bool) {
	t.Helper()
	ctx := t.Context()
	own := possession.Credential{Token: secrets.NewValue([]byte(strings.TrimSpace(readFile(t, dir, "agent.token"))))}
	if isBound {
		key, err := possession.ParseKey(secrets.NewValue([]byte(readFile(t, dir, "agent.key"))))
		if err != nil {
			t.Fatal(err)
		}
		own.Key = key
	}
	g := agenttest.Gateway{
		Issuer:   &passes.Issuer{Objects: st.Objects, Secrets: st.Secrets, URL: gatewayURL, Now: now},
		Verifier: passes.NewVerifier(passes.Config{Objects: st.Objects, Secrets: st.Secrets, URL: gatewayURL, Now: now}),
	}
	connect := func(c possession.Credential) (*passes.Agent, error) {
		t.Helper()
		p, err := agenttest.Present(c, possession.Connect, "", now())
		if err != nil {
			t.Fatal(err)
		}
		return g.Verifier.AuthenticateAgent(ctx, "private1", p)
	}
	if agent, err := connect(own); err != nil {
		t.Errorf("the agent is refused: %v", err)
	} else if err := agent.Recheck(ctx); err != nil || agent.TTL != passes.MaxTTL || agent.IsEnding() {
		t.Errorf("the agent is %+v, %v", agent, err)
	}
	replaced := possession.Credential{
		Token: secrets.NewValue([]byte(strings.TrimSpace(readFile(t, dir, "replaced.token"))))}
	if _, err := connect(replaced); err == nil {
		t.Error("an agent is accepted whose cluster has joined again since")
	}
	next, err := g.Exchange(ctx, "private1", own)
	if err != nil {
		t.Fatalf("the agent's credential cannot be renewed: %v", err)
	}
	if _, err := connect(next); err != nil {
		t.Errorf("the renewed credential is refused: %v", err)
	}
	var reused *passes.ReusedError
	if _, err := g.Exchange(ctx, "private1", own); !errors.As(err, &reused) {
		t.Errorf("a credential is renewed twice: %v", err)
	}
}

func checkPrivate(t *testing.T, dir string, st *stores.Stores) {
	t.Helper()
	ctx := t.Context()
	members := cluster.NewMembers(cluster.Config{Objects: st.Objects, Secrets: st.Secrets})
	defer members.Close()
	m, err := members.Get(ctx, "private1")
	if err != nil {
		t.Fatal(err)
	}
	if s := m.Cluster.Spec; m.Server.String() != "https://private1.example.com:6443" ||
		s.SyncMode != clusterv1alpha1.Pull || s.ProxyURL != tunnelURL {
		t.Errorf("private1 is %s, %+v", m.Server, m.Cluster)
	}

	verifier := passes.NewVerifier(passes.Config{Objects: st.Objects, Secrets: st.Secrets, URL: gatewayURL, Now: now})
	if err := verifier.VerifyTunnelCertificate(ctx, readCertificate(t, dir, "tunnel.pem")); err != nil {
		t.Errorf("the tunnel port's certificate is refused: %v", err)
	}
	// Tokens for the tunnel port are valid for a minute.
	atIssue := func() time.Time { return issuedAt }
	verifier = passes.NewVerifier(passes.Config{Objects: st.Objects, Secrets: st.Secrets, URL: gatewayURL, Now: atIssue})
	connect := strings.TrimSpace(readFile(t, dir, "tunnel.token"))
	if err := verifier.VerifyTunnelToken(ctx, connect, "private1"); err != nil {
		t.Errorf("who connects to the tunnel port is refused: %v", err)
	}
	if verifier.VerifyTunnelToken(ctx, connect, "member1") == nil {
		t.Error("who connects to the tunnel port is taken for another cluster")
	}
}

// fill writes one object and one secret of each kind. It returns one credential of each kind by the name of its file.
func fill(t *testing.T, st *stores.Stores) map[string][]byte {
	t.Helper()
	ctx := t.Context()
	ca, err := pki.LoadCA(t.TempDir(), "ca")
	if err != nil {
		t.Fatal(err)
	}
	private := fillObjects(t, st, ca)
	issuer := &passes.Issuer{Objects: st.Objects, Secrets: st.Secrets, URL: gatewayURL, CA: ca, Now: func() time.Time {
		return issuedAt
	}}
	spec := v1alpha1.PassSpec{User: "ann", Clusters: []string{"member1"}, Verbs: []string{"get"},
		TTL: metav1.Duration{Duration: passes.MaxTTL}}
	token, err := issuer.Create(ctx, &v1alpha1.Pass{ObjectMeta: metav1.ObjectMeta{Name: "token"}, Spec: spec})
	if err != nil {
		t.Fatal(err)
	}
	spec.Form, spec.TTL.Duration = v1alpha1.Certificate, passes.MaxCertificateTTL
	cert, err := issuer.Create(ctx, &v1alpha1.Pass{ObjectMeta: metav1.ObjectMeta{Name: "certificate"}, Spec: spec})
	if err != nil {
		t.Fatal(err)
	}
	revoked, _, err := ca.Client("ann", nil)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := issuer.RevokeCertificate(ctx, passes.Revocation{Serial: passes.Serial(parseCertificate(t, revoked)),
		User:   "ann",
		Reason: "lost"}); err != nil {
		t.Fatal(err)
	}

	gateway := passes.NewVerifier(passes.Config{
		Objects: st.Objects, Secrets: st.Secrets, URL: gatewayURL, Now: issuer.Now,
	})
	replaced, err := issuer.EnrolAgent(ctx, private, passes.MaxTTL)
	if err != nil {
		t.Fatal(err)
	}
	agent, err := agenttest.Gateway{Issuer: issuer, Verifier: gateway}.Enrol(ctx, private, passes.MaxTTL)
	if err != nil {
		t.Fatal(err)
	}
	key, err := agent.Key.PEM()
	if err != nil {
		t.Fatal(err)
	}
	connect, err := gateway.TunnelToken(ctx, private.Name)
	if err != nil {
		t.Fatal(err)
	}
	line := func(v secrets.Value) []byte { return append(v.Reveal(), '\n') }
	return map[string][]byte{
		"token": line(token.Token), "good.pem": cert.Certificate, "revoked.pem": revoked,
		"agent.token": line(agent.Token), "agent.key": key.Reveal(),
		"replaced.token": line(replaced), "tunnel.token": line(connect),
		"tunnel.pem": serverCertificate(t, gateway.TunnelCertificate),
	}
}

func fillObjects(t *testing.T, st *stores.Stores, ca *pki.CA) *clusterv1alpha1.Cluster {
	t.Helper()
	ctx := t.Context()
	meta := func(name string) metav1.ObjectMeta {
		return metav1.ObjectMeta{Name: name, UID: "5f0e3a52-4d42-4b8a-9d0f-0f6a3ad2c001",
			CreationTimestamp: metav1.NewTime(issuedAt)}
	}
	registered := func(name string, mode clusterv1alpha1.SyncMode) *clusterv1alpha1.Cluster {
		server := "https://" + name + ".example.com:6443"
		kubeconfig := `apiVersion: v1
kind: Config
current-context: a
contexts: [{name: a, context: {cluster: a, user: a}}]
clusters: [{name: a, cluster: {server: "` + server + `", certificate-authority-data: ` +
			base64.StdEncoding.EncodeToString(ca.PEM()) + `}}]
users: [{name: a, user: {token: of-a-test}}]
`
		secret := clusterv1alpha1.NewSecretName(name, "x7k2p")
		if _, err := st.Secrets.Create(ctx, secret, secrets.NewValue([]byte(kubeconfig)),
			map[string]string{"cluster": name}); err != nil {
			t.Fatal(err)
		}
		return &clusterv1alpha1.Cluster{ObjectMeta: meta(name), Spec: clusterv1alpha1.ClusterSpec{
			SyncMode: mode, APIEndpoint: server, SecretRef: &clusterv1alpha1.LocalSecretReference{Name: secret}, Region: "eu",
		}}
	}
	member, private := registered("member1", clusterv1alpha1.Push), registered("private1", clusterv1alpha1.Pull)
	member.Labels = map[string]string{"env": "prod"}
	private.Spec.ProxyURL = tunnelURL
	for key, v := range map[string]any{
		clusterv1alpha1.Prefix + "member1":  member,
		clusterv1alpha1.Prefix + "private1": private,
		access.RolePrefix + "readers": rbacv1.ClusterRole{ObjectMeta: meta("readers"), Rules: []rbacv1.PolicyRule{{
			APIGroups: []string{access.ClusterGroup}, Resources: []string{"clusters/proxy"}, ResourceNames: []string{"member1"},
			Verbs: []string{"get"},
		}}},
		access.BindingPrefix + "readers": rbacv1.ClusterRoleBinding{
			ObjectMeta: meta("readers"), RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole",
				Name: "readers"},
			Subjects: []rbacv1.Subject{{APIGroup: rbacv1.GroupName, Kind: "User", Name: "ann"}},
		},
		searchv1alpha1.Prefix + "pods": searchv1alpha1.ResourceRegistry{ObjectMeta: meta("pods"),
			Spec: searchv1alpha1.ResourceRegistrySpec{
				ResourceSelectors: []searchv1alpha1.ResourceSelector{{APIVersion: "v1", Kind: "Pod"}},
			}},
	} {
		value, err := json.Marshal(v)
		if err != nil {
			t.Fatal(err)
		}
		// The code must ignore a field that a later version adds.
		value = append(bytes.TrimSuffix(value, []byte("}")), `,"ofALaterVersion":{"a":[1]}}`...)
		if _, err := st.Objects.Create(ctx, key, value); err != nil {
			t.Fatal(err)
		}
	}
	return private
}

func serverCertificate(t *testing.T, readCertificate func(*tls.ClientHelloInfo) (*tls.Certificate, error)) []byte {
	t.Helper()
	near, far := net.Pipe()
	defer func() { _ = near.Close() }()
	go func() {
		_ = tls.Server(far, &tls.Config{MinVersion: tls.VersionTLS13, GetCertificate: readCertificate}).HandshakeContext(
			t.Context())
	}()
	conn := tls.Client(near, &tls.Config{InsecureSkipVerify: true}) // the test only reads the certificate
	if err := conn.HandshakeContext(t.Context()); err != nil {
		t.Fatal(err)
	}
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: conn.ConnectionState().PeerCertificates[0].Raw})
}

// writeFormat creates the directory of a format. Its secrets are used nowhere else.
func writeFormat(t *testing.T, dir string) {
	t.Helper()
	if err := os.MkdirAll(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	data := t.TempDir()
	st, err := stores.Open(t.Context(), stores.Address{Kind: "dir", Where: data})
	if err != nil {
		t.Fatal(err)
	}
	credentials := fill(t, st)
	if err := os.CopyFS(filepath.Join(dir, "dir"), os.DirFS(data)); err != nil {
		t.Fatal(err)
	}
	put := func(name string, data []byte) {
		if err := os.WriteFile(filepath.Join(dir, name), data, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	for name, data := range credentials {
		put(name, data)
	}

	// Both stores have the same content, so that the credentials are valid with both.
	url, onAWS := startMoto(t)
	copied := map[string]string{}
	metas, err := st.Secrets.List(t.Context(), nil)
	if err != nil {
		t.Fatal(err)
	}
	for _, m := range metas {
		s, err := st.Secrets.Get(t.Context(), m.Name)
		if err != nil {
			t.Fatal(err)
		}
		copied[m.Name] = string(s.Value.Reveal())
	}
	for _, prefix := range []string{
		clusterv1alpha1.Prefix, access.RolePrefix, access.BindingPrefix, searchv1alpha1.Prefix, v1alpha1.PassPrefix,
		v1alpha1.RevocationPrefix, v1alpha1.AgentPrefix,
		"keys/",
	} {
		page, err := st.Objects.List(t.Context(), prefix, 0, "")
		if err != nil {
			t.Fatal(err)
		}
		for _, o := range page.Objects {
			if _, err := onAWS.Objects.Create(t.Context(), o.Key, o.Value); err != nil {
				t.Fatal(err)
			}
		}
	}
	text, err := yaml.Marshal(copied)
	if err != nil {
		t.Fatal(err)
	}
	put("secrets.yaml", text)
	table := callDynamoDB(t, url, "Scan", `{"TableName": "`+prefix+`-objects"}`)
	// Entries of the log expire after a day. The file must not expire.
	put("table.json", regexp.MustCompile(`("expires": \{"N": ")\d+`).ReplaceAll(table, []byte("${1}4102444800")))
}
