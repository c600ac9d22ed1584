package kubernetes

import (
	"regexp"
	"strings"
	"testing"

	"github.com/clusterpass/clusterpass/shared/secrets"
)

// nameRE is that of kube-apiserver for the names of Secrets.
var nameRE = regexp.MustCompile(`^[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*$`)

// decode is the inverse of secretName for names that are not too long.
func decode(encoded string) string {
	return strings.NewReplacer(".", "/", "-d", ".", "--", "-").Replace(encoded)
}

// TestSecretNames: two secrets with one name would overwrite each other.
func TestSecretNames(t *testing.T) {
	for name, want := range map[string]string{
		"clusters/member1":       "clusters.member1",
		"clusters/my-cluster":    "clusters.my--cluster",
		"clusters/eu.prod":       "clusters.eu-dprod",
		"clusters/a.-b":          "clusters.a-d--b",
		"clusters/a-.b":          "clusters.a---db",
		strings.Repeat("a", 253): strings.Repeat("a", 253),
	} {
		if got := secretName(name); got != want {
			t.Errorf("%s is the Secret %s, want %s", name, got, want)
		}
	}
}

func FuzzSecretName(f *testing.F) {
	f.Add("clusters/a-d", "clusters/a.")
	f.Add(strings.Repeat("a-", 126)+"a", "long-x")
	f.Fuzz(func(t *testing.T, a, b string) {
		if secrets.ValidName(a) != nil {
			return
		}
		encoded := secretName(a)
		if len(encoded) > maxSecretName || !nameRE.MatchString(encoded) {
			t.Fatalf("%q is the Secret %q, which is no valid name", a, encoded)
		}
		if !strings.HasPrefix(encoded, "long-x") && decode(encoded) != a {
			t.Fatalf("%q is the Secret %q, which is read as %q", a, encoded, decode(encoded))
		}
		if secrets.ValidName(b) == nil && a != b && encoded == secretName(b) {
			t.Fatalf("%q and %q are both the Secret %q", a, b, encoded)
		}
	})
}
