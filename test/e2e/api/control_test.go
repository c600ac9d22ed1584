package api_test

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"golang.org/x/sync/errgroup"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/clusterpass/clusterpass/infra/local/server"
	"github.com/clusterpass/clusterpass/shared/api/cluster/v1alpha1"
	"github.com/clusterpass/clusterpass/shared/stores"
	"github.com/clusterpass/clusterpass/shared/waittest"
	"github.com/clusterpass/clusterpass/test/e2e"
)

func TestOwnAPI(t *testing.T) {
	k := e2e.OwnAPI(t)
	e2e.WantText(t, k.Must(t, "version"), "Server Version: v1.")
	e2e.WantText(t, k.Must(t, "api-resources"), "clusters", "resourceregistries", "rr", "clusterroles",
		"clusterrolebindings", "selfsubjectreviews")
	e2e.WantText(t, k.Must(t, "explain", "cluster.spec.proxyURL"), "cluster.karmada.io", "is the proxy to the API server")
	e2e.WantText(t, k.Must(t, "explain", "resourceregistry", "--recursive"), "resourceSelectors", "clusterNames")
	e2e.WantText(t, k.Must(t, "explain", "cluster.spec.region", "--output", "plaintext-openapiv2"), "Region of the member")
	// Clients without aggregated discovery use this path.
	e2e.WantText(t, k.Must(t, "get", "--raw", "/apis/cluster.karmada.io/v1alpha1"), `"clusters"`, `"clusters/status"`)
	if got := k.Must(t, "get", "clusters"); !regexp.MustCompile(
		`^NAME +VERSION +MODE +READY +AGE\n(.*\n)*member1 +v1\.\S+ +Push +\S+ +\S`).MatchString(got) {
		t.Errorf("not as Karmada prints them:\n%s", got)
	}
	e2e.WantText(t, k.Must(t, "get", "clusters", "--field-selector", "metadata.name=member2", "-o", "name"),
		"cluster.cluster.karmada.io/member2\n")
	e2e.WantText(t, k.Must(t, "get", "clusters", "-o", "wide"), "API-ENDPOINT", "https://127.0.0.1:")
	e2e.WantText(t, k.Must(t, "get", "--raw", "/readyz"), "ok")

	dryRun := k.WithInput(e2e.SeedRegistry).Must(t, "apply", "--dry-run=server", "-f", "-")
	e2e.WantText(t, dryRun, "created (server dry run)")
	if r := k.Run(t, "get", "resourceregistry", "proxy-sample"); r.Code == 0 {
		t.Errorf("a dry run is kept:\n%s", r)
	}
	e2e.WantText(t, k.WithInput(e2e.SeedRegistry).Must(t, "apply", "-f", "-"), "proxy-sample created")
	t.Cleanup(func() { k.Must(t, "delete", "resourceregistry", "proxy-sample", "--ignore-not-found") })
	version := func() string {
		return k.Must(t, "get", "rr", "proxy-sample", "-o", "jsonpath={.metadata.resourceVersion}")
	}
	before := version()
	k.WithInput(e2e.SeedRegistry).Must(t, "apply", "-f", "-")
	if after := version(); after != before {
		t.Errorf("applied once more, version %s becomes %s", before, after)
	}
	e2e.WantText(t, k.Must(t, "get", "rr"), "proxy-sample", "*", "Pod,Node")
	if r := k.WithInput(strings.Replace(e2e.SeedRegistry, "resourceSelectors", "resourceSelector", 1)).Run(t, "apply",
		"-f", "-"); r.Code == 0 || !strings.Contains(r.Stderr, `unknown field "spec.resourceSelector"`) {
		t.Errorf("a misspelt field:\n%s", r)
	}
	if r := k.WithInput(strings.Replace(e2e.SeedRegistry, "kind: Pod", "kind: ''", 1)).Run(t, "apply", "-f",
		"-"); r.Code == 0 || !strings.Contains(r.Stderr, "spec.resourceSelectors[0].kind: Required value") {
		t.Errorf("a kind without a name:\n%s", r)
	}
}

// TestOwnAPIWrites: each method of kubectl must work at the gateway, and discard no change of another client.
func TestOwnAPIWrites(t *testing.T) {
	k := e2e.OwnAPI(t)
	doc := strings.Replace(e2e.SeedRegistry, "proxy-sample", "written", 1)
	changed := strings.Replace(doc, "clusterNames:", "clusterNames: [member1]", 1)
	e2e.WantText(t, k.WithInput(changed).Must(t, "apply", "--server-side", "--field-manager", "one", "-f", "-"),
		"written serverside-applied")
	t.Cleanup(func() { k.Must(t, "delete", "resourceregistry", "written", "--ignore-not-found") })
	get := func(path string) string { return k.Must(t, "get", "rr", "written", "-o", "jsonpath="+path) }

	r := k.WithInput(strings.Replace(changed, "kind: Node", "kind: Secret", 1)).Run(t, "apply", "--server-side",
		"--field-manager", "two", "-f", "-")
	if r.Code == 0 || !strings.Contains(r.Stderr, "conflict") {
		t.Errorf("another's field:\n%s", r)
	}
	k.WithInput(strings.Replace(changed, "kind: Node", "kind: Secret", 1)).Must(t, "apply", "--server-side",
		"--force-conflicts", "--field-manager", "two", "-f", "-")
	if got := get("{.spec.resourceSelectors[1].kind} {.spec.targetCluster.clusterNames[0]}"); got != "Secret member1" {
		t.Errorf("applied: %s", got)
	}

	for kind, patch := range map[string]string{
		"merge":     `{"spec":{"targetCluster":{"clusterNames":["merge"]}}}`,
		"json":      `[{"op":"replace","path":"/spec/targetCluster/clusterNames/0","value":"json"}]`,
		"strategic": `{"spec":{"targetCluster":{"clusterNames":["strategic"]}}}`,
	} {
		k.Must(t, "patch", "rr", "written", "--type", kind, "-p", patch)
		if got := get("{.spec.targetCluster.clusterNames[0]}"); got != kind {
			t.Errorf("patch --type %s: %s", kind, got)
		}
	}
	k.Must(t, "label", "rr", "written", "team=blue")
	k.Must(t, "annotate", "rr", "written", "note=x")
	e2e.WantText(t, k.Must(t, "get", "rr", "-l", "team=blue", "-o", "name"), "resourceregistry.search.karmada.io/written")
	editor := filepath.Join(t.TempDir(), "editor")
	if err := os.WriteFile(editor, []byte("#!/bin/sh\nsed -i s/team:\\ blue/team:\\ red/ \"$1\"\n"), 0o700); err != nil {
		t.Fatal(err)
	}
	edit := k
	edit.Env = []string{"KUBE_EDITOR=" + editor}
	e2e.WantText(t, edit.Must(t, "edit", "rr", "written"), "written edited")
	if got := get("{.metadata.labels.team}"); got != "red" {
		t.Errorf("edited: %s", got)
	}
	stale := k.Must(t, "get", "rr", "written", "-o", "yaml")
	if r := k.WithInput(strings.Replace(stale, "team: red", "team: grey", 1)).Run(t, "diff", "-f", "-"); r.Code != 1 ||
		!strings.Contains(r.Stdout, "+    team: grey") {
		t.Errorf("diff: %v", r)
	}
	k.Must(t, "label", "rr", "written", "team=green", "--overwrite")
	if r := k.WithInput(stale).Run(t, "replace", "-f", "-"); r.Code == 0 ||
		!strings.Contains(r.Stderr, "the object has been modified") {
		t.Errorf("a stale object:\n%s", r)
	}
	gone := k.Start(t, e2e.Clusters.BuiltKubectl(), "wait", "--for=delete", "rr/written", "--timeout=90s")
	e2e.WantText(t, k.Must(t, "delete", "rr", "written"), "deleted")
	if code := gone.ExitCode(); code != 0 {
		t.Errorf("wait --for=delete: exit %d\n%s", code, gone.Stderr)
	}
	if r := k.Run(t, "get", "rr", "written"); r.Code == 0 || !strings.Contains(r.Stderr, "NotFound") {
		t.Errorf("deleted:\n%s", r)
	}
	if r := k.Run(t, "get", "gizmos"); r.Code == 0 ||
		!strings.Contains(r.Stderr, `doesn't have a resource type "gizmos"`) {
		t.Errorf("an unknown kind:\n%s", r)
	}
}

// TestOwnAPIWatch: a watch at the bridge must show the writes of functions.
func TestOwnAPIWatch(t *testing.T) {
	k := e2e.OwnAPI(t)
	w := k.Start(t, e2e.Clusters.BuiltKubectl(), "get", "rr", "-w", "--output-watch-events", "-o",
		"custom-columns=T:.type,N:.object.metadata.name")
	await := func(kind string) {
		t.Helper()
		w.WaitForLine(kind, func(l string) bool { return strings.Contains(l, kind) && strings.Contains(l, "watched") })
	}
	// The watch may begin before or after the creation. It shows ADDED in both cases.
	k.WithInput(strings.Replace(e2e.SeedRegistry, "proxy-sample", "watched", 1)).Must(t, "create", "-f", "-")
	await("ADDED")
	k.Must(t, "label", "rr", "watched", "a=b")
	await("MODIFIED")
	k.Must(t, "delete", "rr", "watched")
	await("DELETED")
}

const prodPolicy = `apiVersion: clusterpass.io/v1alpha1
kind: RecordingPolicy
metadata: {name: e2e-prod}
spec:
  clusters: [no-cluster-of-these-tests-*]
  level: bestEffort
`

// TestRecordingPolicies: administrators must be able to manage policies as other objects, whatever the store.
func TestRecordingPolicies(t *testing.T) {
	t.Run("directory", func(t *testing.T) { checkRecordingPolicies(t, e2e.OwnAPI(t)) })
	t.Run("AWS", func(t *testing.T) {
		moto, _, _ := e2e.StartAWS(t)
		store := stores.Address{Kind: "aws", Where: "policies"}
		k := startGatewayAt(t, store)
		e2e.NoteSecretsManager(t, moto.URL)
		checkRecordingPolicies(t, k, "--store", store.String())
	})
	t.Run("Kubernetes", func(t *testing.T) {
		d := e2e.Direct("member2")
		store := stores.Address{
			Kind: stores.Kubernetes, Where: "policies", Kubeconfig: e2e.Clusters.KubeconfigFile(), Context: d.Context,
		}
		t.Cleanup(func() { // after the end of the gateway
			d.Must(t, "delete", "crd", "records.store.clusterpass.io", "--ignore-not-found")
			d.Must(t, "delete", "namespace", "policies", "--ignore-not-found", "--wait=false")
		})
		checkRecordingPolicies(t, startGatewayAt(t, store), "--store", store.String())
	})
}

// startGatewayAt initializes stores, and returns kubectl at a gateway with them. The gateway ends with the test.
func startGatewayAt(t *testing.T, store stores.Address) e2e.Kubectl {
	t.Helper()
	if out, err := e2e.CLI(t, "", "init", "--store", store.String()); err != nil {
		t.Fatalf("clusterpass init: %v\n%s", err, out)
	}
	h := e2e.StartGateway(t, t.TempDir(), server.Inline, func(cfg *server.Config) { cfg.Store = store })
	t.Cleanup(func() {
		h.Stop()
		if err := <-h.Stopped; err != nil {
			t.Error(err)
		}
	})
	return e2e.Kubectl{Kubeconfig: h.Kubeconfig, Context: "clusterpass"}
}

// checkRecordingPolicies uses kubectl, and clusterpass with the flags.
func checkRecordingPolicies(t *testing.T, k e2e.Kubectl, flags ...string) {
	t.Helper()
	apply := append([]string{"apply", "-f", "-"}, flags...)
	e2e.WantText(t, k.Must(t, "api-resources", "--api-group", "clusterpass.io"), "recordingpolicies", "rp")
	e2e.WantText(t, k.Must(t, "explain", "recordingpolicy.spec"), "recordInput", "level", "enum: bestEffort, required")
	w := k.Start(t, e2e.Clusters.BuiltKubectl(), "get", "rp", "-w", "--output-watch-events", "-o",
		"custom-columns=T:.type,N:.object.metadata.name,L:.object.spec.level")
	await := func(texts ...string) {
		t.Helper()
		w.WaitForLine(strings.Join(texts, " "), func(l string) bool {
			return !slices.ContainsFunc(texts, func(text string) bool { return !strings.Contains(l, text) })
		})
	}
	t.Cleanup(func() { k.Must(t, "delete", "rp", "e2e-prod", "--ignore-not-found") })
	e2e.WantText(t, k.WithInput(prodPolicy).Must(t, "apply", "-f", "-"), "e2e-prod created")
	await("ADDED", "e2e-prod", "bestEffort")
	e2e.WantText(t, k.WithInput(prodPolicy).Must(t, "apply", "-f", "-"), "e2e-prod unchanged")
	required := strings.Replace(prodPolicy, "bestEffort", "required", 1)
	e2e.WantText(t, k.WithInput(required).Must(t, "apply", "--server-side", "--force-conflicts", "-f", "-"),
		"e2e-prod serverside-applied")
	await("MODIFIED", "e2e-prod", "required")
	e2e.WantText(t, k.Must(t, "get", "rp", "e2e-prod"), "LEVEL", "required", "no-cluster-of-these-tests-*")
	wrong := strings.Replace(prodPolicy, "bestEffort", "never", 1)
	if r := k.WithInput(wrong).Run(t, "apply", "-f", "-"); r.Code == 0 ||
		!strings.Contains(r.Stderr, `spec.level: Unsupported value: "never"`) {
		t.Errorf("an unknown level:\n%s", r)
	}
	if out, err := e2e.CLI(t, wrong, apply...); err == nil ||
		!strings.Contains(out, `spec.level: Unsupported value: "never"`) {
		t.Errorf("an unknown level by clusterpass apply: %v\n%s", err, out)
	}
	if out, err := e2e.CLI(t, prodPolicy, apply...); err != nil || !strings.Contains(out, "configured") {
		t.Errorf("clusterpass apply: %v\n%s", err, out)
	}
	await("MODIFIED", "e2e-prod", "bestEffort")
	k.Must(t, "delete", "rp", "e2e-prod")
	await("DELETED", "e2e-prod")
}

// TestOwnAPIByTwo: function and bridge must not overwrite each other's changes in their common store.
func TestOwnAPIByTwo(t *testing.T) {
	k := e2e.OwnAPI(t)
	k.WithInput(strings.Replace(e2e.SeedRegistry, "proxy-sample", "counted", 1)).Must(t, "create", "-f", "-")
	t.Cleanup(func() { k.Must(t, "delete", "rr", "counted") })
	root := strings.TrimSuffix(k.Must(t, "config", "view", "-o",
		`jsonpath={.clusters[?(@.name=="clusterpass")].cluster.server}`), "/")
	const writes = 8
	count := func(k e2e.Kubectl) error {
		for done, deadline := 0, time.Now().Add(e2e.Patience); done < writes; {
			got, err := k.Try(t.Context(), "get", "rr", "counted", "-o", "json")
			if err != nil {
				return err
			}
			var obj unstructured.Unstructured
			if err := json.Unmarshal([]byte(got.Stdout), &obj.Object); err != nil {
				return fmt.Errorf("%w: %s", err, got)
			}
			n, _ := strconv.Atoi(obj.GetAnnotations()["n"])
			obj.SetAnnotations(map[string]string{"n": strconv.Itoa(n + 1)})
			doc, err := obj.MarshalJSON()
			if err != nil {
				return err
			}
			switch r, err := k.WithInput(string(doc)).Try(t.Context(), "replace", "-f", "-"); {
			case err != nil:
				return err
			case r.Code == 0:
				done++
			case !strings.Contains(r.Stderr, "the object has been modified") || time.Now().After(deadline):
				return fmt.Errorf("after %d writes: %s", done, r)
			}
		}
		return nil
	}
	var group errgroup.Group
	for _, server := range []string{root, root + "/bridge"} {
		k := k
		k.Server = server
		group.Go(func() error { return count(k) })
	}
	if err := group.Wait(); err != nil {
		t.Fatal(err)
	}
	if got := k.Must(t, "get", "rr", "counted", "-o", "jsonpath={.metadata.annotations.n}"); got != strconv.Itoa(
		2*writes) {
		t.Errorf("%s of %d writes are left", got, 2*writes)
	}
}

// TestOwnAPIWho: users must see their rights, and cannot grant others.
func TestOwnAPIWho(t *testing.T) {
	k := e2e.OwnAPI(t)
	e2e.WantText(t, k.Must(t, "auth", "whoami"), "Username", "[system:masters system:authenticated]")
	if got := strings.TrimSpace(k.Must(t, "auth", "can-i", "delete", "clusters.cluster.karmada.io")); got != "yes" {
		t.Errorf("the owner may delete clusters: %s", got)
	}
	k.WithInput(`
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRole
metadata: {name: reads-clusters}
rules:
- {apiGroups: [cluster.karmada.io], resources: [clusters], verbs: [get, list]}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRoleBinding
metadata: {name: reads-clusters}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: reads-clusters}
subjects: [{kind: User, name: reader}]
`).Must(t, "apply", "-f", "-")
	t.Cleanup(func() { k.Must(t, "delete", "clusterrole,clusterrolebinding", "reads-clusters") })
	reader := e2e.Kubectl{Kubeconfig: e2e.CertificateKubeconfig(t, "reader"), Context: "clusterpass"}
	waittest.Until(t, "reader lists clusters", func() bool { return reader.Run(t, "get", "clusters").Code == 0 })
	e2e.WantText(t, reader.MustEventually(t, "auth", "whoami"), "reader", "[system:authenticated]")
	var may string
	waittest.Until(t, "rules include the new role", func() bool {
		may = reader.Must(t, "auth", "can-i", "--list")
		return strings.Contains(may, "clusters.cluster.karmada.io")
	})
	e2e.WantText(t, may, "[get list]", "selfsubjectreviews.authentication.k8s.io")
	if r := reader.Run(t, "auth", "can-i", "delete", "clusters.cluster.karmada.io"); strings.TrimSpace(r.Stdout) != "no" {
		t.Errorf("a reader may delete clusters:\n%s", r)
	}
	if r := reader.Run(t, "delete", "cluster", "member1"); r.Code == 0 ||
		!strings.Contains(r.Stderr, `User "reader" cannot delete resource "clusters" in API group "cluster.karmada.io"`) {
		t.Errorf("a reader deletes:\n%s", r)
	}
	e2e.WantText(t, k.Must(t, "--as", "reader", "auth", "whoami"), "reader")
	if r := k.Run(t, "--as", "reader", "get", "rr"); r.Code == 0 {
		t.Errorf("as a reader, the owner may more:\n%s", r)
	}
	k.Must(t, "create", "clusterrole", "writes-roles", "--verb=create",
		"--resource=clusterroles.rbac.authorization.k8s.io")
	k.Must(t, "create", "clusterrolebinding", "writes-roles", "--clusterrole=writes-roles", "--user=reader")
	t.Cleanup(func() { k.Must(t, "delete", "clusterrole,clusterrolebinding", "writes-roles") })
	waittest.Until(t, "reader may create an equal role", func() bool {
		return reader.Run(t, "create", "clusterrole", "held", "--verb=get", "--resource=clusters.cluster.karmada.io",
			"--dry-run=server").Code == 0
	})
	const more = "attempting to grant RBAC permissions not currently held"
	reader.NeverAllowed(t, more, "create", "clusterrole", "more", "--verb=delete",
		"--resource=clusters.cluster.karmada.io")
	const binds = `
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRole
metadata: {name: more}
rules: [{apiGroups: [cluster.karmada.io], resources: [clusters], verbs: [delete]}]
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRole
metadata: {name: writes-roles}
rules:
- {apiGroups: [rbac.authorization.k8s.io], resources: [clusterroles, clusterrolebindings], verbs: [create]}
`
	k.WithInput(binds).Must(t, "apply", "--server-side", "--force-conflicts", "-f", "-")
	t.Cleanup(func() { k.Must(t, "delete", "clusterrole", "more") })
	bind := []string{"create", "clusterrolebinding", "more", "--clusterrole=more", "--user=reader", "--dry-run=server"}
	reader.NeverAllowed(t, more, bind...)
	k.WithInput(strings.Replace(binds, "[create]}", "[create, bind, escalate]}", 1)).Must(t, "apply", "--server-side",
		"-f", "-")
	waittest.Until(t, "reader may bind and escalate", func() bool {
		return reader.Run(t, bind...).Code == 0 &&
			reader.Run(t, "create", "clusterrole", "most", "--verb=*", "--resource=clusters.cluster.karmada.io",
				"--dry-run=server").Code == 0
	})
}

// TestClusterByManifest: a manifest must register a cluster, and no response may show its credential.
func TestClusterByManifest(t *testing.T) {
	k := e2e.OwnAPI(t)
	kubeconfig := e2e.Direct("member1").Must(t, "config", "view", "--raw", "--minify", "--flatten", "-o", "json")
	manifest := func(spec map[string]any) string {
		t.Helper()
		doc, err := json.Marshal(map[string]any{"apiVersion": v1alpha1.APIVersion, "kind": v1alpha1.Kind,
			"metadata": map[string]any{"name": "by-manifest"}, "spec": spec})
		if err != nil {
			t.Fatal(err)
		}
		return string(doc)
	}
	spec := map[string]any{"region": "eu", "identity": "direct", "directUsers": []string{"*"}, "kubeconfig": kubeconfig}
	e2e.WantText(t, k.WithInput(manifest(spec)).Must(t, "apply", "-f", "-"), "by-manifest created")
	t.Cleanup(func() { k.Must(t, "delete", "cluster", "by-manifest", "--ignore-not-found") })
	want := e2e.Direct("member1").Must(t, "get", "namespace", "kube-system", "-o", "jsonpath={.metadata.uid}")
	cluster := strings.TrimSuffix(k.Must(t, "config", "view", "-o",
		"jsonpath={.clusters[?(@.name==\"clusterpass\")].cluster.server}"), "/") + "/clusters/by-manifest"
	waittest.Until(t, "new cluster is reachable", func() bool {
		return k.Run(t, "--server", cluster, "get", "namespace", "kube-system", "-o",
			"jsonpath={.metadata.uid}").Stdout == want
	})
	e2e.WantText(t, k.Must(t, "wait", "--for=condition=Ready", "cluster/by-manifest", "--timeout=4m"), "condition met")
	waittest.Until(t, "new cluster is ready", func() bool { // a slow probe reports an unready cluster
		out := k.Must(t, "get", "cluster", "by-manifest")
		return strings.Contains(out, "v1.") && strings.Contains(out, "True")
	})
	if got := k.Must(t, "get", "cluster", "by-manifest", "-o", "jsonpath={.status.probe.latency}"); !regexp.MustCompile(
		`^[0-9.]+(m?s)$`).MatchString(got) {
		t.Errorf("latency %q", got)
	}
	e2e.WantText(t, k.WithInput(manifest(spec)).Must(t, "apply", "-f", "-"), "by-manifest configured")
	spec["regionn"] = "eu" // a misspelt field, whose error must not print the credential
	k.WithInput(manifest(spec)).NeverAllowed(t, `unknown field "spec.regionn"`, "apply", "-f", "-")
	delete(spec, "regionn")
	for _, change := range []string{`"apiEndpoint":"https://127.0.0.1:9"`, `"proxyURL":"http://127.0.0.1:9"`,
		`"insecureSkipTLSVerification":true`} {
		name := strings.Split(change, `"`)[1]
		k.NeverAllowed(t, "spec."+name+": Forbidden: needs the credential again", "patch", "cluster", "by-manifest", "--type",
			"merge", "-p", `{"spec":{`+change+`}}`)
	}
	spec["proxyURL"] = "http://127.0.0.1:9"
	delete(spec, "kubeconfig")
	if r := k.WithInput(manifest(spec)).Run(t, "apply", "-f", "-"); r.Code == 0 ||
		!strings.Contains(r.Stderr, "spec.proxyURL: Forbidden: needs the credential again") {
		t.Errorf("a proxy without the credential:\n%s", r)
	}
	for _, format := range []string{"yaml", "json", "wide"} {
		all := k.Must(t, "get", "clusters", "-o", format, "--show-managed-fields") +
			k.Must(t, "describe", "cluster", "by-manifest")
		for _, secret := range keysOf(t, kubeconfig) {
			if strings.Contains(all, secret) {
				t.Errorf("-o %s shows a credential", format)
			}
		}
	}
	k.Must(t, "delete", "cluster", "by-manifest")
	waittest.Until(t, "removed cluster is unknown", func() bool {
		return strings.Contains(k.Run(t, "--server", cluster, "get", "nodes").Stderr, `there is no cluster "by-manifest"`)
	})
}

// TestUnreadyCluster: the status of a cluster that does not respond must give the reason.
func TestUnreadyCluster(t *testing.T) {
	k := e2e.OwnAPI(t)
	kubeconfig := regexp.MustCompile(`"server": *"[^"]*"`).ReplaceAllString(
		e2e.Direct("member1").Must(t, "config", "view", "--raw", "--minify", "--flatten", "-o", "json"),
		`"server": "https://127.0.0.1:9"`)
	doc, err := json.Marshal(map[string]any{"apiVersion": v1alpha1.APIVersion, "kind": v1alpha1.Kind,
		"metadata": map[string]any{"name": "unready"}, "spec": map[string]any{"kubeconfig": kubeconfig}})
	if err != nil {
		t.Fatal(err)
	}
	k.WithInput(string(doc)).Must(t, "create", "-f", "-")
	t.Cleanup(func() { k.Must(t, "delete", "cluster", "unready") })
	e2e.WantText(t, k.Must(t, "wait", "--for=condition=Ready=False", "cluster/unready", "--timeout=4m"), "condition met")
	var out string
	// A slow probe reports only its timeout. The next probe reports the reason.
	waittest.Until(t, "cluster is unreachable", func() bool {
		out = k.Run(t, "get", "cluster", "unready", "-o", "wide").Stdout
		return strings.Contains(out, "False") && strings.Contains(out, "unreachable")
	})
	e2e.WantText(t, k.Must(t, "get", "cluster", "unready", "-o", "jsonpath={.status.conditions[0].message}"),
		"connection refused")
	e2e.WaitForCLI(t, false, []string{"WRONG  unready", "is the cluster up, and reachable from the gateway"}, "doctor",
		"--kubeconfig", e2e.Shared(t).Kubeconfig, "unready")
}

func keysOf(t *testing.T, kubeconfig string) []string {
	t.Helper()
	var doc struct {
		Users []struct {
			User struct {
				Key   string `json:"client-key-data"`
				Cert  string `json:"client-certificate-data"`
				Token string `json:"token"`
			} `json:"user"`
		} `json:"users"`
	}
	if err := json.Unmarshal([]byte(kubeconfig), &doc); err != nil {
		t.Fatal(err)
	}
	var out []string
	for _, u := range doc.Users {
		for _, secret := range []string{u.User.Key, u.User.Cert, u.User.Token} {
			if secret != "" {
				out = append(out, secret)
			}
		}
	}
	if len(out) == 0 {
		t.Fatal("the kubeconfig has no credential")
	}
	return out
}
