// Package kubernetes tests the files of the Helm charts without helm. Package test/kubernetes runs them.
package kubernetes

import (
	"bytes"
	"cmp"
	"encoding/json"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	rbacv1 "k8s.io/api/rbac/v1"
	"sigs.k8s.io/yaml"

	"github.com/clusterpass/clusterpass/shared/recording"
	"github.com/clusterpass/clusterpass/shared/recording/dirstore"
)

var charts = []string{"clusterpass", "clusterpass-agent"}

type schema struct {
	Type, Description    any
	Properties           map[string]schema
	AdditionalProperties any
}

func read(t *testing.T, path string) []byte {
	t.Helper()
	data, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return data
}

// TestEachValueIsDescribed fails if a user of helm finds a value without an explanation, or a described one without
// effect.
func TestEachValueIsDescribed(t *testing.T) {
	for _, chart := range charts {
		t.Run(chart, func(t *testing.T) {
			var s schema
			if err := json.Unmarshal(read(t, filepath.Join(chart, "values.schema.json")), &s); err != nil {
				t.Fatal(err)
			}
			delete(s.Properties, "global") // helm's own
			var values map[string]any
			if err := yaml.UnmarshalStrict(read(t, filepath.Join(chart, "values.yaml")), &values); err != nil {
				t.Fatal(err)
			}
			checkValues(t, "", values, s)
		})
	}
}

func checkValues(t *testing.T, path string, values map[string]any, s schema) {
	t.Helper()
	if s.AdditionalProperties != false {
		t.Errorf("%s: the schema permits unknown values", path)
	}
	if got, want := slices.Sorted(maps.Keys(values)), slices.Sorted(maps.Keys(s.Properties)); !slices.Equal(got, want) {
		t.Errorf("%s has the values %q, and the schema %q", path, got, want)
	}
	for name, property := range s.Properties {
		if text, ok := property.Description.(string); !ok || text == "" {
			t.Errorf("%s%s has no description", path, name)
		}
		if nested, ok := values[name].(map[string]any); ok && len(nested) > 0 && len(property.Properties) > 0 {
			checkValues(t, path+name+".", nested, property)
		}
	}
}

// TestCRDIsThatOfTheStore fails if the chart installs another definition than the store needs.
func TestCRDIsThatOfTheStore(t *testing.T) {
	if !bytes.Equal(read(t, "clusterpass/files/crd.yaml"), read(t, "../../shared/objects/kubernetes/crd.yaml")) {
		t.Error("copy shared/objects/kubernetes/crd.yaml to infra/kubernetes/clusterpass/files/crd.yaml")
	}
}

// TestRightsAreThoseOfTheStore fails if the replicas have more rights than their store needs, or less.
func TestRightsAreThoseOfTheStore(t *testing.T) {
	rules := func(text []byte) []rbacv1.PolicyRule {
		var role rbacv1.Role
		if err := yaml.Unmarshal(text, &role); err != nil || len(role.Rules) == 0 {
			t.Fatalf("%s: %v", text, err)
		}
		slices.SortFunc(role.Rules, func(a, b rbacv1.PolicyRule) int { return cmp.Compare(a.Resources[0], b.Resources[0]) })
		return role.Rules
	}
	_, own, _ := strings.Cut(string(read(t, "clusterpass/templates/rbac.yaml")), "\nrules:\n")
	own, _, _ = strings.Cut(own, "\n---\n")
	want := rules(read(t, "../../shared/stores/kubernetes/role.yaml"))
	if got := rules([]byte("rules:\n" + own)); !reflect.DeepEqual(got, want) {
		t.Errorf("%v, want %v of shared/stores/kubernetes/role.yaml", got, want)
	}
}

// TestRecordingsOfExampleFitIntoVolume fails if the replicas of the example do not start, because kubelet lets a group
// write to the root of a volume.
func TestRecordingsOfExampleFitIntoVolume(t *testing.T) {
	var values struct {
		Recordings        string
		ExtraVolumes      []struct{ Name string }
		ExtraVolumeMounts []struct{ Name, MountPath string }
	}
	if err := yaml.Unmarshal(read(t, "clusterpass/examples/recordings-volume.yaml"), &values); err != nil {
		t.Fatal(err)
	}
	if len(values.ExtraVolumes) != 1 || len(values.ExtraVolumeMounts) != 1 ||
		values.ExtraVolumes[0].Name != values.ExtraVolumeMounts[0].Name {
		t.Fatalf("%+v: want one volume, which is mounted", values)
	}
	dir, isBelow := strings.CutPrefix(values.Recordings, "dir:"+values.ExtraVolumeMounts[0].MountPath+"/")
	if !isBelow {
		t.Fatalf("%s is not in the volume at %s", values.Recordings, values.ExtraVolumeMounts[0].MountPath)
	}
	volume := t.TempDir()
	if err := os.Chmod(volume, fs.ModeSetgid|0o775); err != nil {
		t.Fatal(err)
	}
	store, err := dirstore.Open(dirstore.Config{Path: filepath.Join(volume, dir)})
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = store.Close() }()
	if err := store.Put(t.Context(), recording.NewID(time.Now()), 0, []byte("x")); err != nil {
		t.Error(err)
	}
	if !bytes.Contains(read(t, "clusterpass/templates/deployment.yaml"), []byte("fsGroupChangePolicy: OnRootMismatch")) {
		t.Error("kubelet changes the modes of recordings whenever a pod starts")
	}
}

// TestChartsHaveOneVersion fails if a release would publish charts whose default images have different versions.
func TestChartsHaveOneVersion(t *testing.T) {
	versions := map[string]bool{}
	for _, chart := range charts {
		var c struct{ Version, AppVersion string }
		if err := yaml.Unmarshal(read(t, filepath.Join(chart, "Chart.yaml")), &c); err != nil {
			t.Fatal(err)
		}
		versions[c.Version], versions[c.AppVersion] = true, true
	}
	if len(versions) != 1 {
		t.Errorf("the versions %v", slices.Sorted(maps.Keys(versions)))
	}
}
