package gateway_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"k8s.io/client-go/tools/clientcmd"

	"github.com/clusterpass/clusterpass/test/e2e"
)

// TestLeaksAreFound: the search for secrets at the end of each run must find planted ones.
func TestLeaksAreFound(t *testing.T) {
	h := e2e.Shared(t)
	_ = e2e.Through(t, "member1").Must(t, "get", "namespaces")
	kc, err := clientcmd.LoadFromFile(h.Kubeconfig)
	if err != nil {
		t.Fatal(err)
	}
	pass := string(kc.AuthInfos["clusterpass"].ClientKeyData)
	stored, err := filepath.Glob(filepath.Join(h.Dir, "data", "secrets", "clusters", "member1.*"))
	if err != nil || len(stored) != 1 {
		t.Fatalf("secrets of member1: %v, %v", stored, err)
	}
	credential, err := os.ReadFile(stored[0])
	if err != nil {
		t.Fatal(err)
	}
	if found := e2e.FindLeaks(e2e.Printed.String()); len(found) > 0 {
		t.Errorf("the secrets of %v were printed", found)
	}
	for _, planted := range []string{pass, strings.Split(pass, "\n")[2], string(credential),
		strings.Split(string(credential), "client-key-data: ")[1]} {
		if found := e2e.FindLeaks(e2e.Printed.String() + planted); len(found) == 0 {
			t.Error("a secret was printed, and it is not found")
		}
	}
	if found := e2e.FindLeaks(""); len(found) == 0 {
		t.Error("nothing was printed, and that is taken for a proof")
	}
}
