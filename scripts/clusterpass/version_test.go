package main

import (
	"net/http"
	"path/filepath"
	"strings"
	"testing"

	"github.com/clusterpass/clusterpass/shared/version"
)

// TestVersion fails if a bug report cannot name the versions, or if the command needs a gateway.
func TestVersion(t *testing.T) {
	own := "clusterpass  " + version.Get().String() + "\n"
	gateway := serveKubeconfig(t, withVersions("v1.36.0+clusterpass-v0.9.0", "v1.36.0+clusterpass-v0.8.0"), "")
	for _, tt := range []struct {
		name string
		args []string
		want []string
	}{
		{"this program alone", []string{"--client"}, []string{own}},
		{"without a kubeconfig", []string{"--kubeconfig", filepath.Join(t.TempDir(), "none")},
			[]string{own, "no version of a gateway: "}},
		{"with a gateway", []string{"--kubeconfig", gateway},
			[]string{own, "gateway      v0.9.0 (revision 0123abc", "bridge       v0.8.0 (revision 0123abc"}},
		{"with a gateway that fails", []string{"--kubeconfig", serveKubeconfig(t, http.NotFoundHandler(), "")},
			[]string{own, "no version of a gateway: "}},
		{"with an older gateway", []string{"--kubeconfig", serveKubeconfig(t, withVersions("v1.36.0+clusterpass", ""), "")},
			[]string{own, `gateway      unknown, since the server reports only "v1.36.0+clusterpass"`}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			out, err := clusterpass{"dir:" + t.TempDir()}.run(t, append([]string{"version"}, tt.args...)...)
			if err != nil || !strings.HasPrefix(out, own) {
				t.Errorf("%s%v", out, err)
			}
			for _, want := range tt.want {
				if !strings.Contains(out, want) {
					t.Errorf("%slacks %q", out, want)
				}
			}
		})
	}
	if out, err := (clusterpass{}).run(t, "--version"); err != nil || out != "clusterpass "+version.Get().String()+"\n" {
		t.Errorf("--version: %q, %v", out, err)
	}
}
