package cluster

import (
	"encoding/base64"
	"encoding/pem"
	"strings"
	"testing"
	"time"

	"github.com/clusterpass/clusterpass/shared/api/cluster/v1alpha1"
	"github.com/clusterpass/clusterpass/shared/pki"
)

// Requests through a tunnel must reach a verified server, because others forward them.
func TestValidatePull(t *testing.T) {
	const insecure = `{contexts: [{name: x, context: {cluster: c, user: u}}], users: [{name: u, user: {token: t}}],
clusters: [{name: c, cluster: {server: "https://x:6443", insecure-skip-tls-verify: true}}]}`
	cert, err := pki.SelfSigned("x")
	if err != nil {
		t.Fatal(err)
	}
	ca := base64.StdEncoding.EncodeToString(
		pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: cert.Certificate[0]}))
	verified := strings.Replace(insecure, "insecure-skip-tls-verify: true", "certificate-authority-data: "+ca, 1)
	for _, tt := range []struct {
		name, kubeconfig, proxy string
		mode                    v1alpha1.SyncMode
		want                    string // part of the error, "" for none
	}{
		{"its own agents", verified, "https://bridge:8444", v1alpha1.Pull, ""},
		{"another one's", verified, "https://bridge:8444/prod", v1alpha1.Pull, ""},
		{"nobody's", verified, "https://bridge:8444/prod/dev", v1alpha1.Pull, "whose agents are to be used"},
		{"no tunnel port", verified, "", v1alpha1.Pull, "spec.proxyURL: missing"},
		{"not verified", insecure, "https://bridge:8444", v1alpha1.Pull, "mode Pull verifies the server"},
		{"not verified, dialled", insecure, "", v1alpha1.Push, ""},
	} {
		t.Run(tt.name, func(t *testing.T) {
			c := &v1alpha1.Cluster{Spec: v1alpha1.ClusterSpec{SyncMode: tt.mode, ProxyURL: tt.proxy,
				InsecureSkipTLSVerification: true, Identity: v1alpha1.Direct}}
			_, err := Validate(c, []byte(tt.kubeconfig), nil, time.Now())
			if (err == nil) != (tt.want == "") || err != nil && !strings.Contains(err.Error(), tt.want) {
				t.Errorf("error %v, want %q", err, tt.want)
			}
		})
	}
}
