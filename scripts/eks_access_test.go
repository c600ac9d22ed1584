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

// A stack serves clusters of several regions, so the region of the clusters may have no stack.
func TestEKSAccessReadsTheStackInItsRegion(t *testing.T) {
	for name, tt := range map[string]struct {
		args  []string
		code  int
		stack string // the call that reads the stack
	}{
		"the environment's": {[]string{"gateway", "clusterpass"}, 1, "describe-stacks --stack-name clusterpass "},
		"another": {
			[]string{"gateway", "clusterpass", "eu-west-1"}, 1, "describe-stacks --region eu-west-1 --stack-name clusterpass ",
		},
		"two":      {[]string{"gateway", "clusterpass", "eu-west-1", "eu-west-2"}, 2, ""},
		"no stack": {[]string{"gateway"}, 2, ""},
	} {
		t.Run(name, func(t *testing.T) {
			bin := t.TempDir()
			if err := os.WriteFile(filepath.Join(bin, "aws"), []byte(fakeEKSAccess), 0o755); err != nil {
				t.Fatal(err)
			}
			cmd := exec.CommandContext(t.Context(), "./eks-access", tt.args...)
			cmd.Env = append(os.Environ(), "PATH="+bin+":"+os.Getenv("PATH"))
			out, err := cmd.CombinedOutput()
			wantExitCode(t, err, tt.code)
			calls, _ := os.ReadFile(filepath.Join(bin, "calls")) // missing if AWS was not called
			if !strings.Contains(string(calls), tt.stack) || tt.stack == "" && len(calls) > 0 ||
				strings.Count(string(calls), "--region") != strings.Count(tt.stack, "--region") {
				t.Errorf("it calls\n%s, and prints\n%s", calls, out)
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
