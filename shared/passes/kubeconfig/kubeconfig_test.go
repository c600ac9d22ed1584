package kubeconfig

import (
	"os"
	"path/filepath"
	"reflect"
	"testing"

	clientcmdv1 "k8s.io/client-go/tools/clientcmd/api/v1"
)

func TestRead(t *testing.T) {
	want := Gateway{URL: "https://gw.example.com", CA: []byte("a certificate")}
	data, err := Write(want, clientcmdv1.AuthInfo{Token: "t"}, []Context{{Cluster: "member1"}}, "")
	if err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(t.TempDir(), "kubeconfig")
	if err := os.WriteFile(file, data, 0o600); err != nil {
		t.Fatal(err)
	}
	for path, want := range map[string]Gateway{
		file:                          want,
		"https://gw.example.com":      {URL: "https://gw.example.com"},
		"https://gw.example.com:8443": {URL: "https://gw.example.com:8443"},
		"https://gw.example.com/":     {URL: "https://gw.example.com"},
	} {
		if got, err := Read(path); err != nil || !reflect.DeepEqual(got, want) {
			t.Errorf("%s: %+v, %v", path, got, err)
		}
	}
	for _, path := range []string{
		"https://", "https://gw.example.com/clusters/member1", "https://a:b@gw.example.com", "https://gw.example.com?a",
		"http://gw.example.com", "missing",
	} {
		if got, err := Read(path); err == nil {
			t.Errorf("%s is read as %+v", path, got)
		}
	}
}
