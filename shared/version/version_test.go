package version

import (
	"runtime"
	"runtime/debug"
	"testing"

	utilversion "k8s.io/apimachinery/pkg/util/version"
)

func build(v, revision, date string, modified bool) Build {
	return Build{v, revision, date, modified, runtime.Version(), runtime.GOOS + "/" + runtime.GOARCH}
}

// TestRecordedBuild fails if bug reports and User-Agents of builds without -ldflags name no commit.
func TestRecordedBuild(t *testing.T) {
	const hash = "0123456789abcdef0123456789abcdef01234567"
	settings := []debug.BuildSetting{
		{Key: "vcs.revision", Value: hash}, {Key: "vcs.time", Value: "2026-11-23T20:55:23Z"},
		{Key: "vcs.modified", Value: "true"},
	}
	platform := runtime.GOOS + "/" + runtime.GOARCH
	for _, tt := range []struct {
		name            string
		info            *debug.BuildInfo
		want            Build
		wantText, agent string
	}{
		{"none", nil, build(Unknown, "", "", false), "devel (" + runtime.Version() + ", " + platform + ")",
			"clusterpass/devel (" + platform + ")"},
		{"a test", &debug.BuildInfo{Main: debug.Module{Version: "(devel)"}}, build(Unknown, "", "", false),
			"devel (" + runtime.Version() + ", " + platform + ")", "clusterpass/devel (" + platform + ")"},
		{"go install", &debug.BuildInfo{Main: debug.Module{Version: "v0.1.0"}}, build("v0.1.0", "", "", false),
			"v0.1.0 (" + runtime.Version() + ", " + platform + ")", "clusterpass/v0.1.0 (" + platform + ")"},
		{"a checkout", &debug.BuildInfo{Main: debug.Module{Version: "v0.1.0+dirty"}, Settings: settings},
			build("v0.1.0+dirty", hash, "2026-11-23T20:55:23Z", true),
			"v0.1.0+dirty (revision " + hash + ", 2026-11-23T20:55:23Z, " + runtime.Version() + ", " + platform + ")",
			"clusterpass/v0.1.0+dirty (" + platform + "; 0123456789ab)"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			b := recorded(tt.info)
			if b != tt.want || b.String() != tt.wantText || b.userAgent() != tt.agent {
				t.Errorf("%+v, %q, %q", b, b, b.userAgent())
			}
		})
	}
}

// TestGitVersion fails if kubectl cannot compare its version with the gateway's, or if doctor cannot read the
// gateway's version.
func TestGitVersion(t *testing.T) {
	for v, want := range map[string]string{
		"v0.1.0": "v0.1.0", "v0.1.0-rc.1": "v0.1.0-rc.1", "v0.1.0+dirty": "v0.1.0.dirty", Unknown: Unknown,
	} {
		git := Build{Version: v}.GitVersion("v1.36.0")
		parsed, err := utilversion.ParseSemantic(git)
		if err != nil || parsed.Major() != 1 || parsed.Minor() != 36 {
			t.Errorf("%s: %v, %v", git, parsed, err)
		}
		if got := OfGateway(git); got != want {
			t.Errorf("%s: the gateway's version is %q, want %q", git, got, want)
		}
	}
	if got := OfGateway("v1.36.0+k3s1"); got != "" {
		t.Errorf("a kube-apiserver has the gateway's version %q", got)
	}
}
