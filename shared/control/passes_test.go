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
	passkubeconfig "github.com/clusterpass/clusterpass/shared/passes/kubeconfig"
	"github.com/clusterpass/clusterpass/shared/waittest"
)

const passPath = "/apis/clusterpass.io/v1alpha1/passes"

func passDoc(name, fields string) string {
	return fmt.Sprintf(
		`{apiVersion: clusterpass.io/v1alpha1, kind: Pass, metadata: {name: %s}, spec: {clusters: ["*"], verbs: [get], %s}}`,
		name, fields)
}

func kubeconfigOf(t *testing.T, obj *unstructured.Unstructured) *clientcmdapi.Config {
	t.Helper()
	text, _, _ := unstructured.NestedString(obj.Object, "status", "kubeconfig")
	kc, err := clientcmd.Load([]byte(text))
	if err != nil || text == "" {
		t.Fatalf("no kubeconfig in %v: %v", obj.Object["status"], err)
	}
	return kc
}

// passConfig replaces the address in the kubeconfig by that of d.
func (d *server) passConfig(t *testing.T, kc *clientcmdapi.Config) *rest.Config {
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

func (d *server) grantRules(t *testing.T, user, rules string) {
	t.Helper()
	root := d.dynamic(d.master())
	for _, doc := range []string{
		fmt.Sprintf(`{apiVersion: rbac.authorization.k8s.io/v1, kind: ClusterRole, metadata: {name: %s}, rules: %s}`,
			user, rules),
		fmt.Sprintf(`{apiVersion: rbac.authorization.k8s.io/v1, kind: ClusterRoleBinding, metadata: {name: %s},
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: %s}, subjects: [{kind: User, name: %s}]}`,
			user, user, user),
	} {
		obj := object(t, doc)
		gvr := roleGVR
		if obj.GetKind() == "ClusterRoleBinding" {
			gvr = bindingGVR
		}
		if _, err := root.Resource(gvr).Apply(testContext(t), obj.GetName(), obj,
			metav1.ApplyOptions{FieldManager: "test", Force: true}); err != nil {
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

// passTest is a gateway with two clusters and a user eve, who may create passes and use member1.
type passTest struct {
	*installation
	d        *server
	eve      dynamic.ResourceInterface
	warnings *warningRecorder
}

func newPassTest(t *testing.T) *passTest {
	t.Helper()
	h := newInstallation(t)
	d := h.gateway()
	root := d.dynamic(d.master())
	for _, name := range []string{"member1", "member2"} {
		doc := fmt.Sprintf(`{apiVersion: cluster.karmada.io/v1alpha1, kind: Cluster, metadata: {name: %s}}`, name)
		if _, err := root.Resource(clusterGVR).Create(testContext(t), object(t, doc), metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	d.grantRules(t, "eve", `[`+makesPasses+
		`, {apiGroups: [cluster.karmada.io], resources: [clusters/proxy], resourceNames: [member1], verbs: ["*"]}]`)
	warnings := &warningRecorder{}
	cfg := d.config("eve", "dev")
	cfg.WarningHandler = warnings
	return &passTest{h, d, d.dynamic(cfg).Resource(passGVR), warnings}
}

func (p *passTest) create(name string) *unstructured.Unstructured {
	p.t.Helper()
	obj, err := p.eve.Create(testContext(p.t), object(p.t, passDoc(name, "ttl: 1h")), metav1.CreateOptions{})
	if err != nil {
		p.t.Fatal(err)
	}
	return obj
}

func (p *passTest) expectWarnings(times int) {
	p.t.Helper()
	if len(p.warnings.texts) != times || slices.ContainsFunc(p.warnings.texts, func(text string) bool {
		return !strings.Contains(text, "the credential is shown only in this response")
	}) {
		p.t.Errorf("warned of %q", p.warnings.texts)
	}
	p.warnings.texts = nil
}

func (p *passTest) expectRevoked(holder *rest.Config, path string) {
	p.t.Helper()
	code, answer := p.d.call(holder, "GET", path, "", "")
	if code != http.StatusUnauthorized || !strings.Contains(answer, "was revoked") {
		p.t.Errorf("deleted: %d %s", code, answer)
	}
}

func TestPasses(t *testing.T) {
	p := newPassTest(t)
	obj, err := p.eve.Create(testContext(t), object(t, passDoc("laptop", "ttl: 1h")),
		metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}})
	if err != nil {
		t.Fatal(err)
	}
	if text, _, _ := unstructured.NestedString(obj.Object, "status", "kubeconfig"); text != "" ||
		len(p.storedSecrets()) != 0 {
		t.Errorf("a dry run makes a credential, or a key: %d secrets", len(p.storedSecrets()))
	}
	p.expectWarnings(0)
	obj = p.create("laptop")
	p.expectWarnings(1)
	if _, err := p.eve.Create(testContext(t), object(t, passDoc("laptop", "ttl: 1h")),
		metav1.CreateOptions{}); !apierrors.IsAlreadyExists(err) {
		t.Errorf("twice: %v", err)
	}
	p.expectWarnings(0)
	kc := kubeconfigOf(t, obj)
	contexts := []string{"clusterpass", "fleet", "fleet@", "member1"}
	if got := slices.Sorted(maps.Keys(kc.Contexts)); !slices.Equal(got, contexts) ||
		kc.CurrentContext != "member1" {
		t.Errorf("contexts %v, of them %s now", got, kc.CurrentContext)
	}
	createdBy, _, _ := unstructured.NestedStringMap(obj.Object, "status", "createdBy")
	if !maps.Equal(createdBy, map[string]string{"user": "eve"}) {
		t.Errorf("created by %v", createdBy)
	}
	if got := kc.Clusters["fleet"].Server; got != gatewayURL+"/fleet" {
		t.Errorf("the fleet is at %s", got)
	}
	spec, _, _ := unstructured.NestedMap(obj.Object, "spec")
	if spec["user"] != "eve" || fmt.Sprint(spec["groups"]) != "[dev]" || spec["form"] != "token" {
		t.Errorf("completed to %v", spec)
	}
}

func TestPassIsShownOnce(t *testing.T) {
	p := newPassTest(t)
	ctx := testContext(t)
	token := kubeconfigOf(t, p.create("laptop")).AuthInfos["clusterpass"].Token
	stored, err := p.Objects.Get(ctx, "passes/laptop")
	if err != nil {
		t.Fatal(err)
	}
	list, err := p.eve.List(ctx, metav1.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}
	labelled, err := p.eve.Patch(ctx, "laptop", types.MergePatchType, []byte(`{"metadata":{"labels":{"a":"b"}}}`),
		metav1.PatchOptions{})
	if err != nil {
		t.Fatal(err)
	}
	listed, _ := json.Marshal([]any{list, labelled})
	for where, text := range map[string]string{"the store": string(stored.Value), "later answers": string(listed),
		"the log": p.log.String()} {
		if strings.Contains(text, token) || strings.Contains(text, "certificate-authority") ||
			strings.Contains(text, `"kubeconfig"`) {
			t.Errorf("%s has the credential", where)
		}
	}
	_, table := p.d.call(p.d.config("eve"), "GET", passPath, "application/json", "")
	if strings.Contains(table, token) {
		t.Error("the list has the credential")
	}

	obj := p.create("saved")
	token = kubeconfigOf(t, obj).AuthInfos["clusterpass"].Token
	answer, _ := json.Marshal(obj)
	annotation, _ := json.Marshal(map[string]any{"metadata": map[string]any{"annotations": map[string]any{
		"kubectl.kubernetes.io/last-applied-configuration": string(answer)}}})
	if _, err := p.eve.Patch(ctx, "saved", types.MergePatchType, annotation, metav1.PatchOptions{}); err != nil {
		t.Fatal(err)
	}
	if stored, err = p.Objects.Get(ctx, "passes/saved"); err != nil || strings.Contains(string(stored.Value), token) ||
		!strings.Contains(string(stored.Value), "last-applied") {
		t.Errorf("the store has %s, %v", stored.Value, err)
	}
}

func TestPassScope(t *testing.T) {
	p := newPassTest(t)
	ctx := testContext(t)
	holder := p.d.passConfig(t, kubeconfigOf(t, p.create("laptop")))
	code, answer := p.d.call(holder, "GET", "/clusters/member1/version", "", "")
	if code != http.StatusBadGateway && code != http.StatusServiceUnavailable && code != http.StatusNotFound {
		t.Errorf("member1, which has no credential: %d %s", code, answer)
	}
	for path, method := range map[string]string{"/clusters/member2/version": "GET",
		"/clusters/member1/api/v1/namespaces": "POST", passPath: "GET"} {
		if code, answer := p.d.call(holder, method, path, "", ""); code != http.StatusForbidden {
			t.Errorf("%s %s: %d %s", method, path, code, answer)
		}
	}
	if _, err := p.eve.Patch(ctx, "laptop", types.MergePatchType, []byte(`{"spec":{"verbs":["*"]}}`),
		metav1.PatchOptions{}); !apierrors.IsInvalid(err) || !strings.Contains(err.Error(), "a pass does not change") {
		t.Errorf("more verbs: %v", err)
	}
	if err := p.eve.Delete(ctx, "laptop", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	p.expectRevoked(holder, "/clusters/member1/version")
}

// A finalizer may keep the object of a deleted pass, but not its credential.
func TestPassWithFinalizer(t *testing.T) {
	p := newPassTest(t)
	doc := strings.Replace(passDoc("held", "ttl: 1h"), "name: held", "name: held, finalizers: [example.com/hold]", 1)
	obj, err := p.eve.Create(testContext(t), object(t, doc), metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	holder := p.d.passConfig(t, kubeconfigOf(t, obj))
	if code, answer := p.d.call(holder, "GET", "/clusters/member2/version", "", ""); code != http.StatusForbidden {
		t.Errorf("before: %d %s", code, answer)
	}
	if err := p.eve.Delete(testContext(t), "held", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	p.expectRevoked(holder, "/clusters/member2/version")
}

// Server-side apply must return the credential once.
func TestAppliedPass(t *testing.T) {
	p := newPassTest(t)
	apply := func() (*unstructured.Unstructured, error) {
		return p.eve.Apply(testContext(t), "applied", object(t, passDoc("applied", "ttl: 1h")),
			metav1.ApplyOptions{FieldManager: "eve"})
	}
	applied, err := apply()
	if err != nil {
		t.Fatal(err)
	}
	holder := p.d.passConfig(t, kubeconfigOf(t, applied))
	if code, answer := p.d.call(holder, "GET", "/clusters/member2/version", "", ""); code != http.StatusForbidden {
		t.Errorf("applied: %d %s", code, answer)
	}
	again, err := apply()
	if err != nil {
		t.Fatal(err)
	}
	if text, _, _ := unstructured.NestedString(again.Object, "status", "kubeconfig"); text != "" {
		t.Error("applied once more: a credential")
	}
	p.expectWarnings(1) // by the first apply
}

// No user may give rights away with a pass that they lack.
func TestPassPower(t *testing.T) {
	h := newInstallation(t)
	d := h.gateway()
	ctx := testContext(t)
	client := func(user string, groups ...string) dynamic.ResourceInterface {
		return d.dynamic(d.config(user, groups...)).Resource(passGVR)
	}
	d.grantRules(t, "eve", `[`+makesPasses+`]`)
	d.grantRules(t, "boss",
		`[`+makesPasses+`, {apiGroups: [""], resources: [users], resourceNames: [bob], verbs: [impersonate]},
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
		_, err := tt.by.Create(ctx, object(t, strings.Replace(passDoc("x", tt.fields), "name: x", "generateName: x-", 1)),
			metav1.CreateOptions{})
		if tt.want == "" && err != nil || tt.want != "" &&
			(!apierrors.IsForbidden(err) || !strings.Contains(err.Error(), tt.want)) {
			t.Errorf("%s: %v, want %q", tt.fields, err, tt.want)
		}
	}
	if _, err := client("eve").Apply(ctx, "applied", object(t, passDoc("applied", "user: bob")),
		metav1.ApplyOptions{FieldManager: "eve"}); !apierrors.IsForbidden(err) {
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
		if _, err := client("eve").Create(ctx, object(t, strings.Replace(passDoc("x", ""), "verbs: [get], ", fields, 1)),
			metav1.CreateOptions{}); !apierrors.IsInvalid(err) || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %s", fields, err, want)
		}
	}

	// A pass without limits has all rights of eve except creating passes. Otherwise revoking it would be of no use.
	if err := passes.StoreCA(ctx, h.Secrets, h.CA); err != nil {
		t.Fatal(err)
	}
	for _, form := range []string{"token", "certificate"} {
		obj, err := client("eve").Create(ctx, object(t, fmt.Sprintf(
			`{apiVersion: clusterpass.io/v1alpha1, kind: Pass, metadata: {name: all-%s},
spec: {clusters: ["*"], verbs: ["*"], form: %s}}`, form, form)), metav1.CreateOptions{})
		if err != nil {
			t.Fatal(err)
		}
		holder := d.dynamic(d.passConfig(t, kubeconfigOf(t, obj))).Resource(passGVR)
		if _, err := holder.List(ctx, metav1.ListOptions{}); err != nil {
			t.Errorf("%s: %v", form, err)
		}
		if _, err := holder.Create(ctx, object(t, passDoc("child-"+form, "")),
			metav1.CreateOptions{}); !apierrors.IsForbidden(err) ||
			!strings.Contains(err.Error(), "a pass cannot create another pass") {
			t.Errorf("%s: %v", form, err)
		}
	}
}

// An auditor must find the real creator of a pass in its status, and the pass's name in the audit log.
func TestPassIsOnRecord(t *testing.T) {
	h := newInstallation(t)
	d := h.gateway()
	ctx := testContext(t)
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
	created, err := bob.Create(ctx, doc, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	name := created.GetName()
	if by(created) != want || !strings.HasPrefix(name, "for-carol-") || len(name) < len("for-carol-")+3 {
		t.Errorf("%s is created by %s", name, by(created))
	}
	patched, err := bob.Patch(ctx, name, types.MergePatchType,
		[]byte(`{"status":{"createdBy":{"user":"mallory"}},"metadata":{"labels":{"a":"b"}}}`), metav1.PatchOptions{})
	if err != nil || by(patched) != want {
		t.Errorf("patched: created by %s, %v", by(patched), err)
	}
	doc = object(t, passDoc("applied", "user: carol"))
	doc.Object["status"] = map[string]any{"createdBy": claim}
	applied, err := bob.Apply(ctx, "applied", doc, metav1.ApplyOptions{FieldManager: "test"})
	if err != nil || by(applied) != want {
		t.Errorf("applied: created by %s, %v", by(applied), err)
	}
	if _, err := bob.Create(ctx, object(t, passDoc("twice", "ttl: 1s")),
		metav1.CreateOptions{}); !apierrors.IsInvalid(err) {
		t.Error(err)
	}

	d.Close() // audit events of all responses are written by then
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

func TestPassLimits(t *testing.T) {
	d := newInstallation(t).gatewayWith(func(c *control.Config) { c.MaxPassTTL = 2 * time.Hour })
	ctx := testContext(t)
	root := d.dynamic(d.master()).Resource(passGVR)
	const want = `spec.ttl: Invalid value: "2h0m1s": want 1m0s to 2h0m0s, the longest that this gateway allows for a token`
	if _, err := root.Create(ctx, object(t, passDoc("long", "user: ann, ttl: 2h0m1s")),
		metav1.CreateOptions{}); !apierrors.IsInvalid(err) || !strings.Contains(err.Error(), want) {
		t.Errorf("%v, want %s", err, want)
	}
	for fields, want := range map[string]string{"user: ann": "2h0m0s", "user: ann, ttl: 2h": "2h0m0s",
		"user: ann, ttl: 30m": "30m0s"} {
		obj, err := root.Create(ctx, object(t, strings.Replace(passDoc("x", fields), "name: x", "generateName: x-", 1)),
			metav1.CreateOptions{})
		if err != nil {
			t.Fatal(err)
		}
		if ttl, _, _ := unstructured.NestedString(obj.Object, "spec", "ttl"); ttl != want {
			t.Errorf("%s: ttl %s", fields, ttl)
		}
	}
}

type warningRecorder struct{ texts []string }

func (w *warningRecorder) HandleWarningHeader(_ int, _, text string) { w.texts = append(w.texts, text) }

// A response that is too large for a function would lose the credential.
func TestPassOfManyClusters(t *testing.T) {
	d := newInstallation(t).gateway()
	var names []string
	for i := range 2000 {
		names = append(names, fmt.Sprintf("cluster-%04d", i))
	}
	var warnings warningRecorder
	cfg := d.master()
	cfg.WarningHandler = &warnings
	doc := strings.Replace(passDoc("many", "user: ann"), `["*"]`, "["+strings.Join(names, ",")+"]", 1)
	obj, err := d.dynamic(cfg).Resource(passGVR).Create(testContext(t), object(t, doc), metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	answer, err := json.Marshal(obj)
	if err != nil || len(answer) > 1_000_000 {
		t.Errorf("an answer of %d bytes, %v", len(answer), err)
	}
	n := len(kubeconfigOf(t, obj).Contexts)
	if n < 100 || !slices.ContainsFunc(warnings.texts, func(text string) bool {
		return strings.Contains(text, fmt.Sprintf("contexts for %d of the clusters", n-len(passkubeconfig.Common())))
	}) {
		t.Errorf("%d contexts, and warned of %q", n, warnings.texts)
	}
}
