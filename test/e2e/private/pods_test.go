package private_test

import (
	"encoding/base64"
	"encoding/json"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/clusterpass/clusterpass/shared/waittest"
	"github.com/clusterpass/clusterpass/test/e2e"
)

// TestAgentPods: the pods of join's manifest must connect, and store their renewed credential. The tests' kubelet needs
// changes of the manifest, since it runs processes.
func TestAgentPods(t *testing.T) {
	unshare := []string{"unshare", "--mount", "--map-root-user"}
	if out, err := exec.CommandContext(t.Context(), unshare[0], append(unshare[1:], "mount", "-t", "tmpfs", "none",
		"/var/run")...).CombinedOutput(); err != nil {
		message := fmt.Sprintf(
			"NOT TRIED: the agents' manifest in pods. This machine makes no mount namespace (%v: %s); run "+
				"the test as root.", err, out)
		fmt.Fprintln(os.Stderr, message)
		t.Log(message)
		return
	}
	p := joinPrivate(t, "podded")
	host, port, err := net.SplitHostPort(strings.TrimPrefix(p.Member.Server(), "https://"))
	if err != nil {
		t.Fatal(err)
	}
	const account = "/var/run/secrets/kubernetes.io/serviceaccount"
	run := fmt.Sprintf("mount -t tmpfs none /var/run && mkdir -p %[1]s && ln -s $CONTAINER_ROOT%[2]s %[2]s && exec %[3]s",
		filepath.Dir(account), account, e2e.AgentProgram(t))
	manifest := p.Manifest
	for old, with := range map[string]string{
		"automountServiceAccountToken: true": "automountServiceAccountToken: false\n      volumes: [{name: account, " +
			"secret: {secretName: podded}}]",
		"        image: ": fmt.Sprintf(
			"        command: [%s, sh, -ec, %q]\n        volumeMounts: [{name: account, mountPath: %s}]\n        image: ",
			strings.Join(unshare, ", "), run, account),
		"        env:\n": fmt.Sprintf("        env:\n        - {name: KUBERNETES_SERVICE_HOST, value: %q}\n        - "+
			"{name: KUBERNETES_SERVICE_PORT, value: %q}\n        - {name: CLUSTERPASS_DRAIN_TIMEOUT, value: 1s}\n",
			host, port),
		`value: ":8081"`: `value: "127.0.0.1:0"`, // both pods are on one machine
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
		d.Must(t, in("delete", "--ignore-not-found", "secret/podded", "secret/"+name, "role/"+name, "rolebinding/"+name,
			"serviceaccount/"+name)...)
	}()
	token := strings.TrimSpace(d.Must(t, in("create", "token", name)...))
	e2e.Secrets.Secret("the service account of the agents", token)
	encode := func(s string) string { return base64.StdEncoding.EncodeToString([]byte(s)) }
	d.WithInput(fmt.Sprintf("---\n{apiVersion: v1, kind: Secret, metadata: {name: podded, namespace: "+
		"clusterpass-system}, data: {token: %s, ca.crt: %s, namespace: %s}}",
		encode(token), encode(string(p.Member.CA())), encode("clusterpass-system"))).Must(t, "create", "-f", "-")

	_, root := e2e.Caller(t)
	g := e2e.Kubectl{Kubeconfig: e2e.Shared(t).Kubeconfig, Context: "member2", Server: root + "/clusters/podded"}
	waittest.Until(t, "private cluster is reachable", func() bool { return g.Run(t, "get", "namespaces").Code == 0 })
	d.Must(t, in("rollout", "status", "deployment/"+name, "--timeout=4m")...)
	pods := strings.Fields(d.Must(t, in("get", "pods", "-l", "clusterpass.io/cluster=podded", "-o", "name")...))
	if len(pods) != 2 {
		t.Errorf("the pods are %q", pods)
	}
	for _, pod := range pods {
		waittest.Until(t, "connection of "+pod, func() bool {
			return strings.Contains(d.Run(t, in("logs", pod)...).Stdout, "connected to a replica of the bridge")
		})
	}
	waittest.Until(t, "agents have stored their credential", func() bool {
		const path = `jsonpath={.data.credential\.json}`
		value, err := base64.StdEncoding.DecodeString(d.Must(t, in("get", "secret", name, "-o", path)...))
		if err != nil {
			t.Fatal(err)
		}
		var state struct{ Token, Key string }
		if len(value) == 0 || json.Unmarshal(value, &state) != nil || state.Token == "" {
			return false
		}
		e2e.Secrets.Secret("the agents in pods", state.Token)
		e2e.Secrets.Secret("the key of the agents in pods", state.Key)
		return true
	})
	d.Must(t, in(append([]string{"delete", "--timeout=4m"}, pods...)...)...) // new pods have only the renewed credential
	waittest.Until(t, "private cluster is reachable through new pods", func() bool {
		return g.Run(t, "get", "namespaces").Code == 0
	})
}
