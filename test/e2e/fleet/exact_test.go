package fleet_test

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/clusterpass/clusterpass/shared/waittest"
	"github.com/clusterpass/clusterpass/test/e2e"
)

func callGateway(t *testing.T, method, path, contentType, body string) (int, string) {
	t.Helper()
	client, root := e2e.Caller(t)
	ctx, cancel := context.WithTimeout(t.Context(), e2e.Patience)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, method, root+path, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("Content-Type", contentType)
	resp, err := client.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = resp.Body.Close() }()
	text, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatalf("%s %s breaks off: %v", method, path, err)
	}
	return resp.StatusCode, string(text)
}

// clustersByName returns the clusters of a list's objects, by their names without @CLUSTER.
func clustersByName(t *testing.T, list string) map[string]string {
	t.Helper()
	var l unstructured.UnstructuredList
	if err := json.Unmarshal([]byte(list), &l); err != nil {
		t.Fatalf("%.300s: %v", list, err)
	}
	out := map[string]string{}
	for _, o := range l.Items {
		name, _, _ := strings.Cut(o.GetName(), "@")
		out[name] = o.GetAnnotations()[e2e.SourceAnnotation]
	}
	return out
}

// openWatch opens a watch of the fleet in the bridge. until reads events up to one of an object of that name.
func openWatch(t *testing.T, path string) (until func(name string)) {
	t.Helper()
	client, root := e2e.Caller(t)
	ctx, cancel := context.WithTimeout(t.Context(), 2*e2e.Patience)
	t.Cleanup(cancel)
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, root+e2e.BridgeFleetPrefix+path, nil)
	if err != nil {
		t.Fatal(err)
	}
	resp, err := client.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = resp.Body.Close() })
	lines := bufio.NewReader(resp.Body)
	return func(name string) {
		t.Helper()
		for {
			line, err := lines.ReadBytes('\n')
			var e struct {
				Type   string                    `json:"type"`
				Object unstructured.Unstructured `json:"object"`
			}
			if err == nil {
				err = json.Unmarshal(line, &e)
			}
			if err != nil || e.Type == "ERROR" {
				t.Fatalf("instead of %s: %.300s, %v", name, line, err)
			}
			if own, _, _ := strings.Cut(e.Object.GetName(), "@"); own == name {
				return
			}
		}
	}
}

const crdDepths = `{apiVersion: apiextensions.k8s.io/v1, kind: CustomResourceDefinition,
metadata: {name: depths.example.org}, spec: {group: example.org, scope: Namespaced,
names: {kind: Depth, plural: depths, singular: depth, listKind: Depths},
versions: [{name: v1, served: true, storage: true, additionalPrinterColumns: [%s],
schema: {openAPIV3Schema: {type: object, x-kubernetes-preserve-unknown-fields: true}}}]}}`

// TestFleetPassesWhatClustersStore: no stored object may break lists and watches of all clusters, or the response to
// its write.
func TestFleetPassesWhatClustersStore(t *testing.T) {
	fleet(t, "{apiVersion: v1, kind: ConfigMap}, {apiVersion: example.org/v1, kind: Depth}")
	columns := strings.Repeat("{name: Same, type: string, jsonPath: .metadata.name, description: "+strings.Repeat("d",
		5<<10)+"},", 70)
	for _, m := range e2e.Members {
		d := e2e.Direct(m)
		d.Apply(t, fmt.Sprintf(crdDepths, columns), "--server-side")
		t.Cleanup(func() { d.Run(t, "delete", "crd", "depths.example.org") })
		d.Must(t, "wait", "--for=condition=Established", "crd/depths.example.org", "--timeout=4m")
	}
	ns := e2e.NewNamespace(t, e2e.Members...)
	depths, maps := "/apis/example.org/v1/namespaces/"+ns+"/depths", "/api/v1/namespaces/"+ns+"/configmaps"
	depth := func(name, value string) string {
		return `{"apiVersion":"example.org/v1","kind":"Depth","metadata":{"name":"` + name + `"},"value":` + value + `}`
	}
	waittest.Until(t, "every cluster has the kind", func() bool {
		code, _ := callGateway(t, "GET", e2e.FleetPrefix+"/@"+depths+"?strict=true", "", "")
		return code == http.StatusOK
	})
	deep := openWatch(t, "/@"+depths+"?watch=1")
	owned := openWatch(t, "/@"+maps+"?watch=1")

	const levels = 600
	nested := strings.Repeat(`{"a":`, levels) + "1" + strings.Repeat("}", levels)
	var owners []string
	for i := range 1001 {
		owners = append(owners, fmt.Sprintf(`{"apiVersion":"v1","kind":"ConfigMap","name":"owner-%d",`+
			`"uid":"%08d-0000-4000-8000-000000000000"}`, i, i))
	}
	many := `{"apiVersion":"v1","kind":"ConfigMap","metadata":{"generateName":"owned-",` +
		`"finalizers":["example.org/stays"],"annotations":{"clusterpass.io/cluster":"member1"},"ownerReferences":[` +
		strings.Join(owners, ",") + `]}}`
	var madeName string
	for _, write := range []struct{ path, body string }{{depths, depth("deep@member1", nested)}, {depths,
		depth("shallow@member2", "1")}, {maps, many}} {
		code, body := callGateway(t, "POST", e2e.FleetPrefix+"/@"+write.path, "application/json", write.body)
		var made unstructured.Unstructured
		if err := json.Unmarshal([]byte(body), &made); err != nil || code != http.StatusCreated ||
			made.GetAnnotations()[e2e.SourceAnnotation] == "" {
			t.Fatalf("a write is answered %d, %.300s, %v", code, body, err)
		}
		madeName = made.GetName()
	}
	own, _, _ := strings.Cut(madeName, "@")
	t.Cleanup(func() {
		e2e.Direct("member1").Run(t, "patch", "configmap", own, "-n", ns, "--type=merge", "-p",
			`{"metadata":{"finalizers":null}}`)
	})
	if code, body := callGateway(t, "PATCH", e2e.FleetPrefix+"/@"+maps+"/"+madeName, "application/merge-patch+json",
		`{"data":{"a":"b"}}`); code != http.StatusOK {
		t.Errorf("a patch is answered %d, %.300s", code, body)
	}
	deep("deep")
	owned(own)
	if code, body := callGateway(t, "POST", e2e.FleetPrefix+"/@"+depths, "application/json", depth("after@member1",
		"1")); code != http.StatusCreated {
		t.Errorf("%d, %.300s", code, body)
	}
	deep("after") // the same cluster's events go on
	for _, form := range []string{"", "/@"} {
		for path, want := range map[string]map[string]string{depths: {"deep": "member1", "shallow": "member2",
			"after": "member1"}, maps: {own: "member1"}} {
			code, body := callGateway(t, "GET", e2e.FleetPrefix+form+path+"?strict=true", "", "")
			got := clustersByName(t, body)
			for name, cluster := range want {
				if code != http.StatusOK || got[name] != cluster {
					t.Errorf("%s%s: %d, %s is of %q, want %s", form, path, code, name, got[name], cluster)
				}
			}
		}
	}
	table := e2e.AtFleet(t, e2e.Through(t, "member1")).Must(t, "get", "depths", "-n", ns)
	e2e.WantText(t, table, "deep", "shallow", "after", "member1", "member2")
}

// TestFleetSourceIsNotForged: by a forged source, a patch would change another cluster's object.
func TestFleetSourceIsNotForged(t *testing.T) {
	fleet(t, "{apiVersion: example.org/v1, kind: Status}")
	for _, m := range e2e.Members {
		d := e2e.Direct(m)
		d.Apply(t, strings.NewReplacer("depths", "statuses", "Depths", "StatusList", "depth", "status", "Depth",
			"Status").Replace(fmt.Sprintf(crdDepths, "")))
		t.Cleanup(func() { d.Run(t, "delete", "crd", "statuses.example.org") })
		d.Must(t, "wait", "--for=condition=Established", "crd/statuses.example.org", "--timeout=4m")
	}
	const path = "/apis/example.org/v1/namespaces/default/statuses"
	for name, field := range map[string]string{"plain": "a", "kelvin": `\u212aind`, "upper": "KIND"} {
		forged := `{"apiVersion":"example.org/v1","kind":"Status","metadata":{"name":"` + name + `","annotations":{"` +
			e2e.SourceAnnotation + `":"member2"}},"` + field + `":"Table"}`
		waittest.Until(t, "member1 accepts the object", func() bool {
			code, _ := callGateway(t, "POST", "/clusters/member1"+path, "application/json", forged)
			return code == http.StatusCreated
		})
		waittest.Until(t, "the fleet has the object", func() bool {
			code, _ := callGateway(t, "GET", e2e.FleetPrefix+path+"/"+name+"@member1", "", "")
			return code == http.StatusOK
		})
		_, body := callGateway(t, "GET", e2e.FleetPrefix+path+"/"+name+"@member1", "", "")
		var got unstructured.Unstructured
		if err := json.Unmarshal([]byte(body), &got); err != nil || got.GetAnnotations()[e2e.SourceAnnotation] != "member1" {
			t.Errorf("%s is of %q: %s, %v", name, got.GetAnnotations()[e2e.SourceAnnotation], body, err)
		}
		waittest.Until(t, "both clusters have begun to serve the kind", func() bool {
			var code int
			code, body = callGateway(t, "GET", e2e.FleetPrefix+path+"?strict=true", "", "")
			return code == http.StatusOK
		})
		if got := clustersByName(t, body)[name]; got != "member1" {
			t.Errorf("%s in a list is of %q: %s", name, got, body)
		}
	}
}
