package scripts

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// fakeEKSAccess plays the AWS CLI for three clusters: one without an entry, one with an entry, and one that accepts
// none.
const fakeEKSAccess = `#!/bin/sh
echo "$*" >> "$(dirname "$0")/calls"
case "$*" in
  $FAILING) echo AccessDenied >&2; exit 254 ;;
  $EMPTY) echo ;;
  *describe-stacks*) printf 'arn:proxy\tarn:bridge\n' ;;
  *list-clusters*) printf 'new\told\tlegacy\n' ;;
  *"describe-cluster --name legacy"*) echo CONFIG_MAP ;;
  *describe-cluster*) echo API ;;
  *"list-access-entries --cluster-name old"*) printf 'arn:proxy-of-others\tarn:proxy\n' ;;
esac
`

// A run that gave no access must not look like a success.
func TestEKSAccessFailsWithoutClustersOrRoles(t *testing.T) {
	bin := t.TempDir()
	if err := os.WriteFile(filepath.Join(bin, "aws"), []byte(fakeEKSAccess), 0o755); err != nil {
		t.Fatal(err)
	}
	for name, tt := range map[string]struct {
		variable string
		code     int
		want     string
	}{
		"no roles":           {"EMPTY=*describe-stacks*", 1, "the stack clusterpass has no outputs with roles"},
		"no clusters":        {"EMPTY=*list-clusters*", 1, "have no EKS cluster"},
		"unreadable stack":   {"FAILING=*describe-stacks*", 254, "AccessDenied"},
		"unlisted clusters":  {"FAILING=*list-clusters*", 254, "AccessDenied"},
		"unreadable entries": {"FAILING=*list-access-entries*", 254, "AccessDenied"},
	} {
		t.Run(name, func(t *testing.T) {
			cmd := exec.CommandContext(t.Context(), "./eks-access", "gateway", "clusterpass")
			cmd.Env = append(os.Environ(), "PATH="+bin+":"+os.Getenv("PATH"), tt.variable)
			out, err := cmd.CombinedOutput()
			wantExitCode(t, err, tt.code)
			if !strings.Contains(string(out), tt.want) {
				t.Errorf("it prints\n%s, want %q", out, tt.want)
			}
		})
	}
}

// Without an access entry, a member answers every call of the gateway with 401.
func TestEKSAccessCoversEveryCluster(t *testing.T) {
	bin := t.TempDir()
	if err := os.WriteFile(filepath.Join(bin, "aws"), []byte(fakeEKSAccess), 0o755); err != nil {
		t.Fatal(err)
	}
	cmd := exec.CommandContext(t.Context(), "./eks-access", "gateway", "clusterpass")
	cmd.Env = append(os.Environ(), "PATH="+bin+":"+os.Getenv("PATH"))
	out, err := cmd.CombinedOutput()
	wantExitCode(t, err, 1)
	const advice = "legacy: it has no access entries; change it with: aws eks update-cluster-config --name legacy"
	if !strings.Contains(string(out), advice) {
		t.Errorf("it prints\n%s, want %q", out, advice)
	}
	calls, err := os.ReadFile(filepath.Join(bin, "calls"))
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for line := range strings.Lines(string(calls)) {
		if strings.Contains(line, "-access-entry ") {
			got = append(got, strings.TrimSpace(line))
		}
	}
	const entry = "-access-entry --cluster-name "
	want := []string{
		"eks create" + entry + "new --principal-arn arn:proxy --kubernetes-groups gateway",
		"eks create" + entry + "new --principal-arn arn:bridge --kubernetes-groups gateway",
		"eks update" + entry + "old --principal-arn arn:proxy --kubernetes-groups gateway",
		"eks create" + entry + "old --principal-arn arn:bridge --kubernetes-groups gateway",
	}
	if strings.Join(got, "\n") != strings.Join(want, "\n") {
		t.Errorf("it calls\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
}
