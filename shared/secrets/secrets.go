// Package secrets keeps credentials and signing keys, and nothing else.
//
// A Store holds small named values with labels. Each write makes a new version; a write names the
// version that it replaces, so that of several writers one wins and the others get ErrConflict.
// Implementations live in sub-packages (dir, awssecrets) and are safe for concurrent use, also by
// several processes.
//
// Threat model: whoever can read a Store can act as the gateway towards every member cluster. A
// Value therefore prints as "[hidden]" whatever the verb, and is never part of an error.
package secrets

import (
	"context"
	"time"
)

// MaxValue is the largest value in bytes that a Store takes: the limit of AWS Secrets Manager.
const MaxValue = 64 << 10

// Meta describes a secret without its value.
type Meta struct {
	Name    string            // see ValidName
	Version string            // opaque; changes with every write
	Labels  map[string]string // Kubernetes label syntax, see ValidLabels
	Updated time.Time
}

// Has says whether the labels of m contain every given label.
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

// Store keeps secrets. Every method honours ctx and returns one of the package's errors, wrapped.
type Store interface {
	// Get returns the current version. Labels are nil: only List reads them.
	Get(ctx context.Context, name string) (*Secret, error)
	// List returns all secrets whose labels contain every given label, ordered by name. It may lag
	// behind writes and is not for the path of a request.
	List(ctx context.Context, labels map[string]string) ([]Meta, error)
	// Create stores a new secret and returns its version, or ErrExists.
	Create(ctx context.Context, name string, v Value, labels map[string]string) (version string, err error)
	// Replace stores a new version in place of version old and returns it, or ErrConflict when the
	// current version is another. Labels stay as they are.
	Replace(ctx context.Context, name, old string, v Value) (version string, err error)
	// Delete removes the secret; a later Get returns ErrNotFound. A store may keep it recoverable
	// for some days, yet Create may use the name again at once.
	Delete(ctx context.Context, name string) error
}
