// Package registry stores the objects of a cluster-scoped resource for the request handlers of k8s.io/apiserver. It
// behaves as k8s.io/apiserver/pkg/registry/generic/registry, which links a client of etcd. That would make cold starts
// much longer. It has nothing to do with ResourceRegistries.
//
// Invariants:
//   - An object passes its strategy and the admission of the handler before each write.
//   - An object with finalizers is never deleted.
//   - A dry run changes nothing.
package registry

import (
	"context"
	"fmt"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/validate/content"
	"k8s.io/apimachinery/pkg/apis/meta/internalversion"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/apiserver/pkg/registry/rest"
	"k8s.io/apiserver/pkg/storage"
	storeerr "k8s.io/apiserver/pkg/storage/errors"
	"k8s.io/apiserver/pkg/util/dryrun"
	"sigs.k8s.io/structured-merge-diff/v6/fieldpath"
)

// Strategy prepares and validates the objects of a resource.
type Strategy interface {
	rest.RESTCreateStrategy
	rest.RESTUpdateStrategy
	rest.RESTDeleteStrategy
	rest.ResetFieldsStrategy
}

// Store is the registry of one resource. It is safe for concurrent use. Options are never nil, and neither are the
// functions for the admission of deletions.
//
// An update without a resourceVersion replaces the stored object, whatever its version.
type Store struct {
	Storage storage.Interface
	// Codec encodes the results of dry runs as Storage encodes objects.
	Codec   runtime.Codec
	Version schema.GroupVersion
	// Plural is the name of the resource, and the first part of its keys in Storage.
	Plural, Singular string
	NewObject        func() runtime.Object
	NewListObject    func() runtime.Object
	Strategy         Strategy
	rest.TableConvertor
	// AfterDelete is called after a deletion, but not after that of a dry run. Optional.
	AfterDelete func(ctx context.Context, deleted runtime.Object)
}

var (
	_ rest.StandardStorage        = (*Store)(nil)
	_ rest.ResetFieldsStrategy    = (*Store)(nil)
	_ rest.SingularNameProvider   = (*Store)(nil)
	_ rest.StorageVersionProvider = (*Store)(nil)
)

// New implements rest.Storage.
func (s *Store) New() runtime.Object { return s.NewObject() }

// NewList implements rest.Lister.
func (s *Store) NewList() runtime.Object { return s.NewListObject() }

// Destroy implements rest.Storage.
func (*Store) Destroy() {}

// NamespaceScoped implements rest.Scoper.
func (*Store) NamespaceScoped() bool { return false }

// GetSingularName implements rest.SingularNameProvider, for discovery.
func (s *Store) GetSingularName() string { return s.Singular }

// StorageVersion implements rest.StorageVersionProvider, for discovery.
func (s *Store) StorageVersion() runtime.GroupVersioner { return s.Version }

// GetResetFields implements rest.ResetFieldsStrategy.
func (s *Store) GetResetFields() map[fieldpath.APIVersion]*fieldpath.Set {
	return s.Strategy.GetResetFields()
}

// Resource returns the group and the name of the resource.
func (s *Store) Resource() schema.GroupResource {
	return schema.GroupResource{Group: s.Version.Group, Resource: s.Plural}
}

func (s *Store) key(name string) (string, error) {
	if problems := content.IsPathSegmentName(name); name == "" || len(problems) > 0 {
		return "", apierrors.NewBadRequest(fmt.Sprintf("the name %q cannot be used: it must be one segment of a path", name))
	}
	return s.Plural + "/" + name, nil
}

// storage returns a storage that changes nothing for a dry run.
func (s *Store) storage(dryRun []string) storage.Interface {
	if dryrun.IsDryRun(dryRun) {
		return dryRunStorage{s.Storage, s.Codec}
	}
	return s.Storage
}

// Get implements rest.Getter.
func (s *Store) Get(ctx context.Context, name string, opts *metav1.GetOptions) (runtime.Object, error) {
	key, err := s.key(name)
	if err != nil {
		return nil, err
	}
	obj := s.NewObject()
	err = s.Storage.Get(ctx, key, storage.GetOptions{ResourceVersion: opts.ResourceVersion}, obj)
	if err != nil {
		return nil, storeerr.InterpretGetError(err, s.Resource(), name)
	}
	return obj, nil
}

// List implements rest.Lister.
func (s *Store) List(ctx context.Context, opts *internalversion.ListOptions) (runtime.Object, error) {
	list := s.NewListObject()
	key, to := s.storageOptions(opts)
	to.ResourceVersionMatch = opts.ResourceVersionMatch
	to.Predicate.Limit, to.Predicate.Continue = opts.Limit, opts.Continue
	return list, storeerr.InterpretListError(s.Storage.GetList(ctx, key, to, list), s.Resource())
}

// Watch implements rest.Watcher.
func (s *Store) Watch(ctx context.Context, opts *internalversion.ListOptions) (watch.Interface, error) {
	key, to := s.storageOptions(opts)
	to.SendInitialEvents, to.Predicate.AllowWatchBookmarks = opts.SendInitialEvents, opts.AllowWatchBookmarks
	return s.Storage.Watch(ctx, key, to)
}

// storageOptions also returns the key of the selected objects. If the selector names one, the key is that object's.
func (s *Store) storageOptions(opts *internalversion.ListOptions) (key string, to storage.ListOptions) {
	to = storage.ListOptions{ResourceVersion: opts.ResourceVersion, Recursive: true, Predicate: storage.SelectionPredicate{
		Label: labels.Everything(), Field: fields.Everything(), GetAttrs: storage.DefaultClusterScopedAttr,
	}}
	if opts.LabelSelector != nil {
		to.Predicate.Label = opts.LabelSelector
	}
	if opts.FieldSelector != nil {
		to.Predicate.Field = opts.FieldSelector
	}
	if name, ok := to.Predicate.MatchesSingle(); ok {
		if key, err := s.key(name); err == nil {
			to.Recursive = false
			return key, to
		}
	}
	return s.Plural, to
}
