package control_test

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"

	"github.com/clusterpass/clusterpass/shared/api/cluster/v1alpha1"
	"github.com/clusterpass/clusterpass/shared/clustertest"
	"github.com/clusterpass/clusterpass/shared/control"
	"github.com/clusterpass/clusterpass/shared/health"
	"github.com/clusterpass/clusterpass/shared/status"
)

const pods = `{apiVersion: search.karmada.io/v1alpha1, kind: ResourceRegistry, metadata: {name: %s, labels: {of: %s}},
spec: {targetCluster: {}, resourceSelectors: [{apiVersion: v1, kind: Pod}]}}`

// TestNoUpdateIsLost holds: of writers through two gateways on one store, each either changes what it has seen, or is told to look again.
func TestNoUpdateIsLost(t *testing.T) {
	if testing.Short() {
		t.Skip("slow: make test runs it")
	}
	h := newInstallation(t)
	one, two := h.gateway(), h.gateway()
	ctx := within(t)
	if _, err := one.dynamic(one.master()).Resource(registryGVR).Create(ctx, object(t, fmt.Sprintf(pods, "counter", "x")), metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	const writers, writes = 4, 15
	var conflicts atomic.Int64
	var wg sync.WaitGroup
	for i := range writers {
		d := []*server{one, two}[i%2]
		client := d.dynamic(d.master()).Resource(registryGVR)
		wg.Go(func() {
			for done := 0; done < writes; {
				obj, err := client.Get(ctx, "counter", metav1.GetOptions{})
				if err != nil {
					t.Error(err)
					return
				}
				n, _ := strconv.Atoi(obj.GetAnnotations()["n"])
				obj.SetAnnotations(map[string]string{"n": strconv.Itoa(n + 1)})
				if _, err = client.Update(ctx, obj, metav1.UpdateOptions{}); err == nil {
					done++
				} else if apierrors.IsConflict(err) {
					conflicts.Add(1)
				} else {
					t.Error(err)
					return
				}
			}
		})
	}
	wg.Wait()
	obj, err := two.dynamic(two.master()).Resource(registryGVR).Get(ctx, "counter", metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if n := obj.GetAnnotations()["n"]; n != strconv.Itoa(writers*writes) {
		t.Errorf("%s of %d writes are left", n, writers*writes)
	}
	t.Logf("%d conflicts", conflicts.Load())
}

// TestPatchesUnite holds: patches of many writers at once are all there in the end.
func TestPatchesUnite(t *testing.T) {
	h := newInstallation(t)
	one, two := h.gateway(), h.gateway()
	ctx := within(t)
	if _, err := one.dynamic(one.master()).Resource(registryGVR).Create(ctx, object(t, fmt.Sprintf(pods, "all", "x")), metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	const writers, writes = 4, 10
	var wg sync.WaitGroup
	for i := range writers {
		d := []*server{one, two}[i%2]
		client := d.dynamic(d.master()).Resource(registryGVR)
		wg.Go(func() {
			for n := range writes {
				patch := fmt.Appendf(nil, `{"metadata":{"annotations":{"w%d-%d":"x"}}}`, i, n)
				for {
					_, err := client.Patch(ctx, "all", types.MergePatchType, patch, metav1.PatchOptions{})
					if err == nil {
						break
					} else if !apierrors.IsConflict(err) { // the API server itself tries five times
						t.Error(err)
						return
					}
				}
			}
		})
	}
	wg.Wait()
	obj, err := two.dynamic(two.master()).Resource(registryGVR).Get(ctx, "all", metav1.GetOptions{})
	if err != nil || len(obj.GetAnnotations()) != writers*writes {
		t.Errorf("%d of %d patches are left, %v", len(obj.GetAnnotations()), writers*writes, err)
	}
}

// next is the next event of w that is no bookmark.
func next(t *testing.T, w watch.Interface) watch.Event {
	t.Helper()
	for {
		select {
		case e, ok := <-w.ResultChan():
			if !ok {
				t.Fatal("the watch has ended")
			}
			if e.Type != watch.Bookmark {
				return e
			}
		case <-within(t).Done():
			t.Fatal("no event")
		}
	}
}

func TestWatch(t *testing.T) {
	h := newInstallation(t)
	d, other := h.gateway(), h.gateway()
	ctx := within(t)
	client := d.dynamic(d.master()).Resource(registryGVR)
	far := other.dynamic(other.master()).Resource(registryGVR) // a write through one gateway is seen through another
	list, err := client.List(ctx, metav1.ListOptions{})
	if err != nil || len(list.Items) != 0 {
		t.Fatalf("%+v, %v", list, err)
	}
	all, err := client.Watch(ctx, metav1.ListOptions{ResourceVersion: list.GetResourceVersion()})
	if err != nil {
		t.Fatal(err)
	}
	defer all.Stop()
	some, err := client.Watch(ctx, metav1.ListOptions{LabelSelector: "of=blue"})
	if err != nil {
		t.Fatal(err)
	}
	defer some.Stop()
	made, err := far.Create(ctx, object(t, fmt.Sprintf(pods, "a", "blue")), metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if e := next(t, all); e.Type != watch.Added || e.Object.(metav1.Object).GetResourceVersion() != made.GetResourceVersion() {
		t.Errorf("%+v", e)
	}
	if e := next(t, some); e.Type != watch.Added {
		t.Errorf("%+v", e)
	}
	// What leaves the selection is deleted to who selects, and changed to others.
	red, err := far.Patch(ctx, "a", types.MergePatchType, []byte(`{"metadata":{"labels":{"of":"red"}}}`), metav1.PatchOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if e := next(t, all); e.Type != watch.Modified || e.Object.(metav1.Object).GetLabels()["of"] != "red" {
		t.Errorf("%+v", e)
	}
	if e := next(t, some); e.Type != watch.Deleted || e.Object.(metav1.Object).GetResourceVersion() != red.GetResourceVersion() {
		t.Errorf("%+v", e)
	}
	if err := far.Delete(ctx, "a", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	if e := next(t, all); e.Type != watch.Deleted {
		t.Errorf("%+v", e)
	}
	// From a version on, nothing is missed and nothing comes twice.
	since, err := client.Watch(ctx, metav1.ListOptions{ResourceVersion: made.GetResourceVersion()})
	if err != nil {
		t.Fatal(err)
	}
	defer since.Stop()
	if a, b := next(t, since), next(t, since); a.Type != watch.Modified || b.Type != watch.Deleted {
		t.Errorf("%+v, %+v", a, b)
	}
	// A version of another store, or one that is forgotten, is 410: list anew.
	gone, err := client.Watch(ctx, metav1.ListOptions{ResourceVersion: "999999"})
	if err != nil {
		t.Fatal(err)
	}
	defer gone.Stop()
	if e := next(t, gone); e.Type != watch.Error || !apierrors.IsResourceExpired(apierrors.FromObject(e.Object)) {
		t.Errorf("%+v", e)
	}
}

// TestWatchList holds: a watch that begins with what there is says when it has given it all.
func TestWatchList(t *testing.T) {
	d := newInstallation(t).gateway()
	ctx := within(t)
	client := d.dynamic(d.master()).Resource(registryGVR)
	var last string // resourceVersion of the newest object
	for _, name := range []string{"a", "b"} {
		made, err := client.Create(ctx, object(t, fmt.Sprintf(pods, name, "x")), metav1.CreateOptions{})
		if err != nil {
			t.Fatal(err)
		}
		last = made.GetResourceVersion()
	}
	yes := true
	w, err := client.Watch(ctx, metav1.ListOptions{SendInitialEvents: &yes, AllowWatchBookmarks: true, ResourceVersionMatch: metav1.ResourceVersionMatchNotOlderThan})
	if err != nil {
		t.Fatal(err)
	}
	defer w.Stop()
	for _, want := range []string{"a", "b", ""} {
		select {
		case e := <-w.ResultChan():
			got := e.Object.(metav1.Object)
			if got.GetName() != want {
				t.Errorf("%s %s, want %q", e.Type, got.GetName(), want)
			}
			if want == "" && (e.Type != watch.Bookmark || got.GetAnnotations()[metav1.InitialEventsAnnotationKey] != "true" || got.GetResourceVersion() != last) {
				t.Errorf("%+v", e)
			}
		case <-ctx.Done():
			t.Fatal("no event")
		}
	}
}

func TestPages(t *testing.T) {
	d := newInstallation(t).gateway()
	ctx := within(t)
	client := d.dynamic(d.master()).Resource(registryGVR)
	for i := range 7 {
		if _, err := client.Create(ctx, object(t, fmt.Sprintf(pods, fmt.Sprint("r", i), []string{"even", "odd"}[i%2])), metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	for selector, want := range map[string]string{"": "r0,r1,r2,r3,r4,r5,r6", "of=odd": "r1,r3,r5", "of=none": ""} {
		var names []string
		opts := metav1.ListOptions{Limit: 2, LabelSelector: selector}
		for {
			page, err := client.List(ctx, opts)
			if err != nil {
				t.Fatal(err)
			}
			if len(page.Items) > 2 {
				t.Errorf("a page of %d", len(page.Items))
			}
			for _, item := range page.Items {
				names = append(names, item.GetName())
			}
			if opts.Continue = page.GetContinue(); opts.Continue == "" {
				break
			}
		}
		if got := strings.Join(names, ","); got != want {
			t.Errorf("%q: %s, want %s", selector, got, want)
		}
	}
	if _, err := client.List(ctx, metav1.ListOptions{Continue: "nonsense"}); !apierrors.IsBadRequest(err) {
		t.Errorf("a foreign continue token: %v", err)
	}
	if _, err := client.List(ctx, metav1.ListOptions{ResourceVersion: "3", ResourceVersionMatch: metav1.ResourceVersionMatchExact}); !apierrors.IsResourceExpired(err) {
		t.Errorf("an older state: %v", err)
	}
	one, err := client.List(ctx, metav1.ListOptions{FieldSelector: "metadata.name=r3"})
	if err != nil || len(one.Items) != 1 || one.Items[0].GetName() != "r3" {
		t.Errorf("by name: %+v, %v", one, err)
	}
}

// TestCredentials follows the credential of a cluster through its writes.
func TestCredentials(t *testing.T) {
	h := newInstallation(t)
	d := h.gateway()
	ctx := within(t)
	client := d.dynamic(d.master()).Resource(clusterGVR)
	const first, second = "first-credential-of-the-member-0123456789", "second-credential-of-the-member-0123456789"
	write := func(method, path, contentType, body string) (int, string) {
		t.Helper()
		code, answer := d.call(d.master(), method, path, contentType, body)
		for _, token := range []string{first, second} {
			if strings.Contains(answer, token) {
				t.Errorf("%s %s answers with a credential: %s", method, path, answer)
			}
		}
		return code, answer
	}
	doc := func(spec map[string]any) string {
		out, err := json.Marshal(map[string]any{"apiVersion": "cluster.karmada.io/v1alpha1", "kind": "Cluster", "metadata": map[string]any{
			"name": "m", "annotations": map[string]any{
				"kubectl.kubernetes.io/last-applied-configuration": fmt.Sprintf(`{"spec":{"region":"eu","kubeconfig":%q}}`, spec["kubeconfig"]),
			}}, "spec": spec})
		if err != nil {
			t.Fatal(err)
		}
		return string(out)
	}
	only := func(token string) string {
		t.Helper()
		all := h.stored()
		for name, value := range all {
			if len(all) == 1 && strings.Contains(value, token) {
				return name
			}
		}
		t.Fatalf("%d secrets, want one with %q", len(all), token)
		return ""
	}

	// Nothing is kept of a write that is refused, or only tried.
	for path, body := range map[string]string{
		clusters + "?dryRun=All": doc(map[string]any{"kubeconfig": kubeconfig("https://one.example:6443", first)}),
		clusters:                 doc(map[string]any{"kubeconfig": kubeconfig("https://one.example:6443", first), "syncMode": "Sideways"}),
		clusters + "?x":          doc(map[string]any{"kubeconfig": "token: " + first + "\n: ]"}),
		clusters + "?y":          doc(map[string]any{"kubeconfig": kubeconfig("http://one.example:6443", first)}),
	} {
		code, answer := write("POST", path, "application/json", body)
		if want := map[bool]int{true: 201, false: 422}[strings.Contains(path, "dryRun")]; code != want {
			t.Errorf("%s: %d %s", path, code, answer)
		}
		if all := h.stored(); len(all) != 0 {
			t.Errorf("%s keeps %d secrets", path, len(all))
		}
	}

	code, answer := write("POST", clusters, "application/json", doc(map[string]any{"kubeconfig": kubeconfig("https://one.example:6443", first)}))
	if code != http.StatusCreated {
		t.Fatal(answer)
	}
	kept := only(first)
	obj, err := client.Get(ctx, "m", metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	var c v1alpha1.Cluster
	raw, err := h.Objects.Get(ctx, "clusters/m")
	if err != nil || strings.Contains(string(raw.Value), first) || json.Unmarshal(raw.Value, &c) != nil {
		t.Fatalf("stored %s, %v", raw.Value, err)
	}
	if c.SecretName() != kept || c.Spec.APIEndpoint != "https://one.example:6443" || c.UID == "" || c.CreationTimestamp.IsZero() {
		t.Errorf("stored %s", raw.Value)
	}
	if last := obj.GetAnnotations()["kubectl.kubernetes.io/last-applied-configuration"]; last != `{"spec":{"region":"eu"}}`+"\n" {
		t.Errorf("apply remembers %q", last)
	}

	// Another of that name changes nothing, its credential is not kept.
	if code, answer = write("POST", clusters, "application/json", doc(map[string]any{"kubeconfig": kubeconfig("https://two.example:6443", second)})); code != http.StatusConflict {
		t.Errorf("%d %s", code, answer)
	}
	only(first)

	// What sends the credential elsewhere, or gives its power away, needs it again.
	for _, patch := range []string{
		`{"spec":{"apiEndpoint":"https://two.example:6443"}}`,
		`{"spec":{"proxyURL":"http://two.example:3128"}}`,
		`{"spec":{"insecureSkipTLSVerification":true}}`,
		`{"spec":{"secretRef":{"name":"clusters/m.other"}}}`,
		`{"spec":{"impersonatorSecretRef":{"name":"clusters/m.other"}}}`,
		`{"spec":{"identity":"direct","directUsers":["eve"]}}`,
	} {
		for _, dry := range []string{"", "?dryRun=All"} {
			code, answer := write("PATCH", clusters+"/m"+dry, "application/merge-patch+json", patch)
			if code != http.StatusUnprocessableEntity || !strings.Contains(answer, "needs the credential again") {
				t.Errorf("%s: %d %s", patch, code, answer)
			}
		}
	}
	if code, answer = write("PATCH", clusters+"/m", "application/merge-patch+json", `{"spec":{"secretRef":{"name":"clusters/other"}}}`); code != http.StatusUnprocessableEntity {
		t.Errorf("another's secret: %d %s", code, answer)
	}
	if code, answer = write("PATCH", clusters+"/m", "application/merge-patch+json", `{"spec":{"region":"eu"}}`); code != http.StatusOK {
		t.Errorf("a region: %d %s", code, answer)
	}

	// With it, it goes along; and the one before is deleted.
	patch, err := json.Marshal(map[string]any{"spec": map[string]any{"proxyURL": "http://proxy.example:3128", "kubeconfig": kubeconfig("https://two.example:6443", second)}})
	if err != nil {
		t.Fatal(err)
	}
	if code, answer = write("PATCH", clusters+"/m", "application/merge-patch+json", string(patch)); code != http.StatusOK || !strings.Contains(answer, "https://two.example:6443") {
		t.Fatalf("%d %s", code, answer)
	}
	now := only(second)
	if now == kept {
		t.Error("another credential has the name of the one before")
	}
	// The same once more is no change.
	for _, contentType := range []string{"application/merge-patch+json", "application/strategic-merge-patch+json"} {
		if code, answer = write("PATCH", clusters+"/m", contentType, string(patch)); code != http.StatusOK || only(second) != now {
			t.Errorf("%d %s", code, answer)
		}
	}
	apply := doc(map[string]any{"kubeconfig": kubeconfig("https://two.example:6443", first), "proxyURL": "http://proxy.example:3128"})
	if code, answer = write("PATCH", clusters+"/m?fieldManager=me&force=true", "application/apply-patch+yaml", apply); code != http.StatusOK {
		t.Errorf("%d %s", code, answer)
	}
	only(first)

	if err := client.Delete(ctx, "m", metav1.DeleteOptions{DryRun: []string{metav1.DryRunAll}}); err != nil {
		t.Fatal(err)
	}
	only(first)
	if err := client.Delete(ctx, "m", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	if all := h.stored(); len(all) != 0 {
		t.Errorf("%d secrets are left", len(all))
	}
	// A name that is generated is the secret's, too.
	unnamed := strings.Replace(doc(map[string]any{"kubeconfig": kubeconfig("https://one.example:6443", first)}), `"name":"m"`, `"generateName":"m-"`, 1)
	if code, answer = write("POST", clusters, "application/json", unnamed); code != http.StatusCreated || !strings.HasPrefix(only(first), "clusters/m-") {
		t.Errorf("%d %s", code, answer)
	}
	// Without an object there is nothing that a proxy, or somebody, could be given for a secret that is stored later or still cached.
	for _, spec := range []map[string]any{
		{"proxyURL": "http://two.example:3128"}, {"identity": "direct"}, {"directUsers": []string{"eve"}},
		{"identity": "direct", "directUsers": []string{"eve"}, "secretRef": map[string]any{"name": kept}},
	} {
		if code, answer = write("POST", clusters, "application/json", doc(spec)); code != http.StatusUnprocessableEntity || !strings.Contains(answer, "needs the credential again") {
			t.Errorf("%v: %d %s", spec, code, answer)
		}
	}
	for _, token := range []string{first, second} {
		if strings.Contains(h.log.String(), token) {
			t.Error("the log has a credential")
		}
	}
}

// TestCredentialsAtOnce holds: of writes that come together, and beside a deletion, no secret is left over.
func TestCredentialsAtOnce(t *testing.T) {
	h := newInstallation(t)
	d := h.gateway()
	doc := func(token string) string {
		return fmt.Sprintf(`{"apiVersion":"cluster.karmada.io/v1alpha1","kind":"Cluster","metadata":{"name":"m"},"spec":{"kubeconfig":%q}}`, kubeconfig("https://one.example:6443", token))
	}
	for round := range 5 {
		if code, answer := d.call(d.master(), "POST", clusters, "application/json", doc("first")); code != http.StatusCreated {
			t.Fatal(answer)
		}
		var writes sync.WaitGroup
		for i := range 6 {
			writes.Go(func() {
				token := fmt.Sprintf("token-%d", round)
				if i == 0 {
					token = "another"
				}
				code, answer := d.call(d.master(), "PATCH", clusters+"/m", "application/merge-patch+json", doc(token))
				if code != http.StatusOK && code != http.StatusConflict {
					t.Errorf("%d %s", code, answer)
				}
			})
		}
		writes.Wait()
		if all := h.stored(); len(all) != 1 {
			t.Errorf("round %d: %d secrets of one cluster", round, len(all))
		}
		writes.Go(func() { d.call(d.master(), "PATCH", clusters+"/m", "application/merge-patch+json", doc("late")) })
		writes.Go(func() { d.call(d.master(), "DELETE", clusters+"/m", "", "") })
		writes.Wait()
		if code, _ := d.call(d.master(), "GET", clusters+"/m", "", ""); code != http.StatusNotFound || len(h.stored()) != 0 {
			t.Errorf("round %d: deleted, and %d with %d secrets", round, code, len(h.stored()))
		}
	}
}

// TestServiceProxyForms holds: nobody believes to have allowed something by an entry that can never match.
func TestServiceProxyForms(t *testing.T) {
	d := newInstallation(t).gateway()
	client := d.dynamic(d.master()).Resource(clusterGVR)
	create := func(entry string) error {
		_, err := client.Create(within(t), object(t, fmt.Sprintf(
			`{apiVersion: cluster.karmada.io/v1alpha1, kind: Cluster, metadata: {name: m}, spec: {syncMode: Push, serviceProxy: [%q]}}`, entry)),
			metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}})
		return err
	}
	for _, entry := range []string{
		"services/shop/web", "services/shop/api:8080", "services/shop/api:http", "pods/*/p", "pods/a/*:80", "nodes/n1.example.com", "nodes/*", "*/*/*", "*/n1",
	} {
		if err := create(entry); err != nil {
			t.Errorf("%s: %v", entry, err)
		}
	}
	for _, entry := range []string{
		"", "*", "service/shop/web", "services/web", "services/shop/web/", "/services/shop/web", "services//web", "services/shop/", "services/shop/web:",
		"services/shop/https:web:443", "services/shop/We b", "nodes/a/n1", "deployments/shop/web", "services/*web/web",
	} {
		if err := create(entry); !apierrors.IsInvalid(err) || !strings.Contains(err.Error(), "spec.serviceProxy[0]") {
			t.Errorf("%q: %v", entry, err)
		}
	}
}

// TestRights holds: the API is authorized as Kubernetes', and nobody gives away what they do not hold.
func TestRights(t *testing.T) {
	d := newInstallation(t).gateway()
	ctx := within(t)
	root, eve := d.dynamic(d.master()), d.dynamic(d.config("eve"))
	apply := func(doc string) {
		t.Helper()
		obj := object(t, doc)
		gvr := roleGVR
		if obj.GetKind() == "ClusterRoleBinding" {
			gvr = bindingGVR
		}
		if _, err := root.Resource(gvr).Apply(ctx, obj.GetName(), obj, metav1.ApplyOptions{FieldManager: "test", Force: true}); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := eve.Resource(clusterGVR).List(ctx, metav1.ListOptions{}); !apierrors.IsForbidden(err) || !strings.Contains(err.Error(), `User "eve" cannot list resource "clusters" in API group "cluster.karmada.io"`) {
		t.Errorf("without a role: %v", err)
	}
	for _, path := range []string{"/api", "/apis", "/apis/cluster.karmada.io/v1alpha1", "/openapi/v2", "/openapi/v3", "/version", "/readyz"} {
		if code, answer := d.call(d.config("eve"), "GET", path, "", ""); code != http.StatusOK {
			t.Errorf("%s: %d %s", path, code, answer)
		}
	}
	apply(`{apiVersion: rbac.authorization.k8s.io/v1, kind: ClusterRole, metadata: {name: role-writer}, rules: [
{apiGroups: [rbac.authorization.k8s.io], resources: [clusterroles, clusterrolebindings], verbs: [create, update, patch, get]},
{apiGroups: [cluster.karmada.io], resources: [clusters/proxy], resourceNames: [member1], verbs: [get]}]}`)
	apply(`{apiVersion: rbac.authorization.k8s.io/v1, kind: ClusterRoleBinding, metadata: {name: role-writer},
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: role-writer}, subjects: [{kind: User, name: eve}]}`)
	role := func(name, cluster, verb string) string {
		return fmt.Sprintf(`{apiVersion: rbac.authorization.k8s.io/v1, kind: ClusterRole, metadata: {name: %s}, rules: [
{apiGroups: [cluster.karmada.io], resources: [clusters/proxy], resourceNames: [%s], verbs: [%s]}]}`, name, cluster, verb)
	}
	bind := func(name string) string {
		return fmt.Sprintf(`{apiVersion: rbac.authorization.k8s.io/v1, kind: ClusterRoleBinding, metadata: {name: b-%s},
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: %s}, subjects: [{kind: User, name: mallory}]}`, name, name)
	}
	create := func(doc string) error {
		obj := object(t, doc)
		gvr := roleGVR
		if obj.GetKind() == "ClusterRoleBinding" {
			gvr = bindingGVR
		}
		_, err := eve.Resource(gvr).Create(ctx, obj, metav1.CreateOptions{})
		return err
	}
	// In force within seconds: until then, there is no right at all.
	for {
		err := create(role("mine", "member1", "get"))
		if err == nil {
			break
		} else if !apierrors.IsForbidden(err) || ctx.Err() != nil {
			t.Fatal(err)
		}
	}
	if err := create(bind("mine")); err != nil { // the role was made a moment ago
		t.Errorf("what eve holds herself: %v", err)
	}
	for _, doc := range []string{role("more", "member1", "create"), role("other", "member2", "get"), role("all", "member1", `"*"`)} {
		if err := create(doc); !apierrors.IsForbidden(err) || !strings.Contains(err.Error(), "attempting to grant RBAC permissions not currently held") {
			t.Errorf("%s: %v", doc, err)
		}
	}
	if _, err := eve.Resource(roleGVR).Patch(ctx, "mine", types.JSONPatchType, []byte(`[{"op":"replace","path":"/rules/0/verbs","value":["*"]}]`), metav1.PatchOptions{}); !apierrors.IsForbidden(err) {
		t.Errorf("a patch: %v", err)
	}
	if _, err := eve.Resource(roleGVR).Apply(ctx, "more", object(t, role("more", "member1", "create")), metav1.ApplyOptions{FieldManager: "eve"}); !apierrors.IsForbidden(err) {
		t.Errorf("an apply that creates: %v", err)
	}
	if _, err := eve.Resource(roleGVR).Patch(ctx, "mine", types.MergePatchType, []byte(`{"metadata":{"labels":{"a":"b"}}}`), metav1.PatchOptions{}); err != nil {
		t.Errorf("a label: %v", err)
	}
	apply(role("more", "member1", "create"))
	if err := create(bind("more")); !apierrors.IsForbidden(err) {
		t.Errorf("a role that eve does not hold: %v", err)
	}
	// A label may have another role take the rules in.
	if _, err := eve.Resource(roleGVR).Patch(ctx, "more", types.MergePatchType, []byte(`{"metadata":{"labels":{"aggregate":"yes"}}}`), metav1.PatchOptions{}); !apierrors.IsForbidden(err) {
		t.Errorf("a label on what eve does not hold: %v", err)
	}
	if err := create(bind("missing")); !apierrors.IsForbidden(err) {
		t.Errorf("a role that does not exist: %v", err)
	}
	apply(`{apiVersion: rbac.authorization.k8s.io/v1, kind: ClusterRole, metadata: {name: role-writer}, rules: [
{apiGroups: [rbac.authorization.k8s.io], resources: [clusterroles, clusterrolebindings], verbs: [create, update, patch, get, escalate]},
{apiGroups: [rbac.authorization.k8s.io], resources: [clusterroles], resourceNames: [more], verbs: [bind]}]}`)
	for {
		if err := create(role("escalated", "member9", "create")); err == nil {
			break
		} else if !apierrors.IsForbidden(err) || ctx.Err() != nil {
			t.Fatal(err)
		}
	}
	if err := create(bind("more")); err != nil {
		t.Errorf("with bind: %v", err)
	}
	if err := create(bind("escalated")); !apierrors.IsForbidden(err) {
		t.Errorf("bind on another role: %v", err)
	}
	// Roles are those by which the gateway decides.
	if err := root.Resource(bindingGVR).Delete(ctx, "role-writer", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	for create(role("late", "member1", "get")) == nil {
		if err := root.Resource(roleGVR).Delete(ctx, "late", metav1.DeleteOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := root.Resource(roleGVR).Create(ctx, object(t, `{apiVersion: rbac.authorization.k8s.io/v1, kind: ClusterRole, metadata: {name: bad}, rules: [{verbs: [get]}]}`), metav1.CreateOptions{}); !apierrors.IsInvalid(err) {
		t.Errorf("a rule of nothing: %v", err)
	}
}

// TestProbeOnGet: a function probes a cluster that is asked for by name, because no bridge may be running. Otherwise
// a caller would see an outdated condition.
func TestProbeOnGet(t *testing.T) {
	d := newInstallation(t).gatewayWith(func(c *control.Config) {
		c.Probe = (&health.Prober{Objects: c.Objects, Members: c.Members, Log: c.Log}).Probe
	})
	ctx := within(t)
	member := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_, _ = fmt.Fprint(w, `{"gitVersion":"v1.99.0"}`)
	}))
	defer member.Close()
	client := d.dynamic(d.master()).Resource(clusterGVR)
	for name, kc := range map[string]string{
		"alive": string(clustertest.ServerKubeconfig(member, `{"token":"token-of-alive"}`)),
		"dead":  kubeconfig("https://127.0.0.1:9", "token-of-dead"),
	} {
		obj := object(t, fmt.Sprintf(`{apiVersion: cluster.karmada.io/v1alpha1, kind: Cluster, metadata: {name: %s}, spec: {}}`, name))
		if err := unstructured.SetNestedField(obj.Object, kc, "spec", "kubeconfig"); err != nil {
			t.Fatal(err)
		}
		if _, err := client.Create(ctx, obj, metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	for name, want := range map[string]string{"alive": "True ClusterReady v1.99.0", "dead": "False unreachable "} {
		var c v1alpha1.Cluster
		var ready *metav1.Condition
		for again := true; again; again = ready != nil && (ready.Reason == string(status.Timeout) || ready.Reason == string(status.StoreUnavailable)) { // the machine stood still
			data, err := client.Get(ctx, name, metav1.GetOptions{})
			if err != nil {
				t.Fatal(err)
			}
			c = v1alpha1.Cluster{}
			if err := runtime.DefaultUnstructuredConverter.FromUnstructured(data.Object, &c); err != nil {
				t.Fatal(err)
			}
			ready = meta.FindStatusCondition(c.Status.Conditions, v1alpha1.Ready)
		}
		if ready == nil || string(ready.Status)+" "+ready.Reason+" "+c.Status.KubernetesVersion != want {
			t.Errorf("%s: %+v, want %s", name, c.Status, want)
		}
	}
}
