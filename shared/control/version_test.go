package control_test

import (
	"encoding/json"
	"net/http"
	"strings"
	"testing"

	utilversion "k8s.io/apimachinery/pkg/util/version"
	apimachineryversion "k8s.io/apimachinery/pkg/version"

	"github.com/clusterpass/clusterpass/shared/version"
)

// TestVersion fails if kubectl cannot compare its version with the gateway's API, or if /version does not name the
// gateway's release.
func TestVersion(t *testing.T) {
	d := newInstallation(t).gateway()
	code, answer := d.call(d.master(), "GET", "/version", "", "")
	var info apimachineryversion.Info
	if err := json.Unmarshal([]byte(answer), &info); err != nil || code != http.StatusOK {
		t.Fatal(code, answer, err)
	}
	parsed, err := utilversion.ParseSemantic(info.GitVersion)
	if err != nil || parsed.Major() != 1 || !strings.HasPrefix(info.GitVersion, "v1."+info.Minor+".") {
		t.Errorf("%+v, %v", info, err)
	}
	build := version.Get()
	if got := version.OfGateway(info.GitVersion); got != build.Version || info.GitCommit != build.Revision ||
		info.BuildDate != build.Date {
		t.Errorf("%+v, want the release %+v", info, build)
	}
}
