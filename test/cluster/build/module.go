package build

import (
	"context"
	"io"
)

// Module is a Go module of this checkout that pins programs. It is separate from the project's module, so that their
// dependencies are not the project's.
type Module struct {
	Dir      string    // below the root of the checkout, with slashes
	Programs []Program // in the order of building
}

// Program is a main package. Name is that of its file.
type Program struct{ Name, Package string }

// Ensure returns the directory of the programs. It builds missing ones, with their progress. It needs the go command,
// and a working directory inside the checkout.
func (m Module) Ensure(ctx context.Context, progress io.Writer) (string, error) {
	s, err := newSource(ctx, m.Dir, "programs")
	if err != nil {
		return "", err
	}
	if version, err := required(string(s.sums), "k8s.io/kubernetes"); err == nil {
		s.setVersion(version)
	}
	wanted := make([]target, len(m.Programs))
	for i, p := range m.Programs {
		wanted[i] = target{p.Name, p.Package}
	}
	return s.ensure(ctx, wanted, progress)
}
