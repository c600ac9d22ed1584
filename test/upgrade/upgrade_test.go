// Package upgrade holds that what earlier versions stored and handed out is still understood: while a deploy is under way, functions
// and bridges of two versions share the stores, and credentials live for days.
//
// testdata has a directory for each format: both stores, as directories and as AWS keeps them, and credentials. They were written once,
// by -update FORMAT, and are never written again; a change that does not read them needs another way.
package upgrade

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"errors"
	"flag"
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
	"github.com/clusterpass/clusterpass/shared/pki"
	"github.com/clusterpass/clusterpass/shared/secrets"
	"github.com/clusterpass/clusterpass/shared/stores"
)

var update = flag.String("update", "", "write this format, such as format1, as the code does today")

const (
	gatewayURL = "https://clusterpass.example.com"
	prefix     = "upgraded" // of the installation on AWS
)

// then is when the credentials were made.
var then = time.Date(2026, 11, 21, 12, 0, 0, 0, time.UTC)

func now() time.Time { return then.Add(time.Hour) }

func TestFormats(t *testing.T) {
	if *update != "" {
		write(t, filepath.Join("testdata", *update))
	}
	formats, err := os.ReadDir("testdata")
	if err != nil || len(formats) == 0 {
		t.Fatalf("%d formats, %v", len(formats), err)
	}
	for _, f := range formats {
		dir := filepath.Join("testdata", f.Name())
		t.Run(f.Name()+"/dir", func(t *testing.T) { check(t, dir, restoreDir(t, dir)) })
		t.Run(f.Name()+"/aws", func(t *testing.T) { check(t, dir, restoreAWS(t, dir)) })
	}
}

// check reads all that fill wrote, by the code of today.
func check(t *testing.T, dir string, st *stores.Stores) {
	t.Helper()
	ctx := t.Context()
	members := cluster.NewMembers(cluster.Config{Objects: st.Objects, Secrets: st.Secrets, Policy: cluster.DialPolicy{AllowLoopback: true}})
	defer members.Close()
	m, err := members.Get(ctx, "member1")
	if err != nil {
		t.Fatal(err)
	}
	if m.Server.String() != "https://member1.example.com:6443" || m.Cluster.Labels["env"] != "prod" || m.Cluster.Spec.SyncMode != clusterv1alpha1.Push {
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
		return registry.ScopeOf([]searchv1alpha1.ResourceRegistry{r}, m.Cluster, registry.Kind{APIVersion: "v1", Resource: resource, Kind: kind})
	}
	if !scope("pods", "Pod").Takes("default") || scope("secrets", "Secret").Takes("default") {
		t.Errorf("the registry takes in %+v and %+v", scope("pods", "Pod"), scope("secrets", "Secret"))
	}

	verifier := passes.NewVerifier(passes.Config{Objects: st.Objects, Secrets: st.Secrets, URL: gatewayURL, Now: now})
	user, err := verifier.AuthenticateToken(ctx, strings.TrimSpace(read(t, dir, "token")))
	if err != nil || user.Name != "ann" || user.Scope == nil {
		t.Errorf("the token is %+v, %v", user, err)
	}
	good, revoked := certificate(t, dir, "good.pem"), certificate(t, dir, "revoked.pem")
	if err := verifier.Certificate(ctx, good, &identity.User{Name: "ann"}); err != nil {
		t.Errorf("the certificate is refused: %v", err)
	}
	if verifier.Certificate(ctx, revoked, &identity.User{Name: "ann"}) == nil {
		t.Error("the revoked certificate is taken")
	}

	// Watches go on from the revisions that clients have.
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
	// And what is written now continues what was written then.
	old, err := st.Objects.Get(ctx, clusterv1alpha1.Prefix+"member1")
	if err != nil {
		t.Fatal(err)
	}
	changed, err := st.Objects.Update(ctx, clusterv1alpha1.Prefix+"member1", old.Value, old.Revision)
	if err != nil || changed.Revision <= old.Revision {
		t.Errorf("an update: %+v, %v", changed, err)
	}
}

// fill writes one of everything that is kept.
func fill(t *testing.T, st *stores.Stores) (token string, good, revoked []byte) {
	t.Helper()
	ctx := t.Context()
	ca, err := pki.LoadCA(t.TempDir(), "ca")
	if err != nil {
		t.Fatal(err)
	}
	kubeconfig := `apiVersion: v1
kind: Config
current-context: a
contexts: [{name: a, context: {cluster: a, user: a}}]
clusters: [{name: a, cluster: {server: "https://member1.example.com:6443", certificate-authority-data: ` + base64.StdEncoding.EncodeToString(ca.PEM()) + `}}]
users: [{name: a, user: {token: of-a-test}}]
`
	name := clusterv1alpha1.NewSecretName("member1", "x7k2p")
	if _, err := st.Secrets.Create(ctx, name, secrets.NewValue([]byte(kubeconfig)), map[string]string{"cluster": "member1"}); err != nil {
		t.Fatal(err)
	}
	meta := func(name string) metav1.ObjectMeta {
		return metav1.ObjectMeta{Name: name, UID: "5f0e3a52-4d42-4b8a-9d0f-0f6a3ad2c001", CreationTimestamp: metav1.NewTime(then)}
	}
	member := clusterv1alpha1.Cluster{ObjectMeta: meta("member1"), Spec: clusterv1alpha1.ClusterSpec{
		SyncMode: clusterv1alpha1.Push, APIEndpoint: "https://member1.example.com:6443", SecretRef: &clusterv1alpha1.LocalSecretReference{Name: name}, Region: "eu",
	}}
	member.Labels = map[string]string{"env": "prod"}
	for key, v := range map[string]any{
		clusterv1alpha1.Prefix + "member1": member,
		access.RolePrefix + "readers": rbacv1.ClusterRole{ObjectMeta: meta("readers"), Rules: []rbacv1.PolicyRule{{
			APIGroups: []string{access.ClusterGroup}, Resources: []string{"clusters/proxy"}, ResourceNames: []string{"member1"}, Verbs: []string{"get"},
		}}},
		access.BindingPrefix + "readers": rbacv1.ClusterRoleBinding{
			ObjectMeta: meta("readers"), RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: "readers"},
			Subjects: []rbacv1.Subject{{APIGroup: rbacv1.GroupName, Kind: "User", Name: "ann"}},
		},
		searchv1alpha1.Prefix + "pods": searchv1alpha1.ResourceRegistry{ObjectMeta: meta("pods"), Spec: searchv1alpha1.ResourceRegistrySpec{
			ResourceSelectors: []searchv1alpha1.ResourceSelector{{APIVersion: "v1", Kind: "Pod"}},
		}},
	} {
		value, err := json.Marshal(v)
		if err != nil {
			t.Fatal(err)
		}
		// What a later version adds is not for this one, and does not hinder it.
		value = append(bytes.TrimSuffix(value, []byte("}")), `,"ofALaterVersion":{"a":[1]}}`...)
		if _, err := st.Objects.Create(ctx, key, value); err != nil {
			t.Fatal(err)
		}
	}

	issuer := &passes.Issuer{Objects: st.Objects, Secrets: st.Secrets, URL: gatewayURL, CA: ca, Now: func() time.Time { return then }}
	spec := v1alpha1.PassSpec{User: "ann", Clusters: []string{"member1"}, Verbs: []string{"get"}, TTL: metav1.Duration{Duration: passes.MaxTTL}}
	made, err := issuer.Create(ctx, &v1alpha1.Pass{ObjectMeta: metav1.ObjectMeta{Name: "token"}, Spec: spec})
	if err != nil {
		t.Fatal(err)
	}
	spec.Form, spec.TTL.Duration = v1alpha1.Certificate, passes.MaxCertificateTTL
	cert, err := issuer.Create(ctx, &v1alpha1.Pass{ObjectMeta: metav1.ObjectMeta{Name: "certificate"}, Spec: spec})
	if err != nil {
		t.Fatal(err)
	}
	revoked, _, err = ca.Client("ann", nil)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := issuer.RevokeCertificate(ctx, passes.Revocation{Serial: passes.Serial(parse(t, revoked)), User: "ann", Reason: "lost"}); err != nil {
		t.Fatal(err)
	}
	return string(made.Token.Reveal()), cert.Certificate, revoked
}

// write makes the directory of a format. The secrets in it are nobody's.
func write(t *testing.T, dir string) {
	t.Helper()
	if err := os.MkdirAll(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	data := t.TempDir()
	st, err := stores.Open(t.Context(), stores.Address{Kind: "dir", Where: data})
	if err != nil {
		t.Fatal(err)
	}
	token, good, revoked := fill(t, st)
	if err := os.CopyFS(filepath.Join(dir, "dir"), os.DirFS(data)); err != nil {
		t.Fatal(err)
	}
	put := func(name string, data []byte) {
		if err := os.WriteFile(filepath.Join(dir, name), data, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	put("token", []byte(token+"\n"))
	put("good.pem", good)
	put("revoked.pem", revoked)

	// AWS keeps the same, so that one set of credentials does for both.
	url, onAWS := moto(t)
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
	for _, prefix := range []string{clusterv1alpha1.Prefix, access.RolePrefix, access.BindingPrefix, searchv1alpha1.Prefix, v1alpha1.PassPrefix, v1alpha1.RevocationPrefix} {
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
	table := dynamo(t, url, "Scan", `{"TableName": "`+prefix+`-objects"}`)
	// The log is good for a day, this file for longer.
	put("table.json", regexp.MustCompile(`("expires": \{"N": ")\d+`).ReplaceAll(table, []byte("${1}4102444800")))
}
