package control_test

import (
	"bytes"
	"encoding/json"
	"flag"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/kube-openapi/pkg/validation/spec"

	clusterv1alpha1 "github.com/clusterpass/clusterpass/shared/api/cluster/v1alpha1"
	clusterpassv1alpha1 "github.com/clusterpass/clusterpass/shared/api/clusterpass/v1alpha1"
	searchv1alpha1 "github.com/clusterpass/clusterpass/shared/api/search/v1alpha1"
	"github.com/clusterpass/clusterpass/shared/control"
	"github.com/clusterpass/clusterpass/shared/control/openapi"
)

var update = flag.Bool("update", false, "write the files of package documents anew")

// TestDocuments fails if the files of package documents are not what the server of k8s.io/apiserver serves for the same
// resources.
func TestDocuments(t *testing.T) {
	d := newInstallation(t).gateway()
	reference := d.api.Reference(t)
	get := func(path, accept string) json.RawMessage {
		r := httptest.NewRequestWithContext(t.Context(), http.MethodGet, path, nil)
		r.Header.Set("Accept", accept)
		w := httptest.NewRecorder()
		reference.ServeHTTP(w, r)
		if w.Code != http.StatusOK {
			t.Fatalf("%s: %d %s", path, w.Code, w.Body)
		}
		return w.Body.Bytes()
	}
	discovery := map[string]json.RawMessage{
		// A server with a core group would have them.
		"/api": json.RawMessage(`{"kind":"APIVersions","apiVersion":"v1","versions":[]}`),
		"/api?aggregated": json.RawMessage(
			`{"kind":"APIGroupDiscoveryList","apiVersion":"apidiscovery.k8s.io/v2","items":[]}`),
		"/apis": get("/apis", "application/json"), "/apis?aggregated": get("/apis", control.AggregatedType),
	}
	openAPI := map[string]json.RawMessage{}
	var groups metav1.APIGroupList
	if err := json.Unmarshal(discovery["/apis"], &groups); err != nil {
		t.Fatal(err)
	}
	for _, g := range groups.Groups {
		path := "/apis/" + g.Name
		discovery[path] = get(path, "application/json")
		for _, v := range g.Versions {
			path := "apis/" + v.GroupVersion
			discovery["/"+path], openAPI[path] = get("/"+path, "application/json"), get("/openapi/v3/"+path, "application/json")
		}
	}
	compareDocument(t, "discovery.json", discovery)
	compareDocument(t, "openapi.v2.json", get("/openapi/v2", "application/json"))
	compareDocument(t, "openapi.v3.json", openAPI)
}

func compareDocument(t *testing.T, name string, doc any) {
	t.Helper()
	file := filepath.Join("documents", name)
	data, err := json.Marshal(doc)
	if err != nil {
		t.Fatal(err)
	}
	var want bytes.Buffer
	if err := json.Indent(&want, data, "", " "); err != nil {
		t.Fatal(err)
	}
	want.WriteByte('\n')
	if *update {
		if err := os.WriteFile(file, want.Bytes(), 0o644); err != nil {
			t.Fatal(err)
		}
		return
	}
	got, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(got, want.Bytes()) {
		at := strings.Count(string(got[:firstDifference(got, want.Bytes())]), "\n") + 1
		t.Errorf("%s:%d differs; run go generate ./shared/control/openapi", file, at)
	}
}

func firstDifference(a, b []byte) int {
	for i := range min(len(a), len(b)) {
		if a[i] != b[i] {
			return i
		}
	}
	return min(len(a), len(b))
}

// TestDefinitionsHaveEveryField fails if the definitions were not generated after a change of a type. Field managers
// would refuse the new field.
func TestDefinitionsHaveEveryField(t *testing.T) {
	definitions := openapi.GetOpenAPIDefinitions(func(string) spec.Ref { return spec.Ref{} })
	seen := map[reflect.Type]bool{}
	var check func(reflect.Type)
	check = func(typ reflect.Type) {
		for typ.Kind() == reflect.Pointer || typ.Kind() == reflect.Slice || typ.Kind() == reflect.Map {
			typ = typ.Elem()
		}
		model, ok := reflect.New(typ).Interface().(interface{ OpenAPIModelName() string })
		if !ok || typ.Kind() != reflect.Struct || seen[typ] || !strings.Contains(typ.PkgPath(), "/shared/api/") {
			return
		}
		seen[typ] = true
		properties := definitions[model.OpenAPIModelName()].Schema.Properties
		for i := range typ.NumField() {
			f := typ.Field(i)
			name, _, _ := strings.Cut(f.Tag.Get("json"), ",")
			if _, ok := properties[name]; !ok && name != "" {
				t.Errorf("%s.%s has no definition; run go generate ./shared/control/openapi", typ, f.Name)
			}
			check(f.Type)
		}
	}
	for _, obj := range []any{clusterv1alpha1.Cluster{}, clusterpassv1alpha1.Pass{}, clusterpassv1alpha1.RecordingPolicy{},
		searchv1alpha1.ResourceRegistry{}} {
		check(reflect.TypeOf(obj))
	}
	if len(seen) < 10 {
		t.Errorf("only %d types were checked", len(seen))
	}
}
