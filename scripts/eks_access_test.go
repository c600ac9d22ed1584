package scripts

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// fakeEKSAccess plays the AWS CLI for three clusters: one without an entry, one with an entry, and one that accepts
// none. The region eu-west-3 has no clusters. FAILING and EMPTY are patterns of calls.
const fakeEKSAccess = `#!/bin/sh
echo "$*" >> "$(dirname "$0")/calls"
case "$*" in
  $FAILING) echo AccessDenied >&2; exit 254 ;;
  $EMPTY) echo ;;
  *describe-stacks*) printf 'arn:proxy\tarn:bridge\n' ;;
  *describe-regions*) printf 'eu-west-1\teu-west-2\n' ;;
  *list-clusters*eu-west-3*) echo None ;;
  *list-clusters*) printf 'new\told\tlegacy\n' ;;
  *"describe-cluster "*"--name legacy "*) echo CONFIG_MAP ;;
  *describe-cluster*) echo API ;;
  *"list-access-entries "*"--cluster-name old "*) printf 'arn:proxy-of-others\tarn:proxy\n' ;;
esac
`

// eksAccess runs the script, and returns its output, the calls of the AWS CLI and the exit code. variable may set
// FAILING or EMPTY.
func eksAccess(t *testing.T, variable string, args ...string) (out, calls string, code int) {
	t.Helper()
	bin := t.TempDir()
	if err := os.WriteFile(filepath.Join(bin, "aws"), []byte(fakeEKSAccess), 0o755); err != nil {
		t.Fatal(err)
	}
	cmd := script(t, "./eks-access", args...)
	cmd.Env = append(os.Environ(), "PATH="+bin+":"+os.Getenv("PATH"), variable)
	text, err := cmd.CombinedOutput()
	if err != nil && cmd.ProcessState == nil {
		t.Fatal(err)
	}
	called, _ := os.ReadFile(filepath.Join(bin, "calls")) // missing if AWS was not called
	return string(text), string(called), cmd.ProcessState.ExitCode()
}

// changes returns the calls that create or update access entries.
func changes(calls string) (found []string) {
	for line := range strings.Lines(calls) {
		if strings.Contains(line, "-access-entry ") {
			found = append(found, strings.TrimSpace(line))
		}
	}
	return found
}

// A run that gave no access must not look like a success.
func TestEKSAccessFailsWithoutClustersOrRoles(t *testing.T) {
	for name, tt := range map[string]struct {
		variable string
		args     []string
		code     int
		want     string
	}{
		"no roles":    {"EMPTY=*describe-stacks*", nil, 1, "the stack clusterpass has no outputs with roles"},
		"no clusters": {"EMPTY=*list-clusters*", nil, 1, "there is no EKS cluster"},
		"no clusters in the regions": {
			"EMPTY=*list-clusters*", []string{"--regions", "eu-west-1,eu-west-3"}, 1, "there is no EKS cluster",
		},
		"unreadable stack":   {"FAILING=*describe-stacks*", nil, 254, "AccessDenied"},
		"unreadable regions": {"FAILING=*describe-regions*", []string{"--regions", "all"}, 254, "AccessDenied"},
		"unlisted clusters":  {"FAILING=*list-clusters*", nil, 1, "the clusters cannot be listed"},
	} {
		t.Run(name, func(t *testing.T) {
			out, calls, code := eksAccess(t, tt.variable, append(tt.args, "gateway", "clusterpass")...)
			if code != tt.code || !strings.Contains(out, tt.want) || len(changes(calls)) > 0 {
				t.Errorf("code %d, calls\n%soutput\n%s, want %q", code, calls, out, tt.want)
			}
		})
	}
}

// A cluster or region that fails must be named, and must not keep the others without access.
func TestEKSAccessGoesOnAfterFailures(t *testing.T) {
	two := []string{"--regions", "eu-west-1,eu-west-2", "gateway", "clusterpass"}
	for name, tt := range map[string]struct {
		failing string
		args    []string
		want    string
		changed int // number of entries that are created or updated, or tried
	}{
		"unreadable cluster": {
			"*describe-cluster*--name*new*", two[2:], "new: the cluster cannot be read; allow eks:DescribeCluster", 2,
		},
		"unreadable entries": {
			"*list-access-entries*--cluster-name*new*", two[2:], "new: the access entries cannot be listed", 2,
		},
		"refused entry": {"*create-access-entry*new*arn:proxy*", two[2:], "new: arn:proxy has no access", 4},
		"unlisted region": {
			"*list-clusters*eu-west-1*", two, "the clusters in eu-west-1 cannot be listed; allow eks:ListClusters", 4,
		},
		"unreadable cluster of a region": {
			"*describe-cluster*eu-west-1*--name*old*", two, "old in eu-west-1: the cluster cannot be read", 6,
		},
	} {
		t.Run(name, func(t *testing.T) {
			out, calls, code := eksAccess(t, "FAILING="+tt.failing, tt.args...)
			if code != 1 || !strings.Contains(out, tt.want) || len(changes(calls)) != tt.changed {
				t.Errorf("code %d, calls\n%soutput\n%s, want %q and %d changes", code, calls, out, tt.want, tt.changed)
			}
		})
	}
}

// An account has clusters in several regions. Each call must go to the region of its cluster.
func TestEKSAccessCoversRegions(t *testing.T) {
	for _, tt := range []struct {
		regions string
		want    []string
	}{
		{"eu-west-2", []string{"eu-west-2"}},
		{"eu-west-1,eu-west-3", []string{"eu-west-1"}},
		{"all", []string{"eu-west-1", "eu-west-2"}},
	} {
		t.Run(tt.regions, func(t *testing.T) {
			out, calls, code := eksAccess(t, "", "--regions", tt.regions, "gateway", "clusterpass", "us-east-1")
			var want []string
			for _, region := range tt.want {
				option := "-access-entry --region " + region + " --cluster-name "
				const proxy = " --principal-arn arn:proxy --kubernetes-groups gateway"
				const bridge = " --principal-arn arn:bridge --kubernetes-groups gateway"
				want = append(want, "eks create"+option+"new"+proxy, "eks create"+option+"new"+bridge,
					"eks update"+option+"old"+proxy, "eks create"+option+"old"+bridge)
				if !strings.Contains(out, "old in "+region+": arn:proxy has the group gateway") {
					t.Errorf("it prints\n%s, and names no cluster in %s", out, region)
				}
			}
			if got := changes(calls); code != 1 || strings.Join(got, "\n") != strings.Join(want, "\n") ||
				!strings.Contains(calls, "describe-stacks --region us-east-1 ") {
				t.Errorf("code %d, calls\n%s, want\n%s", code, calls, strings.Join(want, "\n"))
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
		"two":        {[]string{"gateway", "clusterpass", "eu-west-1", "eu-west-2"}, 2, ""},
		"no stack":   {[]string{"gateway"}, 2, ""},
		"no regions": {[]string{"--regions", "", "gateway", "clusterpass"}, 2, ""},
		"an option":  {[]string{"--region", "eu-west-1", "clusterpass"}, 2, ""},
	} {
		t.Run(name, func(t *testing.T) {
			out, calls, code := eksAccess(t, "", tt.args...)
			if code != tt.code || !strings.Contains(calls, tt.stack) || tt.stack == "" && calls != "" ||
				strings.Count(calls, "--region") != strings.Count(tt.stack, "--region") {
				t.Errorf("code %d, it calls\n%s, and prints\n%s", code, calls, out)
			}
		})
	}
}

// Without an access entry, a member answers every call of the gateway with 401.
func TestEKSAccessCoversEveryCluster(t *testing.T) {
	out, calls, code := eksAccess(t, "", "gateway", "clusterpass")
	const advice = "legacy: it has no access entries; change it with: aws eks update-cluster-config --name legacy"
	if code != 1 || !strings.Contains(out, advice) {
		t.Errorf("code %d, it prints\n%s, want %q", code, out, advice)
	}
	const entry = "-access-entry --cluster-name "
	want := []string{
		"eks create" + entry + "new --principal-arn arn:proxy --kubernetes-groups gateway",
		"eks create" + entry + "new --principal-arn arn:bridge --kubernetes-groups gateway",
		"eks update" + entry + "old --principal-arn arn:proxy --kubernetes-groups gateway",
		"eks create" + entry + "old --principal-arn arn:bridge --kubernetes-groups gateway",
	}
	if got := changes(calls); strings.Join(got, "\n") != strings.Join(want, "\n") {
		t.Errorf("it calls\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
}
