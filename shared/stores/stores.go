// Package stores opens the secret store and the object store of an installation.
package stores

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/clusterpass/clusterpass/shared/awsclient"
	"github.com/clusterpass/clusterpass/shared/hub"
	"github.com/clusterpass/clusterpass/shared/objects"
	objectsdir "github.com/clusterpass/clusterpass/shared/objects/dir"
	"github.com/clusterpass/clusterpass/shared/objects/dynamo"
	"github.com/clusterpass/clusterpass/shared/secrets"
	"github.com/clusterpass/clusterpass/shared/secrets/awssecrets"
	secretsdir "github.com/clusterpass/clusterpass/shared/secrets/dir"
)

// Kubernetes is the Kind of an Address in a hub cluster.
const Kubernetes = "kubernetes"

// Address is the location of an installation's stores: dir:PATH, aws:PREFIX or kubernetes:NAMESPACE. The last
// two may have options, each after a comma.
type Address struct {
	Kind, Where string
	// Key is the option key of aws: the alias, ID or ARN of the KMS key for new secrets. Empty means the AWS managed key.
	Key string
	// Kubeconfig and Context are the options kubeconfig and context of kubernetes: a file, and one of its contexts. If
	// both are empty, the stores use the service account of the gateway's own pod. Outside of a pod, they use
	// KUBECONFIG.
	Kubeconfig, Context string
}

// Decode implements envconfig.Decoder.
func (a *Address) Decode(v string) error {
	kind, where, ok := strings.Cut(v, ":")
	if !ok || kind == "" || where == "" {
		return errors.New("want a kind and a location, separated by a colon")
	}
	*a = Address{Kind: kind, Where: where}
	if kind != "aws" && kind != Kubernetes {
		return nil // a path may contain any character
	}
	parts := strings.Split(where, ",")
	a.Where = parts[0]
	for _, part := range parts[1:] {
		name, value, _ := strings.Cut(part, "=")
		option := a.option(name)
		if option == nil || *option != "" || value == "" {
			return fmt.Errorf("option %q: want %s", part, map[string]string{
				"aws":      "key= and a KMS key, such as aws:clusterpass,key=alias/clusterpass",
				Kubernetes: "kubeconfig= or context=, such as kubernetes:clusterpass,context=hub",
			}[kind])
		}
		*option = value
	}
	return nil
}

func (a *Address) option(name string) *string {
	return map[string]*string{
		"aws key": &a.Key, Kubernetes + " kubeconfig": &a.Kubeconfig, Kubernetes + " context": &a.Context,
	}[a.Kind+" "+name]
}

// Default returns the address for a single user on one machine: the directory clusterpass in the user's data directory.
func Default() (Address, error) {
	base := os.Getenv("XDG_DATA_HOME")
	if base == "" {
		home, err := os.UserHomeDir()
		if err != nil {
			return Address{}, fmt.Errorf("no directory for the stores: %w", err)
		}
		base = filepath.Join(home, ".local", "share")
	}
	return Address{Kind: "dir", Where: filepath.Join(base, "clusterpass")}, nil
}

// String returns the form that Decode parses.
func (a Address) String() string {
	s := a.Kind + ":" + a.Where
	for _, option := range [][2]string{{"key", a.Key}, {"kubeconfig", a.Kubeconfig}, {"context", a.Context}} {
		if option[1] != "" {
			s += "," + option[0] + "=" + option[1]
		}
	}
	return s
}

// Stores are the two stores of one installation.
type Stores struct {
	Secrets secrets.Store
	Objects objects.Store
	// Hub is the client of the hub cluster of the stores, or nil.
	Hub *hub.Client
}

// Opener opens the stores of one more Kind, for programs that link it.
type Opener struct {
	Kind string
	Open func(ctx context.Context, a Address) (*Stores, error)
}

const maxPrefix = 32

// validPrefix reports whether s can begin the names of secrets and of a table.
func validPrefix(s string) bool {
	return s != "" && len(s) <= maxPrefix && s[0] != '-' &&
		strings.Trim(s, "abcdefghijklmnopqrstuvwxyz0123456789-") == ""
}

// Open opens the stores at a: the directories PATH/secrets and PATH/objects, or the secrets PREFIX/* and the DynamoDB
// table PREFIX-objects, or those of another Opener. The AWS SDK reads its standard environment.
func Open(ctx context.Context, a Address, others ...Opener) (*Stores, error) {
	for _, o := range others {
		if o.Kind == a.Kind {
			return o.Open(ctx, a)
		}
	}
	switch a.Kind {
	case "aws":
		if !validPrefix(a.Where) {
			return nil,
				fmt.Errorf("store %q: want a prefix of at most %d lower-case letters, digits and '-', which does not start "+
					"with '-', such as aws:clusterpass", a, maxPrefix)
		}
		cfg, err := awsclient.Load(ctx)
		if err != nil {
			return nil, err
		}
		sec, err := awssecrets.New(awssecrets.Config{AWS: cfg, Prefix: a.Where + "/", KMSKey: a.Key})
		if err != nil {
			return nil, err
		}
		obj, err := dynamo.New(dynamo.Config{AWS: cfg, Table: a.Where + "-objects"})
		if err != nil {
			return nil, err
		}
		return &Stores{Secrets: sec, Objects: obj}, nil
	case "dir":
		sec, err := secretsdir.Open(filepath.Join(a.Where, "secrets"))
		if err != nil {
			return nil, err
		}
		obj, err := objectsdir.Open(filepath.Join(a.Where, "objects"))
		if err != nil {
			return nil, err
		}
		return &Stores{Secrets: sec, Objects: obj}, nil
	case Kubernetes:
		return nil, fmt.Errorf("store %q: this program cannot use it; use dir:PATH or aws:PREFIX, or run the bridge", a)
	default:
		return nil, fmt.Errorf("store %q: there is no kind %q; use dir:PATH, aws:PREFIX or kubernetes:NAMESPACE", a, a.Kind)
	}
}
