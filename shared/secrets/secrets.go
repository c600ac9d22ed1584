// Package secrets stores credentials and signing keys. The sub-packages dir and awssecrets implement [Store].
//
//   - Each write creates a new version. Of several calls that replace one version, one succeeds.
//   - A Store is safe for concurrent use, also by several processes.
//   - A Value prints as "[hidden]" and never appears in an error. See docs/explanation/security.md.
package secrets

import (
	"context"
	"time"
)

// MaxValue is the maximum size of a value in bytes. It is the limit of AWS Secrets Manager.
const MaxValue = 64 << 10

// Meta describes a secret without its value.
type Meta struct {
	Name    string            // see ValidName
	Version string            // opaque; changes with every write
	Labels  map[string]string // see ValidLabels
	Updated time.Time
}

// Has reports whether m has all of labels, with the same values.
func (m Meta) Has(labels map[string]string) bool {
	for k, want := range labels {
		if got, ok := m.Labels[k]; !ok || got != want {
			return false
		}
	}
	return true
}

// Secret is one version of a named value.
type Secret struct {
	Meta
	Value Value
}

// Getter is the part of a Store that reads one secret.
type Getter interface {
	// Get returns the current version, without its labels.
	Get(ctx context.Context, name string) (*Secret, error)
}

// Store stores secrets. Every method stops when ctx ends. Errors wrap one of the package's errors or context.Canceled.
type Store interface {
	Getter
	// List returns the secrets with all of labels, sorted by name. It may miss recent writes, and is slow.
	List(ctx context.Context, labels map[string]string) ([]Meta, error)
	// Create stores a new secret and returns its version, or ErrExists.
	Create(ctx context.Context, name string, v Value, labels map[string]string) (version string, err error)
	// Replace replaces the value of version old, or returns ErrConflict if another version is current.
	Replace(ctx context.Context, name, old string, v Value) (version string, err error)
	// Delete deletes a secret. An administrator may be able to recover it. Create can reuse the name at once.
	Delete(ctx context.Context, name string) error
}
