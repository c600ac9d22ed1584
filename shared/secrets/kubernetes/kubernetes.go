// Package kubernetes stores secrets in a hub cluster, as Secrets of the type clusterpass.io/secret. The version is the
// resourceVersion. The labels of a secret are one annotation in JSON.
//
//   - The API server compares the resourceVersion of a replacement, so only one writer can succeed.
//   - Each write has a random annotation, because an API server does not store an object that equals its current state.
//   - List reads metadata alone.
//   - If the API server rejects a write as invalid, the error of Create or Replace omits the API server's message,
//     which may quote the value.
package kubernetes

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/clusterpass/clusterpass/shared/hub"
	"github.com/clusterpass/clusterpass/shared/secrets"
)

// Type is the type of the Secrets. List ignores Secrets of other types. Get, Create, Replace and Delete return an error
// if the Secret with the name that they need has another type.
const Type = "clusterpass.io/secret"

const (
	basePath = "api/v1"
	resource = "secrets"
	dataKey  = "value"
	pageSize = "500"

	nameAnnotation    = "store.clusterpass.io/name"
	labelsAnnotation  = "store.clusterpass.io/labels"
	updatedAnnotation = "store.clusterpass.io/updated"
	writeAnnotation   = "store.clusterpass.io/write"
)

// Store implements secrets.Store. It needs no Close.
type Store struct{ client *hub.Client }

var _ secrets.Store = (*Store)(nil)

// New returns a Store in the namespace of the client. It sends no request.
func New(client *hub.Client) *Store { return &Store{client} }

// secret is the JSON of a Secret.
type secret struct {
	APIVersion string            `json:"apiVersion"`
	Kind       string            `json:"kind"`
	Metadata   meta              `json:"metadata"`
	Type       string            `json:"type"`
	Data       map[string][]byte `json:"data"`
}

type meta struct {
	Name              string            `json:"name"`
	UID               string            `json:"uid,omitempty"`
	ResourceVersion   string            `json:"resourceVersion,omitempty"`
	CreationTimestamp *metav1.Time      `json:"creationTimestamp,omitempty"`
	Annotations       map[string]string `json:"annotations,omitempty"`
}

func newSecret(name string, v secrets.Value) *secret {
	return &secret{
		APIVersion: "v1", Kind: "Secret", Type: Type, Data: map[string][]byte{dataKey: v.Reveal()},
		Metadata: meta{Name: secretName(name), Annotations: map[string]string{
			nameAnnotation: name, writeAnnotation: rand.Text(), updatedAnnotation: time.Now().UTC().Format(time.RFC3339Nano),
		}},
	}
}

// describe returns the metadata without labels.
func (m *meta) describe() secrets.Meta {
	out := secrets.Meta{Name: m.Annotations[nameAnnotation], Version: m.ResourceVersion}
	var err error
	if out.Updated, err = time.Parse(time.RFC3339Nano, m.Annotations[updatedAnnotation]); err != nil &&
		m.CreationTimestamp != nil {
		out.Updated = m.CreationTimestamp.Time
	}
	return out
}

// Get implements secrets.Store.
func (s *Store) Get(ctx context.Context, name string) (*secrets.Secret, error) {
	if err := secrets.ValidName(name); err != nil {
		return nil, err
	}
	got, err := s.read(ctx, name)
	if err != nil {
		return nil, s.fail("get", name, err)
	}
	return &secrets.Secret{Meta: got.Metadata.describe(), Value: secrets.NewValue(got.Data[dataKey])}, nil
}

func (s *Store) read(ctx context.Context, name string) (*secret, error) {
	got := &secret{}
	err := s.client.Do(ctx, hub.Request{Method: http.MethodGet, Path: s.path(secretName(name))}, got)
	if err != nil {
		return nil, err
	}
	if got.Type != Type || got.Metadata.Annotations[nameAnnotation] != name {
		return nil, fmt.Errorf("%w: the Secret %s was not made by Clusterpass; delete it", secrets.ErrInvalid,
			got.Metadata.Name)
	}
	return got, nil
}

// Create implements secrets.Store.
func (s *Store) Create(ctx context.Context, name string, v secrets.Value, labels map[string]string) (string, error) {
	if err := errors.Join(secrets.ValidName(name), secrets.ValidValue(v), secrets.ValidLabels(labels)); err != nil {
		return "", err
	}
	made := newSecret(name, v)
	if len(labels) > 0 {
		text, err := json.Marshal(labels)
		if err != nil {
			return "", err
		}
		made.Metadata.Annotations[labelsAnnotation] = string(text)
	}
	return s.write(ctx, "create", name, hub.Request{Method: http.MethodPost, Path: s.path(), Body: made})
}

// Replace implements secrets.Store.
func (s *Store) Replace(ctx context.Context, name, old string, v secrets.Value) (string, error) {
	if err := errors.Join(secrets.ValidName(name), secrets.ValidValue(v)); err != nil {
		return "", err
	}
	ctx, cancel := context.WithTimeout(ctx, hub.CallTimeout)
	defer cancel()
	before, err := s.read(ctx, name)
	if err == nil && before.Metadata.ResourceVersion != old {
		err = fmt.Errorf("%w: want version %.64q, is %q", secrets.ErrConflict, old, before.Metadata.ResourceVersion)
	}
	if err != nil {
		return "", s.fail("replace", name, err)
	}
	after := newSecret(name, v)
	after.Metadata.ResourceVersion = old
	if labels, ok := before.Metadata.Annotations[labelsAnnotation]; ok {
		after.Metadata.Annotations[labelsAnnotation] = labels
	}
	return s.write(ctx, "replace", name, hub.Request{
		Method: http.MethodPut, Path: s.path(after.Metadata.Name), Body: after,
	})
}

func (s *Store) write(ctx context.Context, op, name string, r hub.Request) (string, error) {
	var out secret
	if err := s.client.Do(ctx, r, &out); err != nil {
		return "", s.fail(op, name, hub.Discreet(err))
	}
	return out.Metadata.ResourceVersion, nil
}

// Delete implements secrets.Store.
func (s *Store) Delete(ctx context.Context, name string) error {
	if err := secrets.ValidName(name); err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, hub.CallTimeout)
	defer cancel()
	for n := 1; ; n++ {
		got, err := s.read(ctx, name)
		if err == nil {
			path := s.path(got.Metadata.Name)
			err = s.client.Do(ctx, hub.DeleteRequest(path, got.Metadata.UID, got.Metadata.ResourceVersion), nil)
		}
		if err == nil {
			return nil
		}
		// The secret may be replaced at the same time.
		if hub.FaultOf(err) != hub.Conflict || hub.Sleep(ctx, hub.Pause(n)) != nil {
			return s.fail("delete", name, err)
		}
	}
}

type metaList struct {
	Metadata struct {
		Continue string `json:"continue"`
	} `json:"metadata"`
	Items []struct {
		Metadata meta `json:"metadata"`
	} `json:"items"`
}

// List implements secrets.Store. The list includes every write that was completed before the call.
func (s *Store) List(ctx context.Context, labels map[string]string) ([]secrets.Meta, error) {
	query := url.Values{"fieldSelector": {"type=" + Type}, "limit": {pageSize}}
	metas := []secrets.Meta{}
	for {
		var page metaList
		err := s.client.Do(ctx, hub.Request{
			Method: http.MethodGet, Path: s.path(), Query: query,
			Accept: "application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1",
		}, &page)
		var expired *hub.Error
		if errors.As(err, &expired) && expired.Continue != "" && query.Get("continue") != expired.Continue {
			query.Set("continue", expired.Continue) // a token for the rest of the list in its present state
			continue
		}
		if err != nil {
			return nil, s.fail("list", s.client.Namespace(), err)
		}
		for _, item := range page.Items {
			m := item.Metadata.describe()
			if text := item.Metadata.Annotations[labelsAnnotation]; text != "" {
				if err := json.Unmarshal([]byte(text), &m.Labels); err != nil {
					return nil, s.fail("list", m.Name, fmt.Errorf("%w: its labels are not JSON", secrets.ErrInvalid))
				}
			}
			if secrets.ValidName(m.Name) == nil && item.Metadata.Name == secretName(m.Name) && m.Has(labels) {
				metas = append(metas, m)
			}
		}
		if page.Metadata.Continue == "" {
			break
		}
		query.Set("continue", page.Metadata.Continue)
	}
	slices.SortFunc(metas, func(a, b secrets.Meta) int { return strings.Compare(a.Name, b.Name) })
	return metas, nil
}

func (s *Store) path(name ...string) string { return s.client.Path(basePath, resource, name...) }

var storeErrors = hub.StoreErrors{
	Reasons: map[hub.Fault]error{
		hub.NotFound: secrets.ErrNotFound, hub.Exists: secrets.ErrExists, hub.Conflict: secrets.ErrConflict,
		hub.Forbidden: secrets.ErrForbidden, hub.Refused: secrets.ErrInvalid,
	},
	Unavailable: secrets.Unavailable,
}

func (s *Store) fail(op, name string, err error) error {
	return s.client.Explain(op, name, err, storeErrors)
}
