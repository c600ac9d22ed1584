// Package stores opens the secret store and the object store of an installation.
package stores

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"

	"github.com/clusterpass/clusterpass/shared/awsclient"
	"github.com/clusterpass/clusterpass/shared/objects"
	objectsdir "github.com/clusterpass/clusterpass/shared/objects/dir"
	"github.com/clusterpass/clusterpass/shared/objects/dynamo"
	"github.com/clusterpass/clusterpass/shared/secrets"
	"github.com/clusterpass/clusterpass/shared/secrets/awssecrets"
	secretsdir "github.com/clusterpass/clusterpass/shared/secrets/dir"
)

// Address is the location of an installation's stores: dir:PATH, aws:PREFIX or aws:PREFIX,key=KEY. KEY is the alias, ID
// or ARN of the KMS key for new secrets, by default the AWS managed key.
type Address struct{ Kind, Where, Key string }

// Decode implements envconfig.Decoder.
func (a *Address) Decode(v string) error {
	kind, where, ok := strings.Cut(v, ":")
	if !ok || kind == "" || where == "" {
		return errors.New("want a kind and a location, separated by a colon")
	}
	*a = Address{Kind: kind, Where: where}
	if kind != "aws" {
		return nil // a path may contain any character
	}
	var option string
	if a.Where, option, ok = strings.Cut(where, ","); ok {
		if a.Key, ok = strings.CutPrefix(option, "key="); !ok || a.Key == "" {
			return errors.New("want key= and a KMS key after the comma, such as aws:clusterpass,key=alias/clusterpass")
		}
	}
	return nil
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
	if a.Key != "" {
		s += ",key=" + a.Key
	}
	return s
}

// Stores are the two stores of one installation.
type Stores struct {
	Secrets secrets.Store
	Objects objects.Store
}

// prefixRE matches prefixes that are valid in the names of secrets and of a table.
var prefixRE = regexp.MustCompile(`^[a-z0-9][a-z0-9-]*$`)

const maxPrefix = 32

// Open opens the stores at a: the directories PATH/secrets and PATH/objects, or the secrets PREFIX/* and the DynamoDB
// table PREFIX-objects. The AWS SDK reads its standard environment.
func Open(ctx context.Context, a Address) (*Stores, error) {
	switch a.Kind {
	case "aws":
		if len(a.Where) > maxPrefix || !prefixRE.MatchString(a.Where) {
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
		return &Stores{sec, obj}, nil
	case "dir":
		sec, err := secretsdir.Open(filepath.Join(a.Where, "secrets"))
		if err != nil {
			return nil, err
		}
		obj, err := objectsdir.Open(filepath.Join(a.Where, "objects"))
		if err != nil {
			return nil, err
		}
		return &Stores{sec, obj}, nil
	default:
		return nil, fmt.Errorf("store %q: there is no kind %q; use dir:PATH or aws:PREFIX", a, a.Kind)
	}
}
