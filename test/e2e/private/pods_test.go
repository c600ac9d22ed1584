package private_test

import (
	"encoding/base64"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/clusterpass/clusterpass/shared/api/cluster/v1alpha1"
	"github.com/clusterpass/clusterpass/shared/passes"
	"github.com/clusterpass/clusterpass/shared/passes/kubeconfig"
	"github.com/clusterpass/clusterpass/shared/registration"
	"github.com/clusterpass/clusterpass/shared/stores"
	"github.com/clusterpass/clusterpass/test/e2e"
)

// TestAgentPods holds: the pods of what join prints bring the tunnel up, and keep a renewed credential in their Secret, by their own service
// account. What the process kubelet does not have is added: the program in place of the image, the account's token where programs look for
// it, in a mount namespace, and the API server's address in place of its Service's.
func TestAgentPods(t *testing.T) {
	unshare := []string{"unshare", "--mount", "--map-root-user"}
	if out, err := exec.CommandContext(t.Context(), unshare[0], append(unshare[1:], "mount", "-t", "tmpfs", "none", "/var/run")...).CombinedOutput(); err != nil {
		said := fmt.Sprintf("NOT TRIED: the agents' manifest in pods. This machine makes no mount namespace (%v: %s); run the test as root.", err, out)
		fmt.Fprintln(os.Stderr, said)
		t.Log(said)
		return
	}
	p := joinPrivate(t, "podded")
	joined, err := os.ReadFile(p.token)
	if err != nil {
		t.Fatal(err)
	}
	first := pastItsMiddle(t, p)
	host, port, err := net.SplitHostPort(strings.TrimPrefix(p.member.Server(), "https://"))
	if err != nil {
		t.Fatal(err)
	}
	const account = "/var/run/secrets/kubernetes.io/serviceaccount"
	run := fmt.Sprintf("mount -t tmpfs none /var/run && mkdir -p %[1]s && ln -s $CONTAINER_ROOT%[2]s %[2]s && exec %[3]s", filepath.Dir(account), account, agentProgram(t))
	manifest := p.manifest
	for old, with := range map[string]string{
		base64.StdEncoding.EncodeToString(joined): base64.StdEncoding.EncodeToString([]byte(first)),
		"automountServiceAccountToken: true":      "automountServiceAccountToken: false\n      volumes: [{name: account, secret: {secretName: podded}}]",
		"        image: ": fmt.Sprintf("        command: [%s, sh, -ec, %q]\n        volumeMounts: [{name: account, mountPath: %s}]\n        image: ",
			strings.Join(unshare, ", "), run, account),
		"        env:\n": fmt.Sprintf("        env:\n        - {name: KUBERNETES_SERVICE_HOST, value: %q}\n        - {name: KUBERNETES_SERVICE_PORT, value: %q}\n        - {name: CLUSTERPASS_DRAIN_TIMEOUT, value: 1s}\n",
			host, port),
		`value: ":8081"`: `value: "127.0.0.1:0"`, // of both, on one machine
	} {
		if strings.Count(manifest, old) != 1 {
			t.Fatalf("%q is not once in the manifest", old)
		}
		manifest = strings.Replace(manifest, old, with, 1)
	}
	name := regexp.MustCompile(`secret:clusterpass-system/([^"]+)"`).FindStringSubmatch(manifest)[1]
	d := e2e.Direct("member2")
	in := func(args ...string) []string { return append([]string{"-n", "clusterpass-system"}, args...) }
	d.WithInput(manifest).Must(t, "apply", "-f", "-")
	defer func() {
		d.Must(t, in("delete", "deployment", name, "--cascade=foreground", "--timeout=4m")...)
		d.Must(t, in("delete", "--ignore-not-found", "secret/podded", "secret/"+name, "role/"+name, "rolebinding/"+name, "serviceaccount/"+name)...)
	}()
	token := strings.TrimSpace(d.Must(t, in("create", "token", name)...))
	e2e.Secrets.Secret("the service account of the agents", token)
	encode := func(s string) string { return base64.StdEncoding.EncodeToString([]byte(s)) }
	d.WithInput(fmt.Sprintf("---\n{apiVersion: v1, kind: Secret, metadata: {name: podded, namespace: clusterpass-system}, data: {token: %s, ca.crt: %s, namespace: %s}}",
		encode(token), encode(string(p.member.CA())), encode("clusterpass-system"))).Must(t, "create", "-f", "-")

	_, root := e2e.Caller(t)
	g := e2e.Kubectl{Kubeconfig: e2e.Shared(t).Kubeconfig, Context: "member2", Server: root + "/clusters/podded"}
	e2e.Eventually(t, func() bool { return g.Run(t, "get", "namespaces").Code == 0 })
	d.Must(t, in("rollout", "status", "deployment/"+name, "--timeout=4m")...)
	pods := strings.Fields(d.Must(t, in("get", "pods", "-l", "clusterpass.io/cluster=podded", "-o", "name")...))
	if len(pods) != 2 {
		t.Errorf("the pods are %q", pods)
	}
	for _, pod := range pods {
		e2e.Eventually(t, func() bool {
			return strings.Contains(d.Run(t, in("logs", pod)...).Stdout, "connected to a replica of the bridge")
		})
	}
	e2e.Eventually(t, func() bool {
		value, err := base64.StdEncoding.DecodeString(d.Must(t, in("get", "secret", name, "-o", "jsonpath={.data.token}")...))
		if err != nil {
			t.Fatal(err)
		}
		e2e.Secrets.Secret("the agents in pods", string(value))
		return string(value) != first
	})
	d.Must(t, in(append([]string{"delete", "--timeout=4m"}, pods...)...)...) // those that come have the renewed one only
	e2e.Eventually(t, func() bool { return g.Run(t, "get", "namespaces").Code == 0 })
}

// pastItsMiddle makes a credential that the agents of p renew at once. It ends the one that join made.
func pastItsMiddle(t *testing.T, p *privateCluster) string {
	t.Helper()
	st, err := stores.Open(t.Context(), stores.Address{Kind: "dir", Where: filepath.Join(e2e.Shared(t).Dir, "data")})
	if err != nil {
		t.Fatal(err)
	}
	all, err := (&registration.Registrar{Objects: st.Objects, Secrets: st.Secrets}).Clusters(t.Context())
	i := slices.IndexFunc(all, func(c v1alpha1.Cluster) bool { return c.Name == p.name })
	if err != nil || i < 0 {
		t.Fatalf("cluster %d, %v", i, err)
	}
	gw, err := kubeconfig.Read(p.gateway)
	if err != nil {
		t.Fatal(err)
	}
	issuer := &passes.Issuer{Objects: st.Objects, Secrets: st.Secrets, URL: gw.URL, Now: func() time.Time { return time.Now().Add(-13 * time.Hour) }}
	token, err := issuer.EnrolAgent(t.Context(), &all[i], 24*time.Hour)
	if err != nil {
		t.Fatal(err)
	}
	e2e.Secrets.Secret("the agents in pods, at first", string(token.Reveal()))
	return string(token.Reveal())
}
