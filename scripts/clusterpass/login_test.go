package main

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
)

const loginURL = "https://gateway.example.com"

func loginInto(t *testing.T, c clusterpass, path string) func(args ...string) *clientcmdapi.Config {
	t.Helper()
	before, err := clientcmd.LoadFromFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return func(args ...string) *clientcmdapi.Config {
		t.Helper()
		if out, err := c.run(t,
			append([]string{"login", loginURL, "--kubeconfig", path, "--skip-check"}, args...)...); err != nil {
			t.Fatalf("%v: %s%v", args, out, err)
		}
		kc, err := clientcmd.LoadFromFile(path)
		if err != nil {
			t.Fatal(err)
		}
		if kc.CurrentContext != before.CurrentContext || kc.Contexts["lab"] == nil ||
			kc.Clusters["c"].Server != before.Clusters["c"].Server || kc.AuthInfos["u"].Token != before.AuthInfos["u"].Token {
			t.Errorf("%v: entries of others changed", args)
		}
		return kc
	}
}

// TestLoginWrites: login writes a working kubeconfig, also repeatedly, and does not change entries of others.
func TestLoginWrites(t *testing.T) {
	c, theirs := setup(t)
	login := loginInto(t, c, theirs)
	kc := login("--oidc-issuer", "https://login.example.com", "--oidc-client", "cp", "--oidc-scope", "groups",
		"--oidc-arg=--grant-type=device-code", "--cluster", "m1,m2")
	exec := kc.AuthInfos["clusterpass"].Exec
	if want := []string{
		"oidc-login", "get-token", "--oidc-issuer-url=https://login.example.com", "--oidc-client-id=cp",
		"--oidc-extra-scope=groups", "--grant-type=device-code",
	}; exec.Command != "kubectl" || !slices.Equal(exec.Args, want) {
		t.Errorf("%s %q", exec.Command, exec.Args)
	}
	for context, server := range map[string]string{
		"clusterpass": loginURL, "fleet": loginURL + "/fleet", "fleet@": loginURL + "/fleet/@",
		"m1": loginURL + "/clusters/m1", "m2": loginURL + "/clusters/m2",
	} {
		if got := kc.Clusters[kc.Contexts[context].Cluster].Server; got != server {
			t.Errorf("the server of context %s is %s", context, got)
		}
	}
	// Another user reaches fewer clusters, so the other contexts are removed.
	kc = login("--eks-name", "cp", "--aws-region", "eu-west-1", "--aws-profile", "work", "--cluster", "m2")
	exec = kc.AuthInfos["clusterpass"].Exec
	if want := []string{
		"--region", "eu-west-1", "eks", "get-token", "--cluster-name", "cp", "--output", "json",
	}; exec.Command != "aws" || !slices.Equal(exec.Args, want) || exec.Env[0].Value != "work" {
		t.Errorf("%s %q %v", exec.Command, exec.Args, exec.Env)
	}
	if kc.Contexts["m1"] != nil || kc.Contexts["m2"] == nil {
		t.Errorf("contexts %v", kc.Contexts)
	}
	kc = login("--eks-name", "cp", "--prefix", "work-", "--cluster", "lab")
	if kc.Contexts["work-lab"] == nil || kc.Contexts["work-fleet"] == nil || kc.Contexts["m2"] == nil {
		t.Errorf("contexts %v", kc.Contexts)
	}
}

// TestLoginCreatesKubeconfig fails if other users of the machine can read a new kubeconfig.
func TestLoginCreatesKubeconfig(t *testing.T) {
	c, _ := setup(t)
	path := filepath.Join(t.TempDir(), "config")
	out, err := c.run(t, "login", loginURL, "--kubeconfig", path, "--skip-check", "--eks-name", "x", "--cluster", "m1")
	if err != nil || !strings.Contains(out, "kubectl --kubeconfig "+path+" --context m1 get nodes") {
		t.Errorf("%s%v", out, err)
	}
	if info, err := os.Stat(path); err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("%v, %v", info, err)
	}
}

func TestLoginRefusals(t *testing.T) {
	c, theirs := setup(t)
	const gw = "https://gateway.example.com"
	if out, err := c.run(t, "login", gw, "--kubeconfig", theirs, "--skip-check", "--eks-name", "x"); err != nil {
		t.Fatalf("%s%v", out, err)
	}
	after, err := os.ReadFile(theirs)
	if err != nil {
		t.Fatal(err)
	}
	for _, tt := range []struct {
		args []string
		want string
	}{
		{[]string{gw}, "choose a credential"}, // and --skip-check forbids asking the gateway
		{[]string{gw, "--eks-name", "x", "--pass", "y"}, "with one of"},
		{[]string{"--eks-name", "x"}, "the gateway is missing"},
		{[]string{gw, "--client-certificate", "x"}, "--client-key"},
		{[]string{gw, "--eks-name", "x", "--client-key", "y"}, "--client-certificate"},
		{[]string{gw + "/clusters/m1", "--eks-name", "x"}, "no gateway's URL"},
		{[]string{"http://gateway.example.com", "--eks-name", "x"}, "no gateway's URL"},
		{[]string{gw, "--oidc-issuer", "https://x"}, "--oidc-client"},
		{[]string{"--pass", theirs + ".nosuch"}, "no such file"},
		{[]string{gw, "--eks-name", "x", "--cluster", "lab"}, `the context "lab" exists for another server`},
		{[]string{gw, "--eks-name", "x", "--cluster", "c"}, `the cluster "c" exists for another server`},
		{[]string{"https://other.example.com", "--eks-name", "x"}, "exists for another server"},
	} {
		if out, err := c.run(t,
			append([]string{"login", "--kubeconfig", theirs, "--skip-check"}, tt.args...)...); err == nil ||
			!strings.Contains(err.Error(), tt.want) {
			t.Errorf("%v: %s%v, want %q", tt.args, out, err, tt.want)
		}
	}
	if now, err := os.ReadFile(theirs); err != nil || string(now) != string(after) {
		t.Errorf("a refused login changes the file: %v", err)
	}
}

func kubeconfigFile(t *testing.T, content string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "config")
	if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

// TestLoginBesideOthers: if kubectl reads several files, login writes into one and hides no entry of the others.
func TestLoginBesideOthers(t *testing.T) {
	c, _ := setup(t)
	first := kubeconfigFile(t, "{apiVersion: v1, kind: Config}")
	second := kubeconfigFile(t, `
apiVersion: v1
kind: Config
current-context: prod
contexts: [{name: prod, context: {cluster: c, user: u}}, {name: other, context: {cluster: c, user: work-clusterpass}}]
clusters: [{name: c, cluster: {server: "https://elsewhere.example.com"}}]
users: [{name: u, user: {token: x}}, {name: work-clusterpass, user: {token: sesame}}]
`)
	before, err := os.ReadFile(second)
	if err != nil {
		t.Fatal(err)
	}
	t.Setenv("KUBECONFIG", first+string(filepath.ListSeparator)+second)
	login := func(args ...string) (string, error) {
		return c.run(t,
			append([]string{"login", "https://gateway.example.com", "--eks-name", "x", "--skip-check"}, args...)...)
	}
	for want, args := range map[string][]string{
		`the context "prod" exists for another server`:       {"--cluster", "prod"},
		`the cluster "c" exists for another server`:          {"--cluster", "c"},
		`the user "work-clusterpass" exists for the context`: {"--cluster", "m1", "--prefix", "work-"},
	} {
		if out, err := login(args...); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v: %s%v, want %s", args, out, err, want)
		}
	}
	out, err := login("--cluster", "prod", "--prefix", "my-")
	if err != nil || !strings.Contains(out, "kubectl --context my-prod get nodes") {
		t.Errorf("%s%v", out, err)
	}
	kc, err := clientcmd.LoadFromFile(first)
	if err != nil || len(kc.Contexts) != 4 || kc.Contexts["my-prod"] == nil || kc.CurrentContext != "" {
		t.Errorf("%+v, %v", kc, err)
	}
	if now, err := os.ReadFile(second); err != nil || string(now) != string(before) {
		t.Errorf("the other file is changed: %v", err)
	}
}

// TestLoginKeeps: users' changes to their contexts survive the next login.
func TestLoginKeeps(t *testing.T) {
	c, _ := setup(t)
	file := filepath.Join(t.TempDir(), "config")
	login := func(clusters string) *clientcmdapi.Config {
		t.Helper()
		if out, err := c.run(t, "login", "https://gateway.example.com", "--eks-name", "x", "--skip-check", "--kubeconfig",
			file, "--cluster", clusters); err != nil {
			t.Fatalf("%s%v", out, err)
		}
		kc, err := clientcmd.LoadFromFile(file)
		if err != nil {
			t.Fatal(err)
		}
		return kc
	}
	kc := login("prod,m1")
	kc.Contexts["prod"].Namespace = "shop"
	kc.Contexts["mine"] = &clientcmdapi.Context{Cluster: "prod", AuthInfo: "clusterpass", Namespace: "billing"}
	kc.CurrentContext = "mine"
	if err := clientcmd.WriteToFile(*kc, file); err != nil {
		t.Fatal(err)
	}
	mine := func() {
		t.Helper()
		if got := kc.Contexts["mine"]; got == nil || got.Namespace != "billing" || kc.Clusters[got.Cluster] == nil ||
			kc.CurrentContext != "mine" {
			t.Errorf("mine is %+v", got)
		}
	}
	if kc = login("prod"); kc.Contexts["prod"].Namespace != "shop" || kc.Contexts["m1"] != nil ||
		kc.Clusters["m1"] != nil {
		t.Errorf("contexts %v", kc.Contexts)
	}
	mine()
	if kc = login("m1"); kc.Contexts["prod"] != nil || kc.Contexts["m1"] == nil {
		t.Errorf("contexts %v", kc.Contexts)
	}
	mine()
}

// TestLoginByPass: a file given as a pass cannot run programs or send local files.
func TestLoginByPass(t *testing.T) {
	c, _ := setup(t)
	login := func(user, cluster string) (string, error) {
		pass := kubeconfigFile(t, `
apiVersion: v1
kind: Config
contexts: [{name: clusterpass, context: {cluster: clusterpass, user: clusterpass}}]
clusters: [{name: clusterpass, cluster: {server: "https://gateway.example.com"`+cluster+`}}]
users: [{name: clusterpass, user: {`+user+`}}]
`)
		return c.run(t, "login", "--pass", pass, "--kubeconfig", filepath.Join(t.TempDir(), "config"), "--skip-check",
			"--cluster", "m1")
	}
	if out, err := login("token: x", ""); err != nil {
		t.Errorf("%s%v", out, err)
	}
	for user, want := range map[string]string{
		"exec: {command: reboot, apiVersion: client.authentication.k8s.io/v1, interactiveMode: Never}": "it has exec",
		"auth-provider: {name: oidc}":                              "it has auth-provider",
		"tokenFile: /etc/hostname":                                 "it has tokenFile",
		"token: x, tokenFile: /etc/hostname":                       "it has tokenFile",
		"client-certificate: me.pem, client-key-data: eA==":        "it has client-certificate,",
		"client-certificate-data: eA==, client-key: /etc/hostname": "it has client-key,",
		"username: ann, password: sesame":                          "neither token nor",
	} {
		if out, err := login(user, ""); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %s%v, want %s", user, out, err, want)
		}
	}
	if out, err := login("token: x", ", certificate-authority: ca.pem"); err == nil ||
		!strings.Contains(err.Error(), "it has certificate-authority") {
		t.Errorf("%s%v", out, err)
	}
}

func TestCompletion(t *testing.T) {
	c, kc := setup(t)
	if out, err := c.run(t, "cluster", "add", "lab", "--kubeconfig", kc, "--skip-check", "--identity",
		"impersonate"); err != nil {
		t.Fatalf("%s%v", out, err)
	}
	for shell, want := range map[string]string{
		"bash": "__start_clusterpass", "zsh": "#compdef clusterpass", "fish": "complete -c clusterpass",
	} {
		if out, err := c.run(t, "completion", shell); err != nil || !strings.Contains(out, want) {
			t.Errorf("%s: %v", shell, err)
		}
	}
	if out, err := c.run(t, "__complete", "cluster", "remove", ""); err != nil || !strings.HasPrefix(out, "lab\n") {
		t.Errorf("%s%v", out, err)
	}
	cmd := named(root(), []string{"/usr/bin/kubectl_complete-clusterpass", "do"})
	var out strings.Builder
	cmd.SetOut(&out)
	if err := cmd.ExecuteContext(t.Context()); err != nil || !strings.Contains(out.String(), "doctor\t") {
		t.Errorf("%s%v", out.String(), err)
	}
}
