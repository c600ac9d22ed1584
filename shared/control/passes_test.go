package control_test

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"

	"github.com/clusterpass/clusterpass/shared/access"
	"github.com/clusterpass/clusterpass/shared/audit"
	"github.com/clusterpass/clusterpass/shared/control"
	"github.com/clusterpass/clusterpass/shared/passes"
	"github.com/clusterpass/clusterpass/shared/waittest"
)

const passPath = "/apis/clusterpass.io/v1alpha1/passes"

// passDoc is a pass of that name; fields are further ones of its spec.
func passDoc(name, fields string) string {
	return fmt.Sprintf(`{apiVersion: clusterpass.io/v1alpha1, kind: Pass, metadata: {name: %s}, spec: {clusters: ["*"], verbs: [get], %s}}`, name, fields)
}

// kubeconfigOf is the credential in the answer to a pass's creation.
func kubeconfigOf(t *testing.T, obj *unstructured.Unstructured) *clientcmdapi.Config {
	t.Helper()
	text, _, _ := unstructured.NestedString(obj.Object, "status", "kubeconfig")
	kc, err := clientcmd.Load([]byte(text))
	if err != nil || text == "" {
		t.Fatalf("no kubeconfig in %v: %v", obj.Object["status"], err)
	}
	return kc
}

// bearing is how the holder of a pass reaches d, whose address here is not that in the kubeconfig.
func (d *server) bearing(t *testing.T, kc *clientcmdapi.Config) *rest.Config {
	t.Helper()
	cfg, err := clientcmd.NewNonInteractiveClientConfig(*kc, "clusterpass", nil, nil).ClientConfig()
	if err != nil {
		t.Fatal(err)
	}
	if cfg.Host != gatewayURL || len(cfg.CAData) == 0 {
		t.Errorf("the pass is for %s", cfg.Host)
	}
	cfg.Host, cfg.QPS, cfg.CAData = d.URL, -1, d.master().CAData
	return cfg
}

// rights gives a user of the gateway rules and waits until they are in force.
func (d *server) rights(t *testing.T, user, rules string) {
	t.Helper()
	root := d.dynamic(d.master())
	for _, doc := range []string{
		fmt.Sprintf(`{apiVersion: rbac.authorization.k8s.io/v1, kind: ClusterRole, metadata: {name: %s}, rules: %s}`, user, rules),
		fmt.Sprintf(`{apiVersion: rbac.authorization.k8s.io/v1, kind: ClusterRoleBinding, metadata: {name: %s},
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: %s}, subjects: [{kind: User, name: %s}]}`, user, user, user),
	} {
		obj := object(t, doc)
		gvr := roleGVR
		if obj.GetKind() == "ClusterRoleBinding" {
			gvr = bindingGVR
		}
		if _, err := root.Resource(gvr).Apply(within(t), obj.GetName(), obj, metav1.ApplyOptions{FieldManager: "test", Force: true}); err != nil {
			t.Fatal(err)
		}
	}
	client := d.dynamic(d.config(user)).Resource(passGVR)
	waittest.UntilNoError(t, "rights are in force", func(ctx context.Context) error {
		_, err := client.List(ctx, metav1.ListOptions{})
		if err != nil && !apierrors.IsForbidden(err) {
			t.Fatal(err)
		}
		return err
	})
}

const makesPasses = `{apiGroups: [clusterpass.io], resources: [passes], verbs: ["*"]}`

// TestPasses holds: who creates a pass gets its credential, once; it is good for what it says, until its object is deleted.
func TestPasses(t *testing.T) {
	h := newInstallation(t)
	d := h.gateway()
	ctx := within(t)
	root := d.dynamic(d.master())
	for _, name := range []string{"member1", "member2"} {
		if _, err := root.Resource(clusterGVR).Create(ctx, object(t, fmt.Sprintf(`{apiVersion: cluster.karmada.io/v1alpha1, kind: Cluster, metadata: {name: %s}}`, name)), metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	d.rights(t, "eve", `[`+makesPasses+`, {apiGroups: [cluster.karmada.io], resources: [clusters/proxy], resourceNames: [member1], verbs: ["*"]}]`)
	var warnings warned
	cfg := d.config("eve", "dev")
	cfg.WarningHandler = &warnings
	eve := d.dynamic(cfg).Resource(passGVR)
	told := func(times int) { // so often where the credential is
		t.Helper()
		if len(warnings.texts) != times || slices.ContainsFunc(warnings.texts, func(text string) bool { return !strings.Contains(text, "in status.kubeconfig of this one answer") }) {
			t.Errorf("warned of %q", warnings.texts)
		}
		warnings.texts = nil
	}

	obj, err := eve.Create(ctx, object(t, passDoc("laptop", "ttl: 1h")), metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}})
	if err != nil {
		t.Fatal(err)
	}
	if text, _, _ := unstructured.NestedString(obj.Object, "status", "kubeconfig"); text != "" || len(h.stored()) != 0 {
		t.Errorf("a dry run makes a credential, or a key: %d secrets", len(h.stored()))
	}
	told(0)
	if obj, err = eve.Create(ctx, object(t, passDoc("laptop", "ttl: 1h")), metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	told(1)
	if _, err := eve.Create(ctx, object(t, passDoc("laptop", "ttl: 1h")), metav1.CreateOptions{}); !apierrors.IsAlreadyExists(err) {
		t.Errorf("twice: %v", err)
	}
	told(0)
	kc := kubeconfigOf(t, obj)
	if got := slices.Sorted(maps.Keys(kc.Contexts)); !slices.Equal(got, []string{"clusterpass", "fleet", "member1"}) || kc.CurrentContext != "member1" {
		t.Errorf("contexts %v, of them %s now", got, kc.CurrentContext)
	}
	if by, _, _ := unstructured.NestedStringMap(obj.Object, "status", "createdBy"); !maps.Equal(by, map[string]string{"user": "eve"}) {
		t.Errorf("created by %v", by)
	}
	if got := kc.Clusters["fleet"].Server; got != gatewayURL+"/fleet" {
		t.Errorf("the fleet is at %s", got)
	}
	spec, _, _ := unstructured.NestedMap(obj.Object, "spec")
	if spec["user"] != "eve" || fmt.Sprint(spec["groups"]) != "[dev]" || spec["form"] != "token" {
		t.Errorf("completed to %v", spec)
	}
	token := kc.AuthInfos["clusterpass"].Token

	// Once, and nowhere else.
	stored, err := h.Objects.Get(ctx, "passes/laptop")
	if err != nil {
		t.Fatal(err)
	}
	list, err := eve.List(ctx, metav1.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}
	labelled, err := eve.Patch(ctx, "laptop", types.MergePatchType, []byte(`{"metadata":{"labels":{"a":"b"}}}`), metav1.PatchOptions{})
	if err != nil {
		t.Fatal(err)
	}
	listed, _ := json.Marshal([]any{list, labelled})
	for where, text := range map[string]string{"the store": string(stored.Value), "later answers": string(listed), "the log": h.log.String()} {
		if strings.Contains(text, token) || strings.Contains(text, "certificate-authority") || strings.Contains(text, `"kubeconfig"`) {
			t.Errorf("%s has the credential", where)
		}
	}
	_, table := d.call(d.config("eve"), "GET", passPath, "application/json", "")
	if strings.Contains(table, token) {
		t.Error("the list has the credential")
	}

	// It is good for what it says.
	holder := d.bearing(t, kc)
	if code, answer := d.call(holder, "GET", "/clusters/member1/version", "", ""); code != http.StatusBadGateway && code != http.StatusServiceUnavailable && code != http.StatusNotFound {
		t.Errorf("member1, which has no credential: %d %s", code, answer)
	}
	for path, method := range map[string]string{"/clusters/member2/version": "GET", "/clusters/member1/api/v1/namespaces": "POST", passPath: "GET"} {
		if code, answer := d.call(holder, method, path, "", ""); code != http.StatusForbidden {
			t.Errorf("%s %s: %d %s", method, path, code, answer)
		}
	}
	if _, err := eve.Patch(ctx, "laptop", types.MergePatchType, []byte(`{"spec":{"verbs":["*"]}}`), metav1.PatchOptions{}); !apierrors.IsInvalid(err) || !strings.Contains(err.Error(), "a pass does not change") {
		t.Errorf("more verbs: %v", err)
	}
	if err := eve.Delete(ctx, "laptop", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	if code, answer := d.call(holder, "GET", "/clusters/member1/version", "", ""); code != http.StatusUnauthorized || !strings.Contains(answer, "was revoked") {
		t.Errorf("deleted: %d %s", code, answer)
	}

	// Who applies what they were answered, with status and all, gives nobody the credential.
	if obj, err = eve.Create(ctx, object(t, passDoc("saved", "ttl: 1h")), metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	token = kubeconfigOf(t, obj).AuthInfos["clusterpass"].Token
	answer, _ := json.Marshal(obj)
	annotation, _ := json.Marshal(map[string]any{"metadata": map[string]any{"annotations": map[string]any{"kubectl.kubernetes.io/last-applied-configuration": string(answer)}}})
	if _, err := eve.Patch(ctx, "saved", types.MergePatchType, annotation, metav1.PatchOptions{}); err != nil {
		t.Fatal(err)
	}
	if stored, err = h.Objects.Get(ctx, "passes/saved"); err != nil || strings.Contains(string(stored.Value), token) || !strings.Contains(string(stored.Value), "last-applied") {
		t.Errorf("the store has %s, %v", stored.Value, err)
	}

	// What keeps an object keeps no credential.
	if obj, err = eve.Create(ctx, object(t, strings.Replace(passDoc("held", "ttl: 1h"), "name: held", "name: held, finalizers: [example.com/hold]", 1)), metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	held := d.bearing(t, kubeconfigOf(t, obj))
	if code, answer := d.call(held, "GET", "/clusters/member2/version", "", ""); code != http.StatusForbidden {
		t.Errorf("held: %d %s", code, answer)
	}
	if err := eve.Delete(ctx, "held", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	if code, answer := d.call(held, "GET", "/clusters/member2/version", "", ""); code != http.StatusUnauthorized || !strings.Contains(answer, "was revoked") {
		t.Errorf("deleted, with a finalizer: %d %s", code, answer)
	}

	// Server-side apply creates as well, and answers the credential once.
	warnings.texts = nil
	applied, err := eve.Apply(ctx, "applied", object(t, passDoc("applied", "ttl: 1h")), metav1.ApplyOptions{FieldManager: "eve"})
	if err != nil {
		t.Fatal(err)
	}
	if code, answer := d.call(d.bearing(t, kubeconfigOf(t, applied)), "GET", "/clusters/member2/version", "", ""); code != http.StatusForbidden {
		t.Errorf("applied: %d %s", code, answer)
	}
	again, err := eve.Apply(ctx, "applied", object(t, passDoc("applied", "ttl: 1h")), metav1.ApplyOptions{FieldManager: "eve"})
	if text, _, _ := unstructured.NestedString(again.Object, "status", "kubeconfig"); err != nil || text != "" {
		t.Errorf("applied once more: %v, a credential: %v", err, text != "")
	}
	told(1) // the first time
}

// TestPassPower holds: nobody gives by a pass what they may not do themselves.
func TestPassPower(t *testing.T) {
	h := newInstallation(t)
	d := h.gateway()
	ctx := within(t)
	client := func(user string, groups ...string) dynamic.ResourceInterface {
		return d.dynamic(d.config(user, groups...)).Resource(passGVR)
	}
	d.rights(t, "eve", `[`+makesPasses+`]`)
	d.rights(t, "boss", `[`+makesPasses+`, {apiGroups: [""], resources: [users], resourceNames: [bob], verbs: [impersonate]},
{apiGroups: [""], resources: [groups, serviceaccounts], verbs: [impersonate]}]`)
	for _, tt := range []struct {
		by     dynamic.ResourceInterface
		fields string
		want   string // "" where it is allowed
	}{
		{client("eve", "dev"), `user: eve, groups: [dev]`, ""},
		{client("eve", "dev"), `user: bob`, `cannot impersonate resource "users"`},
		{client("eve", "dev"), `user: eve, groups: [ops]`, `cannot impersonate resource "groups"`},
		{client("eve", "dev"), `user: "system:serviceaccount:a:b"`, `cannot impersonate resource "serviceaccounts"`},
		{client("eve", "dev"), `user: eve, groups: ["system:masters"]`, "only members of system:masters"},
		{client("boss"), `user: bob, groups: [ops]`, ""},
		{client("boss"), `user: carol`, `cannot impersonate resource "users"`},
		{client("boss"), `user: "system:serviceaccount:a:b"`, ""},
		{client("boss"), `user: bob, groups: ["system:masters"]`, "only members of system:masters"},
		{client("boss"), `user: bob, groups: ["system:masters"], form: certificate`, "only members of system:masters"},
		{d.dynamic(d.master()).Resource(passGVR), `user: bob, groups: ["system:masters"]`, ""},
	} {
		_, err := tt.by.Create(ctx, object(t, strings.Replace(passDoc("x", tt.fields), "name: x", "generateName: x-", 1)), metav1.CreateOptions{})
		if tt.want == "" && err != nil || tt.want != "" && (!apierrors.IsForbidden(err) || !strings.Contains(err.Error(), tt.want)) {
			t.Errorf("%s: %v, want %q", tt.fields, err, tt.want)
		}
	}
	if _, err := client("eve").Apply(ctx, "applied", object(t, passDoc("applied", "user: bob")), metav1.ApplyOptions{FieldManager: "eve"}); !apierrors.IsForbidden(err) {
		t.Errorf("by an apply that creates: %v", err)
	}
	for fields, want := range map[string]string{
		`verbs: [get], ttl: 200h`:                   "spec.ttl: Invalid value",
		`verbs: [get], form: jwt`:                   "spec.form: Invalid value",
		`verbs: [get], form: certificate`:           "clusterpass init --client-ca",
		`verbs: [get], form: certificate, ttl: 25h`: "want 1m0s to 24h0m0s",
		`verbs: [list]`:                             "spec.verbs: Invalid value",
		`ttl: 1h`:                                   "spec.verbs: Required value",
	} {
		if _, err := client("eve").Create(ctx, object(t, strings.Replace(passDoc("x", ""), "verbs: [get], ", fields, 1)), metav1.CreateOptions{}); !apierrors.IsInvalid(err) || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %s", fields, err, want)
		}
	}

	// A pass without a limit may do all that eve may, but for making others: else revoking it would end nothing.
	if err := passes.StoreCA(ctx, h.Secrets, h.CA); err != nil {
		t.Fatal(err)
	}
	for _, form := range []string{"token", "certificate"} {
		obj, err := client("eve").Create(ctx, object(t, fmt.Sprintf(
			`{apiVersion: clusterpass.io/v1alpha1, kind: Pass, metadata: {name: all-%s}, spec: {clusters: ["*"], verbs: ["*"], form: %s}}`, form, form)), metav1.CreateOptions{})
		if err != nil {
			t.Fatal(err)
		}
		holder := d.dynamic(d.bearing(t, kubeconfigOf(t, obj))).Resource(passGVR)
		if _, err := holder.List(ctx, metav1.ListOptions{}); err != nil {
			t.Errorf("%s: %v", form, err)
		}
		if _, err := holder.Create(ctx, object(t, passDoc("child-"+form, "")), metav1.CreateOptions{}); !apierrors.IsForbidden(err) || !strings.Contains(err.Error(), "a pass makes no other pass") {
			t.Errorf("%s: %v", form, err)
		}
	}
}

// TestPassIsOnRecord holds: who made a pass stands in it, whatever they write there, and in the audit log under its name.
func TestPassIsOnRecord(t *testing.T) {
	h := newInstallation(t)
	d := h.gateway()
	ctx := within(t)
	cfg := d.master()
	cfg.Impersonate = rest.ImpersonationConfig{UserName: "bob", Groups: []string{access.Masters}}
	bob := d.dynamic(cfg).Resource(passGVR)
	by := func(obj *unstructured.Unstructured) string {
		m, _, _ := unstructured.NestedStringMap(obj.Object, "status", "createdBy")
		return fmt.Sprint(m)
	}
	const want = "map[impersonator:root user:bob]"
	claim := map[string]any{"user": "mallory"}
	doc := object(t, strings.Replace(passDoc("x", "user: carol"), "name: x", "generateName: for-carol-", 1))
	doc.Object["status"] = map[string]any{"createdBy": claim}
	made, err := bob.Create(ctx, doc, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	name := made.GetName()
	if by(made) != want || !strings.HasPrefix(name, "for-carol-") || len(name) < len("for-carol-")+3 {
		t.Errorf("%s is created by %s", name, by(made))
	}
	patched, err := bob.Patch(ctx, name, types.MergePatchType, []byte(`{"status":{"createdBy":{"user":"mallory"}},"metadata":{"labels":{"a":"b"}}}`), metav1.PatchOptions{})
	if err != nil || by(patched) != want {
		t.Errorf("patched: created by %s, %v", by(patched), err)
	}
	doc = object(t, passDoc("applied", "user: carol"))
	doc.Object["status"] = map[string]any{"createdBy": claim}
	applied, err := bob.Apply(ctx, "applied", doc, metav1.ApplyOptions{FieldManager: "test"})
	if err != nil || by(applied) != want {
		t.Errorf("applied: created by %s, %v", by(applied), err)
	}
	if _, err := bob.Create(ctx, object(t, passDoc("twice", "ttl: 1s")), metav1.CreateOptions{}); !apierrors.IsInvalid(err) {
		t.Error(err)
	}

	d.Close() // what is answered is written
	named := map[string]int{}
	for line := range strings.Lines(h.audit.String()) {
		var e audit.Event
		if err := json.Unmarshal([]byte(line), &e); err != nil {
			t.Fatal(err)
		}
		if e.Verb == "create" && e.ObjectRef != nil && e.ObjectRef.Resource == "passes" {
			named[e.ObjectRef.Name] = e.ResponseStatus.Code
			if e.User.Username != "root" || e.ImpersonatedUser == nil || e.ImpersonatedUser.Username != "bob" {
				t.Errorf("%s", line)
			}
		}
	}
	if !maps.Equal(named, map[string]int{name: 201, "twice": 422}) {
		t.Errorf("created: %v", named)
	}
}

// TestPassLimits holds: no pass is good for longer than the gateway is configured to allow, and says so.
func TestPassLimits(t *testing.T) {
	d := newInstallation(t).gatewayWith(func(c *control.Config) { c.MaxPassTTL = 2 * time.Hour })
	ctx := within(t)
	root := d.dynamic(d.master()).Resource(passGVR)
	const want = `spec.ttl: Invalid value: "2h0m1s": want 1m0s to 2h0m0s, the longest that this gateway allows for a token`
	if _, err := root.Create(ctx, object(t, passDoc("long", "user: ann, ttl: 2h0m1s")), metav1.CreateOptions{}); !apierrors.IsInvalid(err) || !strings.Contains(err.Error(), want) {
		t.Errorf("%v, want %s", err, want)
	}
	for fields, want := range map[string]string{"user: ann": "2h0m0s", "user: ann, ttl: 2h": "2h0m0s", "user: ann, ttl: 30m": "30m0s"} {
		obj, err := root.Create(ctx, object(t, strings.Replace(passDoc("x", fields), "name: x", "generateName: x-", 1)), metav1.CreateOptions{})
		if err != nil {
			t.Fatal(err)
		}
		if ttl, _, _ := unstructured.NestedString(obj.Object, "spec", "ttl"); ttl != want {
			t.Errorf("%s: ttl %s", fields, ttl)
		}
	}
}

// warned collects warnings.
type warned struct{ texts []string }

// HandleWarningHeader implements rest.WarningHandler.
func (w *warned) HandleWarningHeader(_ int, _, text string) { w.texts = append(w.texts, text) }

// TestPassOfManyClusters holds: the one answer with the credential fits through every door.
func TestPassOfManyClusters(t *testing.T) {
	d := newInstallation(t).gateway()
	var names []string
	for i := range 2000 {
		names = append(names, fmt.Sprintf("cluster-%04d", i))
	}
	var warnings warned
	cfg := d.master()
	cfg.WarningHandler = &warnings
	doc := strings.Replace(passDoc("many", "user: ann"), `["*"]`, "["+strings.Join(names, ",")+"]", 1)
	obj, err := d.dynamic(cfg).Resource(passGVR).Create(within(t), object(t, doc), metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	answer, err := json.Marshal(obj)
	if err != nil || len(answer) > 1_000_000 {
		t.Errorf("an answer of %d bytes, %v", len(answer), err)
	}
	n := len(kubeconfigOf(t, obj).Contexts)
	if n < 100 || !slices.ContainsFunc(warnings.texts, func(text string) bool {
		return strings.Contains(text, fmt.Sprintf("contexts for %d of the clusters", n-2)) // beside the gateway's own and the fleet's
	}) {
		t.Errorf("%d contexts, and warned of %q", n, warnings.texts)
	}
}
