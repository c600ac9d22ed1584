package registry

import (
	"context"
	"errors"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/apis/meta/internalversion"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apiserver/pkg/registry/rest"
	"k8s.io/apiserver/pkg/storage"
	storeerr "k8s.io/apiserver/pkg/storage/errors"
	"k8s.io/apiserver/pkg/util/dryrun"
)

// Delete implements rest.GracefulDeleter. An object with finalizers gets a deletionTimestamp. Otherwise, the result is
// a status with the object's UID, and deleted is true.
func (s *Store) Delete(ctx context.Context, name string, validate rest.ValidateObjectFunc,
	opts *metav1.DeleteOptions) (result runtime.Object, deleted bool, err error) {
	key, err := s.key(name)
	if err != nil {
		return nil, false, err
	}
	obj := s.NewObject()
	if err := s.Storage.Get(ctx, key, storage.GetOptions{}, obj); err != nil {
		return nil, false, storeerr.InterpretDeleteError(err, s.Resource(), name)
	}
	preconditions := &storage.Preconditions{}
	if p := opts.Preconditions; p != nil {
		preconditions.UID, preconditions.ResourceVersion = p.UID, p.ResourceVersion
	}
	if _, _, err := rest.BeforeDelete(s.Strategy, ctx, obj, opts); err != nil {
		return nil, false, err
	}
	if m, err := meta.Accessor(obj); err != nil {
		return nil, false, err
	} else if len(m.GetFinalizers()) > 0 {
		marked, err := s.markAsDeleting(ctx, key, preconditions, validate, opts)
		switch {
		case err == nil:
			return marked, false, nil
		case !errors.Is(err, errNoFinalizers): // another writer removed the finalizers
			return nil, false, storeerr.InterpretUpdateError(err, s.Resource(), name)
		}
	}
	out := s.NewObject()
	err = s.storage(opts.DryRun).Delete(ctx, key, out, preconditions, storage.ValidateObjectFunc(validate), nil,
		storage.DeleteOptions{})
	if err != nil {
		return nil, false, storeerr.InterpretDeleteError(err, s.Resource(), name)
	}
	status, err := s.finishDelete(ctx, out, opts.DryRun)
	return status, true, err
}

// markAsDeleting sets the time of deletion of an object with finalizers. If the object has none, it returns
// errNoFinalizers.
func (s *Store) markAsDeleting(ctx context.Context, key string, preconditions *storage.Preconditions,
	validate rest.ValidateObjectFunc, opts *metav1.DeleteOptions) (runtime.Object, error) {
	out := s.NewObject()
	err := s.storage(opts.DryRun).GuaranteedUpdate(ctx, key, out, false, preconditions,
		storage.SimpleUpdate(func(existing runtime.Object) (runtime.Object, error) {
			if err := validate(ctx, existing); err != nil {
				return nil, err
			}
			if _, _, err := rest.BeforeDelete(s.Strategy, ctx, existing, opts); err != nil {
				return nil, err
			}
			m, err := meta.Accessor(existing)
			switch {
			case err != nil:
				return nil, err
			case len(m.GetFinalizers()) == 0:
				return nil, errNoFinalizers
			case m.GetDeletionTimestamp() == nil:
				now := metav1.NewTime(time.Now())
				m.SetDeletionTimestamp(&now)
				if m.GetGeneration() > 0 {
					m.SetGeneration(m.GetGeneration() + 1)
				}
			}
			m.SetDeletionGracePeriodSeconds(new(int64))
			return existing, nil
		}), nil)
	return out, err
}

// deleteFinalized deletes the object after an update that removed its last finalizer.
func (u *update) deleteFinalized(ctx context.Context, key string, preconditions *storage.Preconditions,
	opts *metav1.UpdateOptions) error {
	out := u.NewObject()
	err := u.storage(opts.DryRun).Delete(ctx, key, out, preconditions, rest.ValidateAllObjectFunc, nil,
		storage.DeleteOptions{})
	if storage.IsNotFound(err) { // another update was faster
		out, err = u.finalized, nil
	}
	if err != nil {
		return storeerr.InterpretDeleteError(err, u.Resource(), u.name)
	}
	_, err = u.finishDelete(ctx, out, opts.DryRun)
	return err
}

// finishDelete calls AfterDelete, and returns the response to a deletion.
func (s *Store) finishDelete(ctx context.Context, deleted runtime.Object, dryRun []string) (*metav1.Status, error) {
	if s.AfterDelete != nil && !dryrun.IsDryRun(dryRun) {
		s.AfterDelete(ctx, deleted)
	}
	m, err := meta.Accessor(deleted)
	if err != nil {
		return nil, err
	}
	return &metav1.Status{Status: metav1.StatusSuccess, Details: &metav1.StatusDetails{
		Name: m.GetName(), Group: s.Version.Group, Kind: s.Plural, UID: m.GetUID(), // Kubernetes sets kind so, too
	}}, nil
}

// collectionPage is the number of objects that DeleteCollection reads at once.
const collectionPage = 500

// DeleteCollection implements rest.CollectionDeleter. With a limit, it deletes one page. If it fails, some of the
// objects may be deleted.
func (s *Store) DeleteCollection(ctx context.Context, validate rest.ValidateObjectFunc, opts *metav1.DeleteOptions,
	listOpts *internalversion.ListOptions) (runtime.Object, error) {
	listOpts = listOpts.DeepCopy()
	onePage := listOpts.Limit > 0
	if !onePage {
		listOpts.Limit = collectionPage
	}
	var items []runtime.Object
	for {
		page, err := s.List(ctx, listOpts)
		if err != nil {
			return nil, err
		}
		objects, err := meta.ExtractList(page)
		if err != nil {
			return nil, err
		}
		for _, obj := range objects {
			m, err := meta.Accessor(obj)
			if err != nil {
				return nil, err
			}
			if _, _, err := s.Delete(ctx, m.GetName(), validate, opts.DeepCopy()); err != nil && !apierrors.IsNotFound(err) {
				return nil, err
			}
		}
		items = append(items, objects...)
		m, err := meta.ListAccessor(page)
		if err != nil {
			return nil, err
		}
		if onePage || m.GetContinue() == "" {
			return page, meta.SetList(page, items)
		}
		listOpts.Continue, listOpts.ResourceVersion, listOpts.ResourceVersionMatch = m.GetContinue(), "", ""
	}
}
