package main

import (
	"encoding/json"
	"encoding/pem"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"

	loginapi "github.com/clusterpass/clusterpass/shared/api/clusterpass/login"
	"github.com/clusterpass/clusterpass/shared/passes/kubeconfig"
	"github.com/clusterpass/clusterpass/shared/status"
	"github.com/clusterpass/clusterpass/shared/version"
)

const memberRefusal = `{"kind":"Status","apiVersion":"v1","status":"Failure","reason":"Forbidden","code":403,` +
	`"message":"groups \"ops\" is forbidden: User \"sa\" cannot impersonate resource \"groups\"",` +
	`"details":{"name":"ops","kind":"groups"}}`

// gatewayHandler is a gateway that refuses the cluster "ungranted". The cluster "refusing" itself refuses requests. The
// gateway cannot use the clusters "stale", "down" and "paused".
func gatewayHandler(w http.ResponseWriter, r *http.Request) {
	w.Header().Set("Content-Type", "application/json")
	switch r.URL.Path {
	case loginapi.Path:
		_, _ = io.WriteString(w, `{}`)
	case "/apis/authentication.k8s.io/v1/selfsubjectreviews":
		w.WriteHeader(http.StatusCreated)
		_, _ = io.WriteString(w, `{"kind":"SelfSubjectReview","apiVersion":"authentication.k8s.io/v1",`+
			`"status":{"userInfo":{"username":"ann"}}}`)
	case kubeconfig.Path("ungranted") + "/version":
		status.Write(w, status.New(status.Forbidden, "ungranted", "clusters.cluster.karmada.io is forbidden"))
	case kubeconfig.Path("refusing") + "/version":
		w.WriteHeader(http.StatusForbidden)
		_, _ = io.WriteString(w, memberRefusal)
	case kubeconfig.Path("stale") + "/version":
		status.Write(w, status.New(status.CredentialRefused, "stale", "the cluster refuses the credential"))
	case kubeconfig.Path("down") + "/version":
		status.Write(w, status.New(status.Unreachable, "down", "none of its agents is connected"))
	case kubeconfig.Path("paused") + "/version":
		status.Write(w, status.New(status.CircuitOpen, "paused", "the gateway calls it again in 29s"))
	case "/version", bridgeVersionPath:
		_ = json.NewEncoder(w).Encode(map[string]string{"gitVersion": version.Get().GitVersion("v1.36.0")})
	default:
		_, _ = io.WriteString(w, `{}`)
	}
}

// withVersions is gatewayHandler with other versions.
func withVersions(gateway, bridge string) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		answers := map[string]string{"/version": gateway, bridgeVersionPath: bridge}
		if _, ok := answers[r.URL.Path]; !ok {
			gatewayHandler(w, r)
			return
		}
		w.Header().Set("Content-Type", "application/json")
		_ = json.NewEncoder(w).Encode(map[string]string{"gitVersion": answers[r.URL.Path], "gitCommit": "0123abc"})
	})
}

// withoutClusters is gatewayHandler for a caller with these rules. There are no clusters.
func withoutClusters(rules string) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path != "/apis/authorization.k8s.io/v1/selfsubjectrulesreviews" {
			gatewayHandler(w, r)
			return
		}
		w.Header().Set("Content-Type", "application/json")
		w.WriteHeader(http.StatusCreated)
		_, _ = io.WriteString(w, `{"kind":"SelfSubjectRulesReview","apiVersion":"authorization.k8s.io/v1",`+
			`"status":{"resourceRules":[`+rules+`],"nonResourceRules":[]}}`)
	})
}

func serveKubeconfig(t *testing.T, h http.Handler, path string) string {
	t.Helper()
	srv := httptest.NewTLSServer(h)
	t.Cleanup(srv.Close)
	kc := clientcmdapi.NewConfig()
	kc.Clusters["c"] = &clientcmdapi.Cluster{
		Server: srv.URL + path,
		CertificateAuthorityData: pem.EncodeToMemory(
			&pem.Block{Type: "CERTIFICATE", Bytes: srv.Certificate().Raw}),
	}
	kc.AuthInfos["u"] = &clientcmdapi.AuthInfo{Token: "sesame-open"}
	kc.Contexts["clusterpass"] = &clientcmdapi.Context{Cluster: "c", AuthInfo: "u"}
	kc.CurrentContext = "clusterpass"
	data, err := clientcmd.Write(*kc)
	if err != nil {
		t.Fatal(err)
	}
	return kubeconfigFile(t, string(data))
}

type doctorTest struct {
	name     string
	server   http.Handler
	clusters []string
	want     []string
	not      string
	wantErr  string
}

func (tt doctorTest) run(t *testing.T) {
	c := clusterpass{"dir:" + t.TempDir()}
	file := serveKubeconfig(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.UserAgent() != "" && r.UserAgent() != version.UserAgent() {
			t.Errorf("%s is requested with the User-Agent %q", r.URL.Path, r.UserAgent())
		}
		tt.server.ServeHTTP(w, r)
	}), "")
	out, err := c.run(t, append([]string{"doctor", "--kubeconfig", file}, tt.clusters...)...)
	if (err == nil) != (tt.wantErr == "") || err != nil && err.Error() != tt.wantErr {
		t.Errorf("error %v, want %q", err, tt.wantErr)
	}
	for _, want := range tt.want {
		if !strings.Contains(out, want) {
			t.Errorf("%slacks %q", out, want)
		}
	}
	if strings.Contains(out, tt.not) {
		t.Errorf("%shas %q", out, tt.not)
	}
}

// TestDoctor fails if the doctor names a wrong cause, such as a missing grant where the cluster itself refuses.
func TestDoctor(t *testing.T) {
	kubernetes := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == loginapi.Path && r.Header.Get("Authorization") != "" {
			t.Error("a server that may be no gateway gets the credential")
		}
		w.Header().Set("Content-Type", "application/json")
		w.WriteHeader(http.StatusForbidden)
		_, _ = io.WriteString(w, memberRefusal)
	})
	const grant = "for a grant: the verb get on clusters/proxy"
	for _, tt := range []doctorTest{
		{"healthy", http.HandlerFunc(gatewayHandler), []string{"granted"},
			[]string{"ok     gateway", "is a Clusterpass gateway", `you are "ann"`, "ok     granted", "ok     versions"},
			"WRONG", ""},
		{"a newer gateway, whose bridge is as old as this program", withVersions("v1.36.0+clusterpass-v0.9.0",
			"v1.36.0+clusterpass-devel"), []string{"granted"},
			[]string{"warn   versions   the gateway is of version v0.9.0, the bridge of devel and this program of devel",
				"functions and bridge must be of one release"}, "WRONG", ""},
		{"an older bridge", withVersions("v1.36.0+clusterpass-devel", "v1.36.0+clusterpass-v0.9.0"), []string{"granted"},
			[]string{"warn   versions   the gateway is of version devel, the bridge of v0.9.0 and this program of devel",
				"functions and bridge must be of one release"}, "WRONG", ""},
		{"three releases", withVersions("v1.36.0+clusterpass-v0.9.0", "v1.36.0+clusterpass-v0.8.0"), []string{"granted"},
			[]string{"warn   versions   the gateway is of version v0.9.0, the bridge of v0.8.0 and this program of devel",
				"functions and bridge must be of one release"}, "WRONG", ""},
		{"another release", withVersions("v1.36.0+clusterpass-0.9.0", "v1.36.0+clusterpass-0.9.0"), []string{"granted"},
			[]string{"warn   versions   the gateway is of version 0.9.0, the bridge of 0.9.0 and this program of devel",
				"use the clusterpass of the gateway's release"}, "WRONG", ""},
		{"an update that is not finished", withVersions("v1.36.0+clusterpass-devel", "v1.36.0+clusterpass"),
			[]string{"granted"}, []string{"the bridge of unknown", "functions and bridge must be of one release"}, "WRONG", ""},
		{"a kube-apiserver", kubernetes, []string{"granted"},
			[]string{"WRONG  gateway", "is no Clusterpass gateway", "--context"}, "leads to", "1 check failed"},
		{"another web server", http.NotFoundHandler(), nil,
			[]string{"WRONG  gateway", "is no Clusterpass gateway"}, "identity", "1 check failed"},
		{"a web server with a page for every path", http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			_, _ = io.WriteString(w, "<html>")
		}), nil, []string{"is no Clusterpass gateway"}, "identity", "1 check failed"},
		{"the gateway fails", http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			status.Write(w, status.New(status.Internal, "", "boom"))
		}), nil, []string{"the gateway has an internal error"}, "is no Clusterpass", "1 check failed"},
		{"no grant", http.HandlerFunc(gatewayHandler), []string{"ungranted"},
			[]string{"WRONG  ungranted", grant}, "the cluster refuses", "1 check failed"},
		{"the cluster refuses", http.HandlerFunc(gatewayHandler), []string{"refusing"},
			[]string{"WRONG  refusing", "the cluster refuses, not the gateway", "--group GROUP"}, grant, "1 check failed"},
		{"an old credential", http.HandlerFunc(gatewayHandler), []string{"stale"},
			[]string{"WRONG  stale", "clusterpass cluster join stale --replace"}, "agents", "1 check failed"},
		{"no agent", http.HandlerFunc(gatewayHandler), []string{"down"},
			[]string{"WRONG  down", "from its agents?", "describe cluster down"}, "--replace", "1 check failed"},
		{"an open circuit breaker", http.HandlerFunc(gatewayHandler), []string{"paused"},
			[]string{"WRONG  paused", "is the cluster up, and reachable", "describe cluster paused"}, "--replace",
			"1 check failed"},
		{"no clusters", withoutClusters(`{"verbs":["*"],"apiGroups":["*"],"resources":["*"]}`), nil,
			[]string{"WRONG  access     the gateway has no clusters yet", "clusterpass cluster add --help"}, "administrator",
			"1 check failed"},
		{"no cluster is granted", withoutClusters(""), nil,
			[]string{"WRONG  access     you may reach no cluster", "for a grant"}, "no clusters yet", "1 check failed"},
		{"two problems", http.HandlerFunc(gatewayHandler), []string{"ungranted", "refusing"},
			[]string{"WRONG  refusing", "WRONG  ungranted"}, "WRONG  streams", "2 checks failed"},
	} {
		t.Run(tt.name, tt.run)
	}
}
