// Package secrets stores credentials and signing keys. The sub-packages dir, awssecrets and kubernetes implement
// [Store].
//
//   - Each write creates a new version. Of several calls that replace the same version, at most one succeeds.
//   - A Store is safe for concurrent use. Several processes may open the same store.
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

// Has reports whether m has every label in labels, with the same value.
func (m Meta) Has(labels map[string]string) bool {
	for k, want := range labels {
		if got, ok := m.Labels[k]; !ok || got != want {
			return false
		}
	}
	return true
}

// Secret is one version of a secret.
type Secret struct {
	Meta
	Value Value
}

// Getter is the part of a Store that reads one secret. Get returns the current version without its labels.
type Getter interface {
	Get(ctx context.Context, name string) (*Secret, error)
}

// Store stores secrets. When ctx ends, reads return at once. A write that has begun may be completed first, so its
// call may return later. Errors wrap one of the package's errors or context.Canceled. A write that fails with
// ErrUnavailable or context.Canceled may have succeeded.
type Store interface {
	Getter
	// List returns the secrets that have every given label, sorted by name. It is slow, and may miss writes of the last
	// minutes.
	List(ctx context.Context, labels map[string]string) ([]Meta, error)
	// Create stores a new secret and returns its version, or ErrExists.
	Create(ctx context.Context, name string, v Value, labels map[string]string) (version string, err error)
	// Replace replaces the value, and keeps the labels, if the current version is oldVersion. It returns ErrConflict if
	// there is another version, and ErrNotFound if there is no secret.
	Replace(ctx context.Context, name, oldVersion string, v Value) (version string, err error)
	// Delete deletes a secret, or returns ErrNotFound. In AWS, the value can be recovered for some days. Create can reuse
	// the name at once.
	Delete(ctx context.Context, name string) error
}
