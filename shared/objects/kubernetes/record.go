package kubernetes

import (
	"crypto/rand"
	"crypto/sha256"
	_ "embed"
	"encoding/base32"
	"encoding/hex"
	"fmt"
	"strconv"

	"github.com/clusterpass/clusterpass/shared/hub"
	"github.com/clusterpass/clusterpass/shared/objects"
)

// CRD is the manifest of the CustomResourceDefinition.
//
//go:embed crd.yaml
var CRD []byte

// Names of the API.
const (
	Group      = hub.StoreGroup
	Version    = "v1"
	Kind       = "Record"
	Resource   = "records"
	apiVersion = Group + "/" + Version
	basePath   = "apis/" + apiVersion
)

const (
	// resourceLabel has the first part of the key, such as clusters.
	resourceLabel = Group + "/resource"
	// announcement is the name of the Record that every writer changes after its write. No encoded key has a hyphen.
	announcement = "store-revision"
)

// record is the JSON of a Record.
type record struct {
	APIVersion string     `json:"apiVersion"`
	Kind       string     `json:"kind"`
	Metadata   recordMeta `json:"metadata"`
	Key        string     `json:"key,omitempty"`
	Value      []byte     `json:"value,omitempty"`
	Previous   []byte     `json:"previous,omitempty"`
	Created    uint64     `json:"created,omitempty"`
	Write      string     `json:"write"`
}

type recordMeta struct {
	Name            string            `json:"name"`
	UID             string            `json:"uid,omitempty"`
	ResourceVersion string            `json:"resourceVersion,omitempty"`
	Labels          map[string]string `json:"labels,omitempty"`
}

// newRecord returns the Record of a write. rev is the revision that it replaces, or 0.
func newRecord(key string, value []byte, rev uint64) record {
	r := record{APIVersion: apiVersion, Kind: Kind, Key: key, Value: value, Write: rand.Text()}
	r.Metadata.Name = recordName(key)
	r.Metadata.Labels = map[string]string{resourceLabel: labelOf(key)}
	if rev != 0 {
		r.Metadata.ResourceVersion = strconv.FormatUint(rev, 10)
	}
	return r
}

func (r *record) object() (objects.Object, error) {
	rev, err := parseRevision(r.Metadata.ResourceVersion)
	if err != nil {
		return objects.Object{}, err
	}
	o := objects.Object{Key: r.Key, Value: r.Value, Revision: rev, Created: rev}
	if r.Created != 0 {
		o.Created = r.Created
	}
	return o, nil
}

func parseRevision(resourceVersion string) (uint64, error) {
	rev, err := strconv.ParseUint(resourceVersion, 10, 64)
	if err != nil || rev == 0 {
		return 0, fmt.Errorf("the API server returned the resourceVersion %.64q: want a number", resourceVersion)
	}
	return rev, nil
}

// nameEncoding keeps the order of the encoded bytes.
var nameEncoding = base32.NewEncoding("0123456789abcdefghijklmnopqrstuv").WithPadding(base32.NoPadding)

// A name has at most 253 characters. A longer key is cut to longKey bytes and continued by its digest.
const (
	maxName = 253
	longKey = 120
)

// recordName encodes a key as the name of a Record. Names have the order of their keys, except for long keys with the
// same beginning.
func recordName(key string) string {
	if nameEncoding.EncodedLen(len(key)) <= maxName {
		return nameEncoding.EncodeToString([]byte(key))
	}
	digest := sha256.Sum256([]byte(key))
	return nameEncoding.EncodeToString([]byte(key[:longKey])) + nameEncoding.EncodeToString(digest[:])
}

const maxLabel = 63

func labelOf(key string) string {
	resource := resourceOf(key)
	if len(resource) <= maxLabel {
		return resource
	}
	digest := sha256.Sum256([]byte(resource))
	return hex.EncodeToString(digest[:16])
}
