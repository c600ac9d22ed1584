// Package version describes the build of a program: version, revision and date.
//
// Releases set the variables by -ldflags -X. In other builds, the Go command has recorded the state of the checkout.
package version

import (
	"fmt"
	"runtime"
	"runtime/debug"
	"strings"
	"sync"
)

// Set by releases: a tag such as v0.1.0, the full hash of the commit, and the time of the commit in RFC 3339.
var tag, revision, date string

// Unknown is the version of a build that contains none, such as that of a test.
const Unknown = "devel"

// Build describes how a program was built.
type Build struct {
	Version  string // tag, pseudo-version of the Go command, or Unknown
	Revision string // full hash of the commit; "" if unknown
	Date     string // time of the commit in RFC 3339; "" if unknown
	Modified bool   // the checkout had changes that were not committed

	GoVersion string // such as go1.26.8
	Platform  string // such as linux/amd64
}

// Get returns the build of this program.
var Get = sync.OnceValue(func() Build {
	if tag != "" {
		b := recorded(nil)
		b.Version, b.Revision, b.Date = tag, revision, date
		return b
	}
	info, _ := debug.ReadBuildInfo()
	return recorded(info)
})

func recorded(info *debug.BuildInfo) Build {
	b := Build{Version: Unknown, GoVersion: runtime.Version(), Platform: runtime.GOOS + "/" + runtime.GOARCH}
	if info == nil {
		return b
	}
	if v := info.Main.Version; v != "" && v != "(devel)" {
		b.Version = v
	}
	for _, s := range info.Settings {
		switch s.Key {
		case "vcs.revision":
			b.Revision = s.Value
		case "vcs.time":
			b.Date = s.Value
		case "vcs.modified":
			b.Modified = s.Value == "true"
		}
	}
	return b
}

// TreeState returns gitTreeState of Kubernetes' version.Info: clean, dirty, or "" if unknown.
func (b Build) TreeState() string {
	switch {
	case b.Revision == "":
		return ""
	case b.Modified:
		return "dirty"
	}
	return "clean"
}

// String returns one line for --version.
func (b Build) String() string {
	details := []string{b.GoVersion, b.Platform}
	if b.Date != "" {
		details = append([]string{b.Date}, details...)
	}
	if b.Revision != "" {
		details = append([]string{"revision " + b.Revision}, details...)
	}
	return fmt.Sprintf("%s (%s)", b.Version, strings.Join(details, ", "))
}

// shortRevision is the length of a revision in a User-Agent.
const shortRevision = 12

// UserAgent returns the User-Agent of requests that the gateway and its programs send on their own behalf. Forwarded
// requests keep the User-Agent of their caller, since API servers derive field managers from it.
var UserAgent = sync.OnceValue(func() string { return Get().userAgent() })

func (b Build) userAgent() string {
	comment := b.Platform
	if b.Revision != "" {
		comment += "; " + b.Revision[:min(len(b.Revision), shortRevision)]
	}
	return fmt.Sprintf("clusterpass/%s (%s)", b.Version, comment)
}

const metadata = "+clusterpass-"

// GitVersion returns the gitVersion of the gateway's own API at /version. kubectl compares kubernetes, such as v1.36.0,
// with its own version. The build metadata contains the gateway's.
func (b Build) GitVersion(kubernetes string) string {
	return kubernetes + metadata + strings.ReplaceAll(b.Version, "+", ".")
}

// OfGateway returns the gateway's version in a gitVersion that GitVersion returned, or "" for another server's.
func OfGateway(gitVersion string) string {
	_, v, _ := strings.Cut(gitVersion, metadata)
	return v
}
