package private_test

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	typed "k8s.io/client-go/kubernetes/typed/core/v1"

	"github.com/clusterpass/clusterpass/shared/recording"
	"github.com/clusterpass/clusterpass/shared/secrets"
	"github.com/clusterpass/clusterpass/shared/waittest"
	"github.com/clusterpass/clusterpass/test/e2e"
	"github.com/clusterpass/clusterpass/websocket-bridge/agent/credential"
)

// privateCluster is a private cluster and its test.
type privateCluster struct {
	t *testing.T
	e2e.PrivateCluster
}

// joinPrivate registers member2 once more, until the test ends.
func joinPrivate(t *testing.T, name string, flags ...string) *privateCluster {
	t.Helper()
	p := &privateCluster{t: t, PrivateCluster: e2e.PrivateCluster{
		Name: name, Member: e2e.Clusters.Cluster("member2"), Gateway: e2e.Shared(t).Kubeconfig,
	}}
	p.Join(t, append(flags, "--tunnel", e2e.SharedTunnel(t))...)
	return p
}

func (p *privateCluster) readyCondition() string {
	p.t.Helper()
	return e2e.OwnAPI(p.t).Run(p.t, "get", "cluster", p.Name, "-o",
		`jsonpath={range .status.conditions[?(@.type=="Ready")]}{.status} {.reason}{end}`).Stdout
}

type agentProcess struct {
	t     *testing.T
	cmd   *exec.Cmd
	log   *waittest.Buffer
	admin string
	ended chan struct{}
}

func (p *privateCluster) startReadyAgent(env ...string) *agentProcess {
	p.t.Helper()
	a := p.startAgent(env...)
	waittest.Until(p.t, "agent is ready", func() bool { code, _ := a.get("/readyz"); return code == http.StatusOK })
	return a
}

func (p *privateCluster) startAgent(env ...string) *agentProcess {
	p.t.Helper()
	a := &agentProcess{t: p.t, cmd: p.AgentCommand(p.t, env...), log: &waittest.Buffer{}, ended: make(chan struct{})}
	a.cmd.Stderr = io.MultiWriter(a.log, e2e.Printed)
	if err := a.cmd.Start(); err != nil {
		p.t.Fatal(err)
	}
	go func() { defer close(a.ended); _ = a.cmd.Wait() }()
	p.t.Cleanup(func() { a.kill() })
	a.admin = "http://" + e2e.WaitForLog(p.t, a.log, `"admin":"([^"]+)"`)
	return a
}

func (a *agentProcess) kill() { _ = a.cmd.Process.Kill(); <-a.ended }

func (a *agentProcess) get(path string) (int, string) {
	resp, err := http.Get(a.admin + path)
	if err != nil {
		return 0, ""
	}
	defer resp.Body.Close()
	body, _ := io.ReadAll(resp.Body)
	return resp.StatusCode, string(body)
}

func (a *agentProcess) openStreams() int {
	_, metrics := a.get("/metrics")
	found := regexp.MustCompile(`(?m)^clusterpass_agent_streams (\d+)$`).FindStringSubmatch(metrics)
	if found == nil {
		a.t.Fatalf("no such metric in\n%s", metrics)
	}
	n, _ := strconv.Atoi(found[1])
	return n
}

// TestPrivateCluster: each command must work for clusters without an inbound route.
func TestPrivateCluster(t *testing.T) {
	ns := e2e.StreamPods(t, []string{"member2"}, "shell", "reader", "talker-a", "finite-a")
	p := joinPrivate(t, "private")
	client, root := e2e.Caller(t)
	d, g := e2e.Direct("member2"), e2e.Kubectl{Kubeconfig: e2e.Shared(t).Kubeconfig, Context: "member2", Server: root +
		"/clusters/private"}

	// The first path goes through a function, and the second through the bridge.
	for _, path := range []string{"/clusters/private/version", "/bridge/clusters/private/version"} {
		resp, err := client.Get(root + path)
		if err != nil {
			t.Fatal(err)
		}
		var st metav1.Status
		err = json.NewDecoder(resp.Body).Decode(&st)
		_ = resp.Body.Close()
		if err != nil || resp.StatusCode != 502 || st.Details == nil || st.Details.Name != "private" ||
			!strings.Contains(st.Message, "none of its agents") {
			t.Errorf("%s without an agent: %s %+v, %v", path, resp.Status, st, err)
		}
	}
	e2e.WaitForValue(t, "False unreachable", p.readyCondition)
	a, b := p.startReadyAgent(), p.startReadyAgent()
	waittest.Until(t, "private cluster is reachable", func() bool { return g.Run(t, "get", "namespaces").Code == 0 })
	e2e.WaitForValue(t, "True ClusterReady", p.readyCondition)
	if got := strings.Fields(e2e.OwnAPI(t).Must(t, "get", "clusters", "private", "--no-headers")); len(got) != 5 ||
		got[2] != "Pull" || got[3] != "True" {
		t.Errorf("kubectl shows %q", got)
	}

	t.Run("rest", func(t *testing.T) {
		for _, args := range [][]string{
			{"get", "pods", "-n", ns, "-o", "name"}, {"api-resources", "--no-headers"}, {"auth", "whoami", "-o", "name"},
			{"get", "pod", "nosuchpod"},
		} {
			e2e.CheckSameResult(t, e2e.Clusters.BuiltKubectl(), d, g, "", args...)
		}
		g.Must(t, "-n", ns, "create", "configmap", "by-tunnel", "--from-literal=a=b")
		d.Must(t, "-n", ns, "delete", "configmap", "by-tunnel")
	})
	e2e.RecordNamespace(t, ns, "required", false, func() { g.Run(t, "-n", ns, "exec", "shell", "--", "true") })
	for _, dialect := range e2e.Dialects {
		t.Run("streams/"+dialect.Name, func(t *testing.T) { checkPrivateStreams(t, dialect, ns, d, g) })
	}
	t.Run("an agent dies", func(t *testing.T) {
		checkAgentDeath(t, a, b, g, ns)
	})
	t.Run("removed", func(t *testing.T) {
		if out, err := e2e.CLI(t, "", "cluster", "remove", "private"); err != nil {
			t.Fatalf("%v\n%s", err, out)
		}
		waittest.Until(t, "agent is not ready", func() bool { code, _ := b.get("/readyz"); return code == 503 })
	})
}

// checkAgentDeath opens sessions through both agents and kills one. Only its sessions end.
func checkAgentDeath(t *testing.T, a, b *agentProcess, g e2e.Kubectl, ns string) {
	t.Helper()
	var open []*e2e.Session
	ofA, ofB := a.openStreams(), b.openStreams() // idle connections of functions and bridge
	for a.openStreams() < ofA+4 || b.openStreams() < ofB+4 {
		if len(open) > 60 {
			t.Fatal("one agent carries all")
		}
		s := g.Start(t, e2e.Clusters.BuiltKubectl(), "-n", ns, "exec", "-i", "shell", "--", "cat")
		if _, err := io.WriteString(s.Stdin, "ready\n"); err != nil {
			t.Fatal(err)
		}
		s.Line("ready")
		open = append(open, s)
	}
	a.kill()
	waittest.Until(t, "other agent serves", func() bool { return g.Run(t, "get", "namespaces").Code == 0 })
	lost, kept := 0, 0
	for _, s := range open {
		if _, err := io.WriteString(s.Stdin, "still\n"); err != nil {
			lost++
			continue
		}
		select {
		case line, more := <-s.Lines:
			if more && line == "still" {
				kept++
			} else {
				lost++
			}
		case <-time.After(e2e.Patience):
			t.Error("a session hangs whose agent has died")
		}
	}
	if lost == 0 || kept == 0 {
		t.Errorf("%d sessions were lost with the agent, and %d kept", lost, kept)
	}
}

func checkPrivateStreams(t *testing.T, dialect e2e.Dialect, ns string, d, g e2e.Kubectl) {
	d.Env, g.Env = dialect.Env, dialect.Env
	bin := e2e.Clusters.BuiltKubectl()
	in := func(args ...string) []string { return append([]string{"-n", ns}, args...) }
	for _, args := range [][]string{
		in("exec", "shell", "--", "sh", "-c", "echo "+dialect.Name+"; echo err >&2; exit 7"), in("logs", "-f", "finite-a"),
		in("exec", "nosuchpod", "--", "true"),
	} {
		e2e.CheckSameResult(t, bin, d, g, "", args...)
	}
	e2e.WaitForRecording(t, ns, "exec through a tunnel", func(r e2e.Recording) bool { // all dialects share ns
		return r.Events[recording.Output] == dialect.Name+"\n" && r.Events[recording.Stderr] == "err\n"
	})
	label := fmt.Sprint("at-", time.Now().UnixNano())
	watch := g.Start(t, bin, in("get", "pods", "-w", "-L", "moved")...)
	watch.Line("shell")
	d.Must(t, in("label", "pod", "shell", "--overwrite", "moved="+label)...)
	watch.Line(label)
	logs := g.Start(t, bin, in("logs", "-f", "talker-a", "--since=1s")...)
	logs.Line("a ")
	attach := g.Start(t, bin, in("attach", "-i", "reader")...)
	if _, err := fmt.Fprintf(attach.Stdin, "line %s\n", label); err != nil {
		t.Fatal(err)
	}
	attach.Line("got line " + label)
	_ = attach.Cmd.Process.Kill()
	e2e.WaitForRecording(t, ns, "attach through a tunnel", func(r e2e.Recording) bool {
		return r.Kind == recording.Attach && r.Cluster == "private" &&
			strings.Contains(r.Events[recording.Output], "got line "+label)
	})

	data := bytes.Repeat([]byte("0123456789abcdef"), 1<<18) // 4 MB
	source, back := filepath.Join(t.TempDir(), "source"), filepath.Join(t.TempDir(), "back")
	if err := os.WriteFile(source, data, 0o600); err != nil {
		t.Fatal(err)
	}
	g.Must(t, in("cp", source, "shell:by-tunnel")...)
	g.Must(t, in("cp", "shell:by-tunnel", back)...)
	if got, err := os.ReadFile(back); err != nil || !bytes.Equal(got, data) {
		t.Errorf("cp: %d of %d bytes came back, %v", len(got), len(data), err)
	}
	isLater := e2e.LaterRecordings(t, ns)
	forward, addr := e2e.PortForward(t, g, bin, ns, e2e.EchoServer(t))
	if got, err := e2e.RoundTrip(addr, data); err != nil || !bytes.Equal(got, data) {
		t.Errorf("port-forward: %d of %d bytes came back, %v", len(got), len(data), err)
	}
	_ = forward.Cmd.Process.Kill()
	e2e.WaitForRecording(t, ns, "port-forward through a tunnel", func(r e2e.Recording) bool {
		var in, out int
		_, err := fmt.Sscanf(r.Events[recording.Transferred], "in=%d out=%d", &in, &out)
		return isLater(r) && r.Kind == recording.PortForward && err == nil && in >= len(data) && out >= len(data)
	})
}

// TestListedService: agents must connect to the services that they list, and to no others.
func TestListedService(t *testing.T) {
	p := joinPrivate(t, "landlord")
	address := strings.TrimPrefix(e2e.Clusters.Cluster("member1").Server(), "https://")
	tunnel := e2e.SharedTunnel(t) + "/landlord"
	if out, err := e2e.CLI(t, "", "cluster", "add", "tenant", "--kubeconfig", e2e.Clusters.KubeconfigFile(), "--context",
		"member1", "--tunnel", tunnel); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	t.Cleanup(func() { _, _ = e2e.CLI(t, "", "cluster", "remove", "tenant") })
	if out, err := e2e.CLI(t, "", "cluster", "add", "nowhere", "--kubeconfig", e2e.Clusters.KubeconfigFile(), "--context",
		"member1", "--tunnel", tunnel+"/land"); err == nil || !strings.Contains(out, "spec.proxyURL") {
		t.Errorf("a proxyURL that names no cluster: %v\n%s", err, out)
	}
	_, root := e2e.Caller(t)
	a := p.startReadyAgent()
	for _, via := range []string{"", "/bridge"} {
		g := e2e.Kubectl{Kubeconfig: e2e.Shared(t).Kubeconfig, Context: "member1", Server: root + via + "/clusters/tenant"}
		waittest.Until(t, "unlisted service is refused", func() bool {
			r := g.Run(t, "get", "nodes")
			return r.Code != 0 && strings.Contains(r.Stderr, "CLUSTERPASS_SERVICES") && strings.Contains(r.Stderr, address)
		})
	}
	a.kill()
	p.startReadyAgent("CLUSTERPASS_SERVICES=" + address)
	for _, via := range []string{"", "/bridge"} {
		g := e2e.Kubectl{Kubeconfig: e2e.Shared(t).Kubeconfig, Context: "member1", Server: root + via + "/clusters/tenant"}
		waittest.Until(t, "listed service is reachable", func() bool {
			return g.Run(t, "get", "nodes", "-o", "name").Stdout == "node/"+e2e.Clusters.Cluster("member1").Node()+"\n"
		})
	}
}

// TestAgentManifest: API servers with restricted pods must accept join's manifest. Agents must read only their own
// Secret.
func TestAgentManifest(t *testing.T) {
	const proxyURL = "http://agent:hunter2@proxy.example.com:3128"
	e2e.Secrets.Secret("the proxy's user", "hunter2")
	p := joinPrivate(t, "manifest", "--agent-proxy", proxyURL, "--agent-service", "a.example.com:443", "--agent-service",
		"b.example.com:6443")
	d := e2e.Direct("member2")
	d.Must(t, "label", "namespace", "clusterpass-system", "--overwrite", "pod-security.kubernetes.io/enforce=restricted",
		"pod-security.kubernetes.io/warn=restricted")
	defer d.Must(t, "label", "namespace", "clusterpass-system", "pod-security.kubernetes.io/enforce-",
		"pod-security.kubernetes.io/warn-")
	d.Stdin = strings.NewReader(p.Manifest)
	r := d.Run(t, "apply", "-f", "-")
	if r.Code != 0 || strings.Contains(r.Stderr, "PodSecurity") {
		t.Fatalf("%v", r)
	}
	d.Stdin = nil
	name := strings.TrimPrefix(strings.Fields(d.Must(t, "-n", "clusterpass-system", "get", "deployments", "-l",
		"clusterpass.io/cluster=manifest", "-o", "name"))[0], "deployment.apps/")
	defer d.Must(t, "-n", "clusterpass-system", "delete", "deployment/"+name, "secret/"+name, "role/"+name, "rolebinding/"+
		name, "serviceaccount/"+name)
	if got := d.Must(t, "-n", "clusterpass-system", "get", "deployment", name, "-o",
		"jsonpath={.spec.replicas}"); got != "2" {
		t.Errorf("%s replicas", got)
	}
	got := d.Must(t, "-n", "clusterpass-system", "get", "deployment", name, "-o",
		`jsonpath={.spec.template.spec.containers[0].env[?(@.name=="HTTPS_PROXY")].valueFrom.secretKeyRef}`)
	encoded := d.Must(t, "-n", "clusterpass-system", "get", "secret", name, "-o", `jsonpath={.data.https-proxy}`)
	if value, err := base64.StdEncoding.DecodeString(encoded); err != nil || string(value) != proxyURL ||
		!strings.Contains(got, `"key":"https-proxy"`) || strings.Count(p.Manifest, "hunter2") > 0 {
		t.Errorf("the agents' proxy: %s, %v", got, err)
	}
	if got := d.Must(t, "-n", "clusterpass-system", "get", "deployment", name, "-o",
		`jsonpath={.spec.template.spec.containers[0].env[?(@.name=="CLUSTERPASS_SERVICES")].value}`); got !=
		"a.example.com:443,b.example.com:6443" {
		t.Errorf("the agents' services: %q", got)
	}
	cfg := e2e.Clusters.Cluster("member2").RESTConfig()
	cfg.Impersonate.UserName = "system:serviceaccount:clusterpass-system:" + name
	client, err := typed.NewForConfig(cfg)
	if err != nil {
		t.Fatal(err)
	}
	store := &credential.Secret{Client: client, Namespace: "clusterpass-system", Name: name}
	first, err := os.ReadFile(p.CredentialFile)
	if err != nil {
		t.Fatal(err)
	}
	var before credential.Stored
	waittest.Until(t, "credential is stored", func() bool {
		before, err = store.Load(t.Context())
		return err == nil && string(before.Bootstrap.Reveal()) == string(first)
	})
	renewed := credential.State{Token: secrets.NewValue([]byte("renewed"))}
	if err := store.Save(t.Context(), before, renewed); err != nil {
		t.Errorf("the agents cannot store what they renew: %v", err)
	}
	after, err := store.Load(t.Context())
	if err != nil || !after.State.Token.Equal(renewed.Token) || !after.Bootstrap.Equal(before.Bootstrap) {
		t.Errorf("stored: %v", err)
	}
	if err := store.Save(t.Context(), before, credential.State{}); !errors.Is(err, credential.ErrChanged) {
		t.Errorf("one agent overwrites what another has stored: %v", err)
	}
	as := "--as=system:serviceaccount:clusterpass-system:" + name
	for verb, may := range map[string]bool{"get secret/" + name: true, "patch secret/" + name: true, "list secrets": false,
		"get secret/other": false, "update secret/" + name: false, "get pods": false} {
		args := append(append([]string{"-n", "clusterpass-system", "auth", "can-i"}, strings.Fields(verb)...), as)
		isAllowed := func() bool { return strings.HasPrefix(d.Run(t, args...).Stdout, "yes") }
		if may {
			waittest.Until(t, "agents may "+verb, isAllowed)
		} else if isAllowed() {
			t.Errorf("the agents may %s", verb)
		}
	}
}
