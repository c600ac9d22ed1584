package credential

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	kerrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	corev1 "k8s.io/client-go/applyconfigurations/core/v1"
	typed "k8s.io/client-go/kubernetes/typed/core/v1"

	"github.com/clusterpass/clusterpass/shared/filelock"
	"github.com/clusterpass/clusterpass/shared/secrets"
)

// Stored is the content of a Store.
type Stored struct {
	// Bootstrap is from clusterpass cluster join --pull. Agents never write it.
	Bootstrap secrets.Value
	State     State

	version string // of State
}

// State is the part of a Store that agents write.
type State struct {
	From  string        // digest of the Bootstrap that Token descends from
	Token secrets.Value // the credential to connect with; empty before the first exchange
	Key   secrets.Value // PEM; Token is bound to it
	// Next is the key of the next credential of the token with the digest For. It is stored before the exchange, so that
	// all agents, also after a crash, make the same exchange.
	Next secrets.Value
	For  string
}

func (s State) hasBegun() bool { return s.For == digest(s.Token) && len(s.Next.Reveal()) > 0 }

// Store keeps a credential beyond the end of a process. Several agents of one cluster may share it.
type Store interface {
	Load(ctx context.Context) (Stored, error)
	// Save replaces old.State. It returns ErrChanged if another agent has written meanwhile.
	Save(ctx context.Context, old Stored, s State) error
}

// ErrChanged means that a State has changed since it was loaded.
var ErrChanged = errors.New("another agent has written meanwhile")

// stateJSON is the stored form of State. secrets.Value never marshals its content.
type stateJSON struct {
	From  string `json:"from,omitempty"`
	Token string `json:"token,omitempty"`
	Key   string `json:"key,omitempty"`
	Next  string `json:"next,omitempty"`
	For   string `json:"for,omitempty"`
}

func (s State) encode() ([]byte, error) {
	text := func(v secrets.Value) string { return string(v.Reveal()) }
	return json.Marshal(stateJSON{s.From, text(s.Token), text(s.Key), text(s.Next), s.For})
}

func decode(data []byte) (State, error) {
	var s stateJSON
	if len(data) > 0 && json.Unmarshal(data, &s) != nil {
		return State{}, errors.New("the agent's stored state is invalid") // the parser's error could quote it
	}
	value := func(text string) secrets.Value { return secrets.NewValue([]byte(text)) }
	return State{s.From, value(s.Token), value(s.Key), value(s.Next), s.For}, nil
}

func digest(v secrets.Value) string {
	sum := sha256.Sum256(v.Reveal())
	return hex.EncodeToString(sum[:])
}

// File is a Store. It is the path of the bootstrap credential. The state is in the file with StateSuffix.
type File string

// StateSuffix is appended to a File to get the path of its state.
const StateSuffix = ".state"

// Load implements Store.
func (f File) Load(context.Context) (Stored, error) {
	bootstrap, err := os.ReadFile(string(f))
	if err != nil {
		return Stored{}, err
	}
	data, err := os.ReadFile(string(f) + StateSuffix)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return Stored{}, err
	}
	state, err := decode(data)
	return Stored{trimmed(bootstrap), state, digest(secrets.NewValue(data))}, err
}

func trimmed(data []byte) secrets.Value { return secrets.NewValue(bytes.TrimSpace(data)) }

// Save implements Store. A lock file excludes other processes.
func (f File) Save(ctx context.Context, old Stored, s State) error {
	root, err := os.OpenRoot(filepath.Dir(string(f)))
	if err != nil {
		return err
	}
	defer func() { _ = root.Close() }()
	name := filepath.Base(string(f)) + StateSuffix
	lock, err := filelock.Lock(ctx, root, name+".lock", filelock.Exclusive)
	if err != nil {
		return err
	}
	defer func() { _ = lock.Close() }()
	now, err := f.Load(ctx)
	if err != nil {
		return err
	}
	if now.version != old.version {
		return ErrChanged
	}
	data, err := s.encode()
	if err != nil {
		return err
	}
	return replace(root, name, data)
}

// replace writes a file with mode 0600. A crash leaves the old or the new content.
func replace(root *os.Root, name string, data []byte) error {
	tmp := name + ".new"
	f, err := root.OpenFile(tmp, os.O_WRONLY|os.O_CREATE|os.O_TRUNC, 0o600)
	if err != nil {
		return err
	}
	_, err = f.Write(data)
	if err = errors.Join(err, f.Sync(), f.Close()); err == nil {
		err = root.Rename(tmp, name)
	}
	if err != nil {
		_ = root.Remove(tmp)
		return err
	}
	return filelock.SyncDir(root, ".")
}

// Keys of a Secret's data.
const (
	BootstrapKey = "token"
	StateKey     = "credential.json"
)

// fieldManager owns StateKey alone. Agents of earlier versions own BootstrapKey by another name, which must stay.
const fieldManager = "clusterpass-agent-credential"

// Secret is a Store. The Secret must exist.
type Secret struct {
	Client          typed.SecretsGetter
	Namespace, Name string
}

// Load implements Store.
func (s *Secret) Load(ctx context.Context) (Stored, error) {
	secret, err := s.Client.Secrets(s.Namespace).Get(ctx, s.Name, metav1.GetOptions{})
	if err != nil {
		return Stored{}, err
	}
	state, err := decode(secret.Data[StateKey])
	if err != nil {
		err = fmt.Errorf("%s of Secret %s/%s: %w", StateKey, s.Namespace, s.Name, err)
	}
	return Stored{trimmed(secret.Data[BootstrapKey]), state, secret.ResourceVersion}, err
}

// Save implements Store.
func (s *Secret) Save(ctx context.Context, old Stored, state State) error {
	data, err := state.encode()
	if err != nil {
		return err
	}
	apply := corev1.Secret(s.Name, s.Namespace).WithData(map[string][]byte{StateKey: data}).
		WithResourceVersion(old.version)
	_, err = s.Client.Secrets(s.Namespace).Apply(ctx, apply, metav1.ApplyOptions{FieldManager: fieldManager, Force: true})
	if kerrors.IsConflict(err) {
		return ErrChanged
	}
	return err
}
