package access_test

import (
	"bytes"
	"context"
	"encoding/json"
	"net/http"
	"slices"
	"strings"
	"testing"

	"github.com/coreos/go-oidc/v3/oidc"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/clusterpass/clusterpass/shared/waittest"
	"github.com/clusterpass/clusterpass/test/e2e"
)

// TestPass: a pass allows exactly the intersection of its limits and its user's grants.
func TestPass(t *testing.T) {
	ns := e2e.StreamPods(t, []string{"member1"}, "shell")
	e2e.Grant(t, "member1", "pass-user") // for all verbs in member1
	for _, form := range []string{"token", "certificate"} {
		t.Run(form, func(t *testing.T) {
			k := e2e.Kubectl{Context: "member1", Kubeconfig: e2e.WriteFile(t, e2e.CreatePass(t, "limited-"+form,
				"--user", "pass-user", "--cluster", "member1", "--cluster", "member2", "--verb", "get", "--form", form))}
			waittest.Until(t, "pass lists pods", func() bool { return k.Run(t, "-n", ns, "get", "pods").Code == 0 })
			const limit = `the pass is limited to clusters ["member1" "member2"] and verbs ["get"]`
			k.NeverAllowed(t, limit, "-n", ns, "exec", "shell", "--", "true")
			k.NeverAllowed(t, limit, "-n", ns, "delete", "pod", "shell")
			k.NeverAllowed(t, limit, "-n", ns, "get", "pods", "--as", "root")
			k.NeverAllowed(t, `User "pass-user" cannot get resource "clusters/proxy"`, "--context", "member2", "get", "nodes")
			out, err := e2e.CLI(t, "", "pass", "list")
			if err != nil || !strings.Contains(out, "limited-"+form) || !strings.Contains(out, "member1,member2") {
				t.Errorf("%s%v", out, err)
			}
		})
	}
	all := e2e.Kubectl{Context: "member1",
		Kubeconfig: e2e.WriteFile(t, e2e.CreatePass(t, "unlimited", "--user", "pass-user"))}
	if got := all.MustEventually(t, "-n", ns, "exec", "shell", "--", "echo", "in"); got != "in\n" {
		t.Errorf("%q", got)
	}
	if who := all.MustEventually(t, "auth", "whoami", "-o", "jsonpath={.status.userInfo}"); !strings.Contains(who,
		`"username":"pass-user"`) || !strings.Contains(who, `"clusterpass.io/pass":["unlimited"]`) {
		t.Errorf("the member sees %s", who)
	}
	kc, err := clientcmd.LoadFromFile(all.Kubeconfig)
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

// TestPassKeys: other systems must be able to verify passes without a credential, but not after their key was
// discarded.
func TestPassKeys(t *testing.T) {
	token := strings.TrimSpace(e2e.CreatePass(t, "verified", "--user", "ann", "--output", "token"))
	cfg, err := clientcmd.BuildConfigFromFlags("", e2e.Shared(t).Kubeconfig)
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
	waittest.Until(t, "pass is verified", func() bool {
		verified, err = verify()
		return err == nil
	})
	if verified.Subject != "ann" || verified.Issuer != url {
		t.Errorf("%+v", verified)
	}
	call := func() int {
		req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, url+"/clusters/member1/api",
			bytes.NewReader(nil))
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
	waittest.Until(t, "pass is known to the function", func() bool {
		code := call()
		// 403: ann has no grant. 401: this process does not have the key yet.
		if code != http.StatusForbidden && code != http.StatusUnauthorized {
			t.Fatal(code)
		}
		return code == http.StatusForbidden
	})
	if out, err := e2e.CLI(t, "", "pass", "rotate-key", "--discard"); err != nil {
		t.Fatalf("%s%v", out, err)
	}
	waittest.Until(t, "function refuses the revoked pass", func() bool { return call() == http.StatusUnauthorized })
	waittest.Until(t, "revoked pass is not verified", func() bool { _, err := verify(); return err != nil })
}

// TestPassByKubectl: a user must not create a pass with more rights than the user has, or lose the credential in the
// response.
func TestPassByKubectl(t *testing.T) {
	ns := e2e.StreamPods(t, []string{"member1"}, "shell")
	e2e.Grant(t, "member1", "pass-maker")
	root := e2e.OwnAPI(t)
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
	root.WithInput(rbac).Must(t, "apply", "-f", "-")
	t.Cleanup(func() { root.WithInput(rbac).Must(t, "delete", "-f", "-") })
	maker := e2e.Kubectl{Kubeconfig: e2e.CertificateKubeconfig(t, "pass-maker"), Context: "clusterpass"}
	maker.MustEventually(t, "get", "passes")
	e2e.WantText(t, maker.MustEventually(t, "explain", "pass.spec.ttl"), "a week", "The default is 8")
	doc := func(form, fields string) string {
		return "apiVersion: clusterpass.io/v1alpha1\nkind: Pass\nmetadata: {name: kubectl-" + form + "}\n" +
			"spec: {clusters: [member1], verbs: [get], ttl: 1h, form: " + form + fields + "}\n"
	}
	// kubectl create does not print the response, so a warning names the credential's field.
	const warning = "Warning: the credential is shown only in this response"
	waittest.Until(t, "dry run creates no pass", func() bool {
		r := maker.WithInput(doc("token", "")).Run(t, "create", "--dry-run=server", "-f", "-")
		if strings.Contains(r.Stderr, warning) {
			t.Errorf("a dry run: %v", r)
		}
		return r.Code == 0
	})
	waittest.Until(t, "warning about the token", func() bool {
		r := root.WithInput(strings.Replace(doc("token", ""), "name: kubectl-token",
			"generateName: kubectl-told-, labels: {told: pass}", 1)).Run(t, "create", "-f", "-")
		return r.Code == 0 && strings.Contains(r.Stderr, warning)
	})
	root.Must(t, "delete", "passes", "-l", "told=pass")
	waittest.Until(t, "pass of another user is refused", func() bool {
		r := maker.WithInput(doc("token", ", user: root")).Run(t, "create", "-f", "-")
		return r.Code != 0 && strings.Contains(r.Stderr, `cannot impersonate resource "users"`)
	})
	waittest.Until(t, "pass with system:masters is refused", func() bool {
		r := maker.WithInput(doc("certificate", `, groups: ["system:masters"]`)).Run(t, "create", "-f", "-")
		return r.Code != 0 && strings.Contains(r.Stderr, "only members of system:masters may create passes with it")
	})
	for _, form := range []string{"token", "certificate"} {
		t.Run(form, func(t *testing.T) {
			credential := maker.WithInput(doc(form, "")).MustEventually(t, "create", "-f", "-", "-o",
				"jsonpath={.status.kubeconfig}")
			e2e.Secrets.Document("the pass kubectl-"+form, []byte(credential))
			t.Cleanup(func() { root.Must(t, "delete", "pass", "kubectl-"+form, "--ignore-not-found") })
			k := e2e.Kubectl{Context: "member1", Kubeconfig: e2e.WriteFile(t, credential)}
			e2e.WantText(t, k.Must(t, "config", "get-contexts", "-o", "name"), "member1", "fleet", "clusterpass")
			e2e.WantText(t, k.MustEventually(t, "-n", ns, "get", "pods"), "shell")
			if who := (e2e.Kubectl{Context: "clusterpass", Kubeconfig: k.Kubeconfig}).MustEventually(t, "auth", "whoami", "-o",
				"jsonpath={.status.userInfo.username}"); who != "pass-maker" {
				t.Errorf("the gateway sees %s", who)
			}
			k.NeverAllowed(t, "the pass is limited to clusters", "-n", ns, "exec", "shell", "--", "true")
			e2e.WantText(t, maker.MustEventually(t, "get", "passes"), "USER", "GROUPS", "CLUSTERS", "FORM", "EXPIRES",
				"kubectl-"+form, "pass-maker", "member1")
			e2e.WantText(t, maker.MustEventually(t, "get", "passes", "-o", "wide"), "CREATED-BY")
			if again := maker.MustEventually(t, "get", "pass", "kubectl-"+form, "-o", "yaml"); strings.Contains(again,
				"kubeconfig") {
				t.Errorf("the credential is shown again:\n%s", again)
			}
			e2e.WantText(t, maker.MustEventually(t, "delete", "pass", "kubectl-"+form), "deleted")
			k.WaitForRefusal(t, `the pass "kubectl-`+form+`" was revoked`, "-n", ns, "get", "pods")
		})
	}
}
