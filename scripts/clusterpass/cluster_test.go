package main

import (
	"net/http"
	"strings"
	"testing"
)

// A gateway as its own member would forward requests to itself.
func TestGatewayIsNoCluster(t *testing.T) {
	for _, command := range []string{"add", "join"} {
		for _, path := range []string{"", "/fleet", "/clusters/granted"} {
			t.Run(command+path, func(t *testing.T) {
				file := serveKubeconfig(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
					if r.Method != http.MethodGet {
						t.Errorf("%s %s is sent to the gateway", r.Method, r.URL)
					}
					gatewayHandler(w, r)
				}), path)
				c := clusterpass{"dir:" + t.TempDir()}
				out, err := c.run(t, "cluster", command, "x", "--kubeconfig", file)
				if err == nil || !strings.Contains(err.Error(), "is a Clusterpass gateway and no cluster") ||
					!strings.Contains(err.Error(), "--context") {
					t.Errorf("%s%v", out, err)
				}
				if out, err := c.run(t, "cluster", "list", "-o", "json"); err != nil || strings.Contains(out, `"x"`) {
					t.Errorf("it is stored: %s%v", out, err)
				}
			})
		}
	}
}
