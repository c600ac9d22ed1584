package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	clientcmdv1 "k8s.io/client-go/tools/clientcmd/api/v1"

	"github.com/clusterpass/clusterpass/shared/passes/kubeconfig"
)

// TestNoteOfImage: without an image that nodes can pull, no agent starts, and the administrator must learn it.
func TestNoteOfImage(t *testing.T) {
	for name, tt := range map[string]struct {
		p    private
		want string
	}{
		"default image":   {private{format: formatManifest, image: defaultImage}, "--agent-image"},
		"named image":     {private{format: formatManifest, image: "registry.example.com/agent:v1"}, ""},
		"values of chart": {private{format: formatValues, image: defaultImage}, ""},
	} {
		t.Run(name, func(t *testing.T) {
			var out strings.Builder
			if err := tt.p.noteImage(&out); err != nil {
				t.Fatal(err)
			}
			if got := out.String(); (got == "") != (tt.want == "") || !strings.Contains(got, tt.want) {
				t.Errorf("it prints %q, want %q", got, tt.want)
			}
		})
	}
}

// TestGatewayOfAgents: a gateway URL that agents would reject is refused before anything is created.
func TestGatewayOfAgents(t *testing.T) {
	for _, url := range []string{
		"", "gateway.example.com", "http://gateway.example.com", "https://gateway.example.com/clusters/prod",
		"https://gateway.example.com/", "https://ann@gateway.example.com",
	} {
		t.Run(url, func(t *testing.T) {
			c, kc := setup(t)
			data, err := kubeconfig.Write(kubeconfig.Gateway{URL: url}, clientcmdv1.AuthInfo{Token: "t"}, nil, "")
			if err != nil {
				t.Fatal(err)
			}
			file := filepath.Join(t.TempDir(), "gateway")
			if err := os.WriteFile(file, data, 0o600); err != nil {
				t.Fatal(err)
			}
			out, err := c.run(t, "cluster", "join", "--pull", "lab", "--kubeconfig", kc, "--gateway", file)
			if err == nil || !strings.Contains(err.Error(), "--gateway") ||
				!strings.Contains(err.Error(), "want https:// and a host") {
				t.Errorf("%v\n%s", err, out)
			}
		})
	}
}
