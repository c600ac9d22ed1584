package e2e

import (
	"bytes"
	"context"
	"encoding/json"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/coreos/go-oidc/v3/oidc"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
)

// passOf makes a pass and returns what is printed, which is its holder's secret.
func passOf(t *testing.T, name string, args ...string) string {
	t.Helper()
	out, err := secretCLI(t, "", append([]string{"pass", "create", name, "--gateway", gateway(t).pass}, args...)...)
	if err != nil {
		t.Fatalf("%v %s", err, out)
	}
	if made.Document("pass "+name, []byte(out)) == 0 {
		made.Secret("pass "+name, strings.TrimSpace(out))
	}
	if data, err := os.ReadFile(filepath.Join(gateway(t).dir, "data", "secrets", "keys", "passes")); err == nil {
		for _, d := range regexp.MustCompile(`"d":"([^"]+)"`).FindAllStringSubmatch(string(data), -1) {
			made.Secret("the key that signs passes", d[1])
		}
	}
	t.Cleanup(func() { _, _ = cli(t, "", "pass", "revoke", name) })
	return out
}

// TestPass holds: a pass is good for what it says and what its user may do, both.
func TestPass(t *testing.T) {
	withStreamPods(t, "member1")
	granted(t, "pass-user") // to do everything with member1
	for _, form := range []string{"token", "certificate"} {
		t.Run(form, func(t *testing.T) {
			k := kubectl{context: "member1", kubeconfig: write(t, passOf(t, "limited-"+form,
				"--user", "pass-user", "--cluster", "member1", "--cluster", "member2", "--verb", "get", "--form", form))}
			eventually(t, func() bool { return k.run(t, "-n", "streams", "get", "pods").code == 0 })
			const limit = `the pass is limited to clusters ["member1" "member2"] and verbs ["get"]`
			k.refuses(t, limit, "-n", "streams", "exec", "shell", "--", "true")
			k.refuses(t, limit, "-n", "streams", "delete", "pod", "shell")
			k.refuses(t, limit, "-n", "streams", "get", "pods", "--as", "root")
			k.refuses(t, `User "pass-user" cannot get resource "clusters/proxy"`, "--context", "member2", "get", "nodes")
			out, err := cli(t, "", "pass", "list")
			if err != nil || !strings.Contains(out, "limited-"+form) || !strings.Contains(out, "member1,member2") {
				t.Errorf("%s%v", out, err)
			}
		})
	}
	all := kubectl{context: "member1", kubeconfig: write(t, passOf(t, "unlimited", "--user", "pass-user"))}
	if got := all.finally(t, "-n", "streams", "exec", "shell", "--", "echo", "in"); got != "in\n" {
		t.Errorf("%q", got)
	}
	if who := all.finally(t, "auth", "whoami", "-o", "jsonpath={.status.userInfo}"); !strings.Contains(who, `"username":"pass-user"`) || !strings.Contains(who, `"clusterpass.io/pass":["unlimited"]`) {
		t.Errorf("the member sees %s", who)
	}
	kc, err := clientcmd.LoadFromFile(all.kubeconfig)
	if err != nil || !slices.Contains(names(kc.Contexts), "member1") || !slices.Contains(names(kc.Contexts), "member2") {
		t.Errorf("contexts %v, %v", names(kc.Contexts), err)
	}
}

func names[V any](m map[string]V) []string {
	out := make([]string, 0, len(m))
	for name := range m {
		out = append(out, name)
	}
	return out
}

// TestPassKeys holds: whoever trusts the gateway can verify a pass by what it publishes, without a credential; and tokens end when the keys
// that signed them are discarded.
func TestPassKeys(t *testing.T) {
	token := strings.TrimSpace(passOf(t, "verified", "--user", "ann", "--output", "token"))
	cfg, err := clientcmd.BuildConfigFromFlags("", gateway(t).pass)
	if err != nil {
		t.Fatal(err)
	}
	url, _, _ := strings.Cut(cfg.Host, "/clusters/")
	client, err := rest.HTTPClientFor(&rest.Config{TLSClientConfig: rest.TLSClientConfig{CAData: cfg.CAData}})
	if err != nil {
		t.Fatal(err)
	}
	verify := func() (*oidc.IDToken, error) {
		ctx := oidc.ClientContext(context.WithoutCancel(t.Context()), client)
		provider, err := oidc.NewProvider(ctx, url)
		if err != nil {
			t.Fatal(err)
		}
		return provider.Verifier(&oidc.Config{ClientID: url, SupportedSigningAlgs: []string{oidc.ES256}}).Verify(ctx, token)
	}
	var verified *oidc.IDToken
	eventually(t, func() bool { verified, err = verify(); return err == nil }) // the first key may be seconds old
	if verified.Subject != "ann" || verified.Issuer != url {
		t.Errorf("%+v", verified)
	}
	call := func() int {
		req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, url+"/clusters/member1/api", bytes.NewReader(nil))
		if err != nil {
			t.Fatal(err)
		}
		req.Header.Set("Authorization", "Bearer "+token)
		resp, err := client.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		defer resp.Body.Close()
		var status struct{ Code int }
		if err := json.NewDecoder(resp.Body).Decode(&status); err != nil || status.Code != resp.StatusCode {
			t.Fatalf("%s: %+v, %v", resp.Status, status, err)
		}
		return status.Code
	}
	eventually(t, func() bool {
		code := call()
		if code != http.StatusForbidden && code != http.StatusUnauthorized { // ann has no grant; and the key may be new to a function
			t.Fatal(code)
		}
		return code == http.StatusForbidden
	})
	if out, err := cli(t, "", "pass", "rotate-key", "--discard"); err != nil {
		t.Fatalf("%s%v", out, err)
	}
	eventually(t, func() bool { return call() == http.StatusUnauthorized })
	eventually(t, func() bool { _, err := verify(); return err != nil })
}

// TestPassByKubectl holds: kubectl makes passes, lists and ends them, with no other right than that of its user.
func TestPassByKubectl(t *testing.T) {
	withStreamPods(t, "member1")
	granted(t, "pass-maker")
	root := own(t)
	const rbac = `
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRole
metadata: {name: makes-passes}
rules: [{apiGroups: [clusterpass.io], resources: [passes], verbs: [create, get, list, delete]}]
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRoleBinding
metadata: {name: makes-passes}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: makes-passes}
subjects: [{kind: User, name: pass-maker}]
`
	root.with(rbac).must(t, "apply", "-f", "-")
	t.Cleanup(func() { root.with(rbac).must(t, "delete", "-f", "-") })
	maker := kubectl{kubeconfig: passFor(t, "pass-maker"), context: "clusterpass"}
	maker.finally(t, "get", "passes")
	says(t, maker.finally(t, "explain", "pass.spec.ttl"), "a week", "by default 8 hours")
	doc := func(form, fields string) string {
		return "apiVersion: clusterpass.io/v1alpha1\nkind: Pass\nmetadata: {name: kubectl-" + form + "}\n" +
			"spec: {clusters: [member1], verbs: [get], ttl: 1h, form: " + form + fields + "}\n"
	}
	// Whoever does not ask for the answer is told where the credential is, if there is one; and nobody makes one for somebody else.
	const told = "Warning: the credential is in status.kubeconfig of this one answer"
	eventually(t, func() bool {
		r := maker.with(doc("token", "")).run(t, "create", "--dry-run=server", "-f", "-")
		if strings.Contains(r.stderr, told) {
			t.Errorf("a dry run: %v", r)
		}
		return r.code == 0
	})
	eventually(t, func() bool {
		r := root.with(strings.Replace(doc("token", ""), "name: kubectl-token", "generateName: kubectl-told-, labels: {told: pass}", 1)).run(t, "create", "-f", "-")
		return r.code == 0 && strings.Contains(r.stderr, told)
	})
	root.must(t, "delete", "passes", "-l", "told=pass")
	eventually(t, func() bool {
		r := maker.with(doc("token", ", user: root")).run(t, "create", "-f", "-")
		return r.code != 0 && strings.Contains(r.stderr, `cannot impersonate resource "users"`)
	})
	eventually(t, func() bool {
		r := maker.with(doc("certificate", `, groups: ["system:masters"]`)).run(t, "create", "-f", "-")
		return r.code != 0 && strings.Contains(r.stderr, "only members of system:masters give passes to it")
	})
	for _, form := range []string{"token", "certificate"} {
		t.Run(form, func(t *testing.T) {
			credential := maker.with(doc(form, "")).finally(t, "create", "-f", "-", "-o", "jsonpath={.status.kubeconfig}")
			made.Document("the pass kubectl-"+form, []byte(credential))
			t.Cleanup(func() { root.must(t, "delete", "pass", "kubectl-"+form, "--ignore-not-found") })
			k := kubectl{context: "member1", kubeconfig: write(t, credential)}
			says(t, k.must(t, "config", "get-contexts", "-o", "name"), "member1", "fleet", "clusterpass")
			says(t, k.finally(t, "-n", "streams", "get", "pods"), "shell")
			if who := (kubectl{context: "clusterpass", kubeconfig: k.kubeconfig}).finally(t, "auth", "whoami", "-o", "jsonpath={.status.userInfo.username}"); who != "pass-maker" {
				t.Errorf("the gateway sees %s", who)
			}
			k.refuses(t, "the pass is limited to clusters", "-n", "streams", "exec", "shell", "--", "true")
			says(t, maker.finally(t, "get", "passes"), "USER", "GROUPS", "CLUSTERS", "FORM", "UNTIL", "kubectl-"+form, "pass-maker", "member1")
			says(t, maker.finally(t, "get", "passes", "-o", "wide"), "CREATED-BY")
			if again := maker.finally(t, "get", "pass", "kubectl-"+form, "-o", "yaml"); strings.Contains(again, "kubeconfig") {
				t.Errorf("the credential is shown again:\n%s", again)
			}
			says(t, maker.finally(t, "delete", "pass", "kubectl-"+form), "deleted")
			k.loses(t, `the pass "kubectl-`+form+`" was revoked`, "-n", "streams", "get", "pods")
		})
	}
}
