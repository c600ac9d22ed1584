package control_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"sync"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/dynamic"

	"github.com/clusterpass/clusterpass/shared/api/cluster/v1alpha1"
	"github.com/clusterpass/clusterpass/shared/secrets"
)

// No response and no log may contain one of these tokens.
const (
	firstToken  = "first-credential-of-the-member-0123456789"
	secondToken = "second-credential-of-the-member-0123456789"
)

const mergePatch = "application/merge-patch+json"

type credentialTest struct {
	*installation
	d      *server
	client dynamic.ResourceInterface
}

func newCredentialTest(t *testing.T) *credentialTest {
	t.Helper()
	h := newInstallation(t)
	d := h.gateway()
	t.Cleanup(func() {
		for _, token := range []string{firstToken, secondToken} {
			if strings.Contains(h.log.String(), token) {
				t.Error("the log has a credential")
			}
		}
	})
	return &credentialTest{h, d, d.dynamic(d.master()).Resource(clusterGVR)}
}

func (c *credentialTest) write(method, path, contentType, body string) (int, string) {
	c.t.Helper()
	code, answer := c.d.call(c.d.master(), method, path, contentType, body)
	for _, token := range []string{firstToken, secondToken} {
		if strings.Contains(answer, token) {
			c.t.Errorf("%s %s answers with a credential: %s", method, path, answer)
		}
	}
	return code, answer
}

// doc returns a Cluster named m, as kubectl apply sends it.
func (c *credentialTest) doc(spec map[string]any) string {
	c.t.Helper()
	out, err := json.Marshal(map[string]any{"apiVersion": "cluster.karmada.io/v1alpha1", "kind": "Cluster",
		"metadata": map[string]any{"name": "m", "annotations": map[string]any{
			"kubectl.kubernetes.io/last-applied-configuration": fmt.Sprintf(`{"spec":{"region":"eu","kubeconfig":%q}}`,
				spec["kubeconfig"]),
		}}, "spec": spec})
	if err != nil {
		c.t.Fatal(err)
	}
	return string(out)
}

func (c *credentialTest) create() string {
	c.t.Helper()
	code, answer := c.write("POST", clusters, "application/json",
		c.doc(map[string]any{"kubeconfig": kubeconfig("https://one.example:6443", firstToken)}))
	if code != http.StatusCreated {
		c.t.Fatal(answer)
	}
	return c.onlySecret(firstToken)
}

func (c *credentialTest) onlySecret(token string) string {
	c.t.Helper()
	all := c.storedSecrets()
	for name, value := range all {
		if len(all) == 1 && strings.Contains(value, token) {
			return name
		}
	}
	c.t.Fatalf("%d secrets, want one with %q", len(all), token)
	return ""
}

func TestRejectedWriteStoresNoSecret(t *testing.T) {
	c := newCredentialTest(t)
	for path, body := range map[string]string{
		clusters + "?dryRun=All": c.doc(map[string]any{"kubeconfig": kubeconfig("https://one.example:6443", firstToken)}),
		clusters: c.doc(map[string]any{"kubeconfig": kubeconfig("https://one.example:6443", firstToken),
			"syncMode": "Sideways"}),
		clusters + "?x": c.doc(map[string]any{"kubeconfig": "token: " + firstToken + "\n: ]"}),
		clusters + "?y": c.doc(map[string]any{"kubeconfig": kubeconfig("http://one.example:6443", firstToken)}),
	} {
		code, answer := c.write("POST", path, "application/json", body)
		if want := map[bool]int{true: 201, false: 422}[strings.Contains(path, "dryRun")]; code != want {
			t.Errorf("%s: %d %s", path, code, answer)
		}
		if all := c.storedSecrets(); len(all) != 0 {
			t.Errorf("%s keeps %d secrets", path, len(all))
		}
	}
}

// A create with the name of another cluster must change nothing.
func TestCredentials(t *testing.T) {
	c := newCredentialTest(t)
	secret := c.create()
	obj, err := c.client.Get(testContext(t), "m", metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	var stored v1alpha1.Cluster
	raw, err := c.Objects.Get(testContext(t), "clusters/m")
	if err != nil || strings.Contains(string(raw.Value), firstToken) || json.Unmarshal(raw.Value, &stored) != nil {
		t.Fatalf("stored %s, %v", raw.Value, err)
	}
	if stored.SecretName() != secret || stored.Spec.APIEndpoint != "https://one.example:6443" || stored.UID == "" ||
		stored.CreationTimestamp.IsZero() {
		t.Errorf("stored %s", raw.Value)
	}
	last := obj.GetAnnotations()["kubectl.kubernetes.io/last-applied-configuration"]
	if last != `{"spec":{"region":"eu"}}`+"\n" {
		t.Errorf("apply remembers %q", last)
	}
	if code, answer := c.write("POST", clusters, "application/json", c.doc(map[string]any{
		"kubeconfig": kubeconfig("https://two.example:6443", secondToken)})); code != http.StatusConflict {
		t.Errorf("%d %s", code, answer)
	}
	c.onlySecret(firstToken)
}

// A change must not send the credential elsewhere, or give its power to others.
func TestChangesNeedTheCredential(t *testing.T) {
	c := newCredentialTest(t)
	secret := c.create()
	for _, patch := range []string{
		`{"spec":{"apiEndpoint":"https://two.example:6443"}}`,
		`{"spec":{"proxyURL":"http://two.example:3128"}}`,
		`{"spec":{"insecureSkipTLSVerification":true}}`,
		`{"spec":{"secretRef":{"name":"clusters/m.other"}}}`,
		`{"spec":{"impersonatorSecretRef":{"name":"clusters/m.other"}}}`,
		`{"spec":{"identity":"direct","directUsers":["eve"]}}`,
	} {
		for _, dry := range []string{"", "?dryRun=All"} {
			code, answer := c.write("PATCH", clusters+"/m"+dry, mergePatch, patch)
			if code != http.StatusUnprocessableEntity || !strings.Contains(answer, "needs the credential again") {
				t.Errorf("%s: %d %s", patch, code, answer)
			}
		}
	}
	const otherSecret, region = `{"spec":{"secretRef":{"name":"clusters/other"}}}`, `{"spec":{"region":"eu"}}`
	code, answer := c.write("PATCH", clusters+"/m", mergePatch, otherSecret)
	if code != http.StatusUnprocessableEntity {
		t.Errorf("another's secret: %d %s", code, answer)
	}
	if code, answer := c.write("PATCH", clusters+"/m", mergePatch, region); code != http.StatusOK {
		t.Errorf("a region: %d %s", code, answer)
	}
	c.onlySecret(firstToken)

	if err := c.client.Delete(testContext(t), "m", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	for _, spec := range []map[string]any{
		{"proxyURL": "http://two.example:3128"}, {"identity": "direct"}, {"directUsers": []string{"eve"}},
		{"identity": "direct", "directUsers": []string{"eve"}, "secretRef": map[string]any{"name": secret}},
	} {
		code, answer := c.write("POST", clusters, "application/json", c.doc(spec))
		if code != http.StatusUnprocessableEntity || !strings.Contains(answer, "needs the credential again") {
			t.Errorf("%v: %d %s", spec, code, answer)
		}
	}
}

// A change with the credential must delete the previous secret, as the deletion of the cluster must delete the last
// one.
func TestCredentialIsReplaced(t *testing.T) {
	c := newCredentialTest(t)
	ctx := testContext(t)
	firstSecret := c.create()
	patch, err := json.Marshal(map[string]any{"spec": map[string]any{"proxyURL": "http://proxy.example:3128",
		"kubeconfig": kubeconfig("https://two.example:6443", secondToken)}})
	if err != nil {
		t.Fatal(err)
	}
	code, answer := c.write("PATCH", clusters+"/m", mergePatch, string(patch))
	if code != http.StatusOK || !strings.Contains(answer, "https://two.example:6443") {
		t.Fatalf("%d %s", code, answer)
	}
	secondSecret := c.onlySecret(secondToken)
	if secondSecret == firstSecret {
		t.Error("another credential has the name of the one before")
	}
	for _, contentType := range []string{mergePatch, "application/strategic-merge-patch+json"} {
		code, answer := c.write("PATCH", clusters+"/m", contentType, string(patch))
		if code != http.StatusOK || c.onlySecret(secondToken) != secondSecret {
			t.Errorf("%d %s", code, answer)
		}
	}
	apply := c.doc(map[string]any{"kubeconfig": kubeconfig("https://two.example:6443", firstToken),
		"proxyURL": "http://proxy.example:3128"})
	code, answer = c.write("PATCH", clusters+"/m?fieldManager=me&force=true", "application/apply-patch+yaml", apply)
	if code != http.StatusOK {
		t.Errorf("%d %s", code, answer)
	}
	c.onlySecret(firstToken)
	if err := c.client.Delete(ctx, "m", metav1.DeleteOptions{DryRun: []string{metav1.DryRunAll}}); err != nil {
		t.Fatal(err)
	}
	c.onlySecret(firstToken)
	if err := c.client.Delete(ctx, "m", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	if all := c.storedSecrets(); len(all) != 0 {
		t.Errorf("%d secrets are left", len(all))
	}
}

// The name of a secret must begin with the generated name of its cluster, which owns it.
func TestSecretOfGeneratedName(t *testing.T) {
	c := newCredentialTest(t)
	unnamed := strings.Replace(c.doc(map[string]any{"kubeconfig": kubeconfig("https://one.example:6443", firstToken)}),
		`"name":"m"`, `"generateName":"m-"`, 1)
	code, answer := c.write("POST", clusters, "application/json", unnamed)
	if code != http.StatusCreated || !strings.HasPrefix(c.onlySecret(firstToken), "clusters/m-") {
		t.Errorf("%d %s", code, answer)
	}
}

// Concurrent writes and deletions of a cluster must leave no secret that no cluster names.
func TestConcurrentCredentialWrites(t *testing.T) {
	h := newInstallation(t)
	d := h.gateway()
	doc := func(token string) string {
		return fmt.Sprintf(
			`{"apiVersion":"cluster.karmada.io/v1alpha1","kind":"Cluster","metadata":{"name":"m"},"spec":{"kubeconfig":%q}}`,
			kubeconfig("https://one.example:6443", token))
	}
	for round := range 5 {
		if code, answer := d.call(d.master(), "POST", clusters, "application/json",
			doc("first")); code != http.StatusCreated {
			t.Fatal(answer)
		}
		var writes sync.WaitGroup
		for i := range 6 {
			writes.Go(func() {
				token := fmt.Sprintf("token-%d", round)
				if i == 0 {
					token = "another"
				}
				code, answer := d.call(d.master(), "PATCH", clusters+"/m", mergePatch, doc(token))
				if code != http.StatusOK && code != http.StatusConflict {
					t.Errorf("%d %s", code, answer)
				}
			})
		}
		writes.Wait()
		if all := h.storedSecrets(); len(all) != 1 {
			t.Errorf("round %d: %d secrets of one cluster", round, len(all))
		}
		writes.Go(func() { d.call(d.master(), "PATCH", clusters+"/m", mergePatch, doc("late")) })
		writes.Go(func() { d.call(d.master(), "DELETE", clusters+"/m", "", "") })
		writes.Wait()
		if code, _ := d.call(d.master(), "GET", clusters+"/m", "", ""); code != http.StatusNotFound ||
			len(h.storedSecrets()) != 0 {
			t.Errorf("round %d: deleted, and %d with %d secrets", round, code, len(h.storedSecrets()))
		}
	}
}

// TestFinalizedCluster fails if the update that removes a cluster's last finalizer leaves its credential. A dry run
// must not delete it.
func TestFinalizedCluster(t *testing.T) {
	c := newCredentialTest(t)
	secret := c.create()
	const held, free = `{"metadata":{"finalizers":["example.com/f"]}}`, `{"metadata":{"finalizers":null}}`
	for _, s := range []struct{ method, query, body string }{
		{"PATCH", "", held}, {"DELETE", "", ""}, {"PATCH", "?dryRun=All", free},
	} {
		if code, answer := c.write(s.method, clusters+"/m"+s.query, mergePatch, s.body); code != http.StatusOK {
			t.Fatal(code, answer)
		}
	}
	if got := c.onlySecret(firstToken); got != secret {
		t.Errorf("secret %s, want %s", got, secret)
	}
	if code, answer := c.write("PATCH", clusters+"/m", mergePatch, free); code != http.StatusOK {
		t.Fatal(code, answer)
	}
	if _, err := c.Secrets.Get(testContext(t), secret); !errors.Is(err, secrets.ErrNotFound) {
		t.Errorf("the credential is left: %v", err)
	}
}
