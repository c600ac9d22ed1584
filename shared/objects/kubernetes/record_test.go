package kubernetes

import (
	"regexp"
	"strings"
	"testing"

	"sigs.k8s.io/yaml"

	"github.com/clusterpass/clusterpass/shared/objects"
)

var nameRE = regexp.MustCompile(`^[a-z0-9]+$`)

// FuzzRecordName: pages of a list have the order of names, and must have that of keys.
func FuzzRecordName(f *testing.F) {
	f.Add("clusters/a", "clusters/ab")
	f.Add("clusterroles/žluťoučký 🐎", "clusterroles/System:Node%2F*")
	f.Add("a/"+strings.Repeat("a", 300), "a/"+strings.Repeat("a", 300)+"b")
	f.Fuzz(func(t *testing.T, a, b string) {
		if objects.ValidKey(a) != nil || objects.ValidKey(b) != nil {
			return
		}
		x, y := recordName(a), recordName(b)
		if len(x) > maxName || !nameRE.MatchString(x) || x == announcement {
			t.Fatalf("%q has the name %q", a, x)
		}
		if (a == b) != (x == y) {
			t.Fatalf("%q and %q have the names %q and %q", a, b, x, y)
		}
		isShort := len(a) <= longKey && len(b) <= longKey
		if isShort && strings.Compare(a, b) != strings.Compare(x, y) {
			t.Fatalf("%q and %q have the names %q and %q, in another order", a, b, x, y)
		}
	})
}

// TestManifest: the chart and clusterpass init create what the store uses.
func TestManifest(t *testing.T) {
	var crd struct {
		Metadata struct{ Name string }
		Spec     struct {
			Group, Scope string
			Names        struct{ Kind, Plural string }
			Versions     []struct{ Name string }
		}
	}
	if err := yaml.Unmarshal(CRD, &crd); err != nil {
		t.Fatal(err)
	}
	if crd.Metadata.Name != Resource+"."+Group || crd.Spec.Group != Group || crd.Spec.Scope != "Namespaced" ||
		crd.Spec.Names.Kind != Kind || crd.Spec.Names.Plural != Resource || crd.Spec.Versions[0].Name != Version {
		t.Errorf("%+v", crd)
	}
}
