// Package programs builds the client programs of test/clients, at pinned versions, from the Go module proxy.
package programs

import (
	"context"
	"io"
	"path/filepath"

	"github.com/clusterpass/clusterpass/test/cluster/build"
)

// The programs, by file name.
const (
	Helm  = "helm"
	K9s   = "k9s"
	Stern = "stern"
)

var (
	oldKubectl = build.Module{Dir: "test/clients/programs/kubectl", Programs: []build.Program{
		{Name: build.Kubectl, Package: "k8s.io/kubernetes/cmd/kubectl"},
	}}
	// tools are in the order of building. helm is the first, for EnsureHelm. kubectl is of the newest supported minor
	// version. All but k9s are small, and most of their packages are those of k9s.
	tools = build.Module{Dir: "test/clients/programs/tools", Programs: []build.Program{
		{Name: Helm, Package: "helm.sh/helm/v4/cmd/helm"},
		{Name: build.Kubectl, Package: "k8s.io/kubernetes/cmd/kubectl"},
		{Name: Stern, Package: "github.com/stern/stern"},
		{Name: K9s, Package: "github.com/derailed/k9s"},
	}}
)

// EnsureHelm returns the path of helm. It builds nothing else.
func EnsureHelm(ctx context.Context, progress io.Writer) (string, error) {
	dir, err := build.Module{Dir: tools.Dir, Programs: tools.Programs[:1]}.Ensure(ctx, progress)
	return filepath.Join(dir, Helm), err
}

// Programs are client programs that are ready to run.
type Programs struct {
	OldKubectl string // the path of kubectl of the oldest supported minor version
	NewKubectl string // that of the newest one
	dir        string // the directory of the other programs
}

// Path returns the path of the program called name.
func (p Programs) Path(name string) string { return filepath.Join(p.dir, name) }

// Ensure returns the programs. It builds missing ones one after the other, with their progress.
func Ensure(ctx context.Context, progress io.Writer) (Programs, error) {
	old, err := oldKubectl.Ensure(ctx, progress)
	if err != nil {
		return Programs{}, err
	}
	dir, err := tools.Ensure(ctx, progress)
	if err != nil {
		return Programs{}, err
	}
	return Programs{
		OldKubectl: filepath.Join(old, build.Kubectl), NewKubectl: filepath.Join(dir, build.Kubectl), dir: dir,
	}, nil
}
