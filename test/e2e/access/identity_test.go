package access_test

import (
	"encoding/json"
	"encoding/pem"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/clusterpass/clusterpass/shared/awsclient/mototest"
	"github.com/clusterpass/clusterpass/shared/cluster"
	"github.com/clusterpass/clusterpass/shared/eks/ststest"
	"github.com/clusterpass/clusterpass/shared/identity"
	"github.com/clusterpass/clusterpass/shared/pki"
	"github.com/clusterpass/clusterpass/shared/registration"
	"github.com/clusterpass/clusterpass/shared/secrets"
	"github.com/clusterpass/clusterpass/shared/stores"
	"github.com/clusterpass/clusterpass/test/e2e"
)

const actorYAML = `
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRole
metadata: {name: actor}
rules:
- {apiGroups: [""], resources: [users], resourceNames: [carol], verbs: [impersonate]}
- {apiGroups: [""], resources: [groups], resourceNames: [painters], verbs: [impersonate]}
- {apiGroups: [authentication.k8s.io], resources: [uids], resourceNames: ["17"], verbs: [impersonate]}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRoleBinding
metadata: {name: actor}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: actor}
subjects: [{kind: User, name: actor}]
`

// TestKubectlImpersonation: with kubectl's --as flags, no other identity is used, and none that RBAC does not grant
// completely.
func TestKubectlImpersonation(t *testing.T) {
	e2e.Grant(t, "member1", "carol")
	if out, err := e2e.CLI(t, actorYAML, "apply", "-f", "-"); err != nil {
		t.Fatalf("%s%v", out, err)
	}
	t.Cleanup(func() { _, _ = e2e.CLI(t, actorYAML, "delete", "-f", "-") })
	k := e2e.Kubectl{Kubeconfig: e2e.CertificateKubeconfig(t, "actor"), Context: "member1"}
	whoami := []string{"auth", "whoami", "-o", "json", "--as", "carol", "--as-group", "painters", "--as-uid", "17"}
	var who struct {
		Status struct {
			UserInfo struct {
				Username, UID string
				Groups        []string
				Extra         map[string][]string
			}
		}
	}
	if err := json.Unmarshal([]byte(k.MustEventually(t, whoami...)), &who); err != nil {
		t.Fatal(err)
	}
	u := who.Status.UserInfo
	slices.Sort(u.Groups)
	if u.Username != "carol" || u.UID != "17" || !slices.Equal(u.Groups, []string{"painters", "system:authenticated"}) ||
		!slices.Equal(u.Extra[identity.ExtraOriginalUser], []string{"actor"}) {
		t.Errorf("the member sees %+v", u)
	}
	for _, tt := range []struct {
		want string
		as   []string
	}{
		{`User "actor" cannot impersonate resource "users"`, []string{"--as", "root"}},
		{`User "actor" cannot impersonate resource "groups"`, []string{"--as", "carol", "--as-group", "system:masters"}},
		{`User "actor" cannot impersonate resource "groups"`, []string{"--as", "carol", "--as-group", "painters",
			"--as-group", "admins"}},
		{`User "actor" cannot impersonate resource "uids"`, []string{"--as", "carol", "--as-uid", "18"}},
		{`User "actor" cannot impersonate resource "serviceaccounts"`,
			[]string{"--as", "system:serviceaccount:kube-system:default"}},
		{`User "actor" cannot get resource "clusters/proxy"`, nil}, // the grant is carol's alone
	} {
		k.NeverAllowed(t, tt.want, append([]string{"get", "--raw", "/clusters/member1/version"}, tt.as...)...)
	}
}

// TestAWSCaller: a caller's AWS role must become the mapped user, and a token for another gateway must be refused.
func TestAWSCaller(t *testing.T) {
	python, err := mototest.Python("awscli")
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"AWS_PROFILE", "AWS_DEFAULT_PROFILE", "AWS_ENDPOINT_URL", "AWS_ENDPOINT_URL_STS"} {
		t.Setenv(name, "") // restores the variable when the test ends
		if err := os.Unsetenv(name); err != nil {
			t.Fatal(err)
		}
	}
	const user = "aws:ann"
	store := stores.Address{Kind: "dir", Where: t.TempDir()}
	st, err := stores.Open(t.Context(), store)
	if err != nil {
		t.Fatal(err)
	}
	member := registration.Request{Name: "member1",
		Kubeconfig: secrets.NewValue(e2e.Clusters.Cluster("member1").Kubeconfig())}
	if _, err := (&registration.Registrar{Secrets: st.Secrets, Objects: st.Objects,
		Policy: cluster.DialPolicy{AllowLoopback: true}}).Register(t.Context(), member); err != nil {
		t.Fatal(err)
	}
	for key, value := range map[string]string{
		"clusterroles/all": `{"rules":[` +
			`{"apiGroups":["cluster.karmada.io"],"resources":["clusters/proxy"],"verbs":["*"]}]}`,
		"clusterrolebindings/all": `{"roleRef":` +
			`{"apiGroup":"rbac.authorization.k8s.io","kind":"ClusterRole","name":"all"},` +
			`"subjects":[{"apiGroup":"rbac.authorization.k8s.io","kind":"User","name":"aws:ann"}]}`,
	} {
		if _, err := st.Objects.Create(t.Context(), key, []byte(value)); err != nil {
			t.Fatal(err)
		}
	}
	clientCA, err := pki.LoadCA(t.TempDir(), "client-ca")
	if err != nil {
		t.Fatal(err)
	}
	sts := ststest.New(t)
	env := sts.Env(t)
	env["CLUSTERPASS_STORE"], env["CLUSTERPASS_CLIENT_CA"] = store.String(), string(clientCA.PEM())
	env["CLUSTERPASS_AUTHENTICATION"] = `awsIAM:
  gatewayID: gateway-1
  rules: [{arn: "arn:aws:iam::111122223333:role/dev", username: "aws:{{SessionName}}", groups: [dev]}]
`
	srv := e2e.ProxyFunction(t, 8, ststest.Region, env) // kubectl makes several calls at once
	ca := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: srv.Certificate().Raw})
	bin := t.TempDir()
	if err := os.WriteFile(filepath.Join(bin, "aws"), []byte(fmt.Sprintf("#!/bin/sh\nexec %q -m awscli \"$@\"\n", python)),
		0o700); err != nil {
		t.Fatal(err)
	}
	loginFor := func(clusterName string) e2e.Kubectl {
		file := filepath.Join(t.TempDir(), "kubeconfig")
		if out, err := e2e.CLI(t, "", "login", srv.URL, "--ca", e2e.WriteFile(t, string(ca)), "--kubeconfig", file,
			"--skip-check", "--cluster", "member1",
			"--eks-name", clusterName, "--aws-region", ststest.Region); err != nil {
			t.Fatalf("%s%v", out, err)
		}
		return e2e.Kubectl{Context: "member1", Kubeconfig: file, Env: []string{
			"PATH=" + bin + string(os.PathListSeparator) + os.Getenv("PATH"),
			"AWS_ACCESS_KEY_ID=" + ststest.Key.AccessKeyID, "AWS_SECRET_ACCESS_KEY=" + ststest.Key.SecretAccessKey,
			"AWS_SESSION_TOKEN=" + ststest.Key.SessionToken,
			"AWS_CONFIG_FILE=/dev/null", "AWS_SHARED_CREDENTIALS_FILE=/dev/null",
		}}
	}
	k := loginFor("gateway-1")
	sts.ARN.Store("arn:aws:sts::111122223333:assumed-role/ops/ann")
	k.NeverAllowed(t, "has no user here", "get", "--raw", "/clusters/member1/version")
	sts.ARN.Store(ststest.Role)
	// The function waits only some seconds for STS, so a request may fail on a busy machine.
	if got := k.MustEventually(t, "auth", "whoami", "-o",
		"jsonpath={.status.userInfo.username} {.status.userInfo.groups}"); got != user+` ["dev","system:authenticated"]` {
		t.Errorf("the member sees %s", got)
	}
	k.NeverAllowed(t, `User "aws:ann" cannot list resource "nodes"`, "get", "nodes")
	loginFor("production").NeverAllowed(t, "it is not for this gateway: get one with --cluster-name gateway-1", "get",
		"--raw",
		"/clusters/member1/version")
}
