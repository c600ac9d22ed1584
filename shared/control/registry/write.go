package registry

import (
	"context"
	"errors"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apiserver/pkg/endpoints/handlers/fieldmanager"
	"k8s.io/apiserver/pkg/registry/rest"
	"k8s.io/apiserver/pkg/storage"
	storeerr "k8s.io/apiserver/pkg/storage/errors"
)

// maxGeneratedNames bounds the attempts to find an unused name for an object with generateName, as in Kubernetes.
const maxGeneratedNames = 8

// Create implements rest.Creater. It may change obj.
func (s *Store) Create(ctx context.Context, obj runtime.Object, validate rest.ValidateObjectFunc,
	opts *metav1.CreateOptions) (runtime.Object, error) {
	m, err := meta.Accessor(obj)
	if err != nil {
		return nil, err
	}
	if m.GetName() != "" || m.GetGenerateName() == "" {
		return s.create(ctx, obj, validate, opts)
	}
	for attempt := 1; ; attempt++ {
		out, err := s.create(ctx, obj.DeepCopyObject(), validate, opts)
		if attempt == maxGeneratedNames || !apierrors.IsAlreadyExists(err) {
			return out, err
		}
	}
}

func (s *Store) create(ctx context.Context, obj runtime.Object, validate rest.ValidateObjectFunc,
	opts *metav1.CreateOptions) (runtime.Object, error) {
	m, err := meta.Accessor(obj)
	if err != nil {
		return nil, err
	}
	if err := s.completeNew(ctx, obj, validate); err != nil {
		return nil, err
	}
	key, err := s.key(m.GetName())
	if err != nil {
		return nil, err
	}
	out := s.NewObject()
	if err := s.storage(opts.DryRun).Create(ctx, key, obj, out, 0); err != nil {
		return nil, s.createError(ctx, err, key, obj, m)
	}
	return out, nil
}

// completeNew sets the fields of a new object that clients do not set, and validates it.
func (s *Store) completeNew(ctx context.Context, obj runtime.Object, validate rest.ValidateObjectFunc) error {
	m, err := meta.Accessor(obj)
	if err != nil {
		return err
	}
	rest.FillObjectMetaSystemFields(m)
	if m.GetName() == "" && m.GetGenerateName() != "" {
		m.SetName(s.Strategy.GenerateName(m.GetGenerateName()))
	}
	if err := rest.BeforeCreate(s.Strategy, ctx, obj); err != nil || validate == nil {
		return err
	}
	return validate(ctx, obj.DeepCopyObject())
}

func (s *Store) createError(ctx context.Context, err error, key string, obj runtime.Object, m metav1.Object) error {
	err = storeerr.InterpretCreateError(err, s.Resource(), m.GetName())
	err = rest.CheckGeneratedNameError(ctx, s.Strategy, err, obj)
	var exists *apierrors.StatusError
	if !apierrors.IsAlreadyExists(err) || !errors.As(err, &exists) {
		return err
	}
	existing := s.NewObject()
	if s.Storage.Get(ctx, key, storage.GetOptions{}, existing) != nil {
		return err
	}
	if m, merr := meta.Accessor(existing); merr == nil && m.GetDeletionTimestamp() != nil {
		exists.ErrStatus.Message = "object is being deleted: " + exists.ErrStatus.Message
	}
	return err
}

// errNoFinalizers ends an update that removes the last finalizer of an object that is being deleted.
var errNoFinalizers = errors.New("the object has no finalizers left")

// update is one call of Store.Update.
type update struct {
	*Store
	name        string
	info        rest.UpdatedObjectInfo
	validateNew rest.ValidateObjectFunc
	validate    rest.ValidateObjectUpdateFunc
	mayCreate   bool
	created     runtime.Object // nil if the object exists
	finalized   runtime.Object // set with errNoFinalizers
}

// Update implements rest.Updater. It creates the object if forceCreate is true, or if the strategy allows it.
func (s *Store) Update(ctx context.Context, name string, info rest.UpdatedObjectInfo,
	validateNew rest.ValidateObjectFunc, validate rest.ValidateObjectUpdateFunc, forceCreate bool,
	opts *metav1.UpdateOptions) (obj runtime.Object, created bool, err error) {
	key, err := s.key(name)
	if err != nil {
		return nil, false, err
	}
	preconditions := &storage.Preconditions{}
	if p := info.Preconditions(); p != nil {
		preconditions.UID, preconditions.ResourceVersion = p.UID, p.ResourceVersion
	}
	u := &update{Store: s, name: name, info: info, validateNew: validateNew, validate: validate,
		mayCreate: forceCreate || s.Strategy.AllowCreateOnUpdate(ctx)}
	out, to := s.NewObject(), s.storage(opts.DryRun)
	err = to.GuaranteedUpdate(ctx, key, out, u.mayCreate, preconditions,
		func(existing runtime.Object, at storage.ResponseMeta) (runtime.Object, *uint64, error) {
			next, err := u.nextObject(ctx, existing, at.ResourceVersion)
			return next, nil, err
		}, nil)
	switch {
	case errors.Is(err, errNoFinalizers):
		return u.finalized, false, u.deleteFinalized(ctx, key, preconditions, opts)
	case err == nil:
		return out, u.created != nil, nil
	case u.created != nil:
		err = storeerr.InterpretCreateError(err, s.Resource(), name)
		return nil, false, rest.CheckGeneratedNameError(ctx, s.Strategy, err, u.created)
	}
	return nil, false, storeerr.InterpretUpdateError(err, s.Resource(), name)
}

// nextObject returns the object that replaces existing, which is empty if there is none.
func (u *update) nextObject(ctx context.Context, existing runtime.Object, version uint64) (runtime.Object, error) {
	u.created = nil
	if version == 0 && !u.mayCreate {
		return nil, apierrors.NewNotFound(u.Resource(), u.name)
	}
	obj, err := u.info.UpdatedObject(ctx, existing)
	if err != nil {
		return nil, err
	}
	m, err := meta.Accessor(obj)
	if err != nil {
		return nil, err
	}
	requested, err := u.Storage.Versioner().ObjectResourceVersion(obj)
	switch {
	case err != nil:
		return nil, apierrors.NewBadRequest("metadata.resourceVersion: " + err.Error())
	case version == 0:
		u.created = obj
		rest.WipeObjectMetaSystemFields(m)
		return obj, u.completeNew(ctx, obj, u.validateNew)
	case requested == 0:
		err = u.Storage.Versioner().UpdateObject(obj, version)
	case requested != version:
		err = apierrors.NewConflict(u.Resource(), u.name, errOutdated)
	}
	if err != nil {
		return nil, err
	}
	if err := rest.BeforeUpdate(u.Strategy, ctx, obj, existing); err != nil {
		return nil, err
	}
	if obj, err = fieldmanager.IgnoreManagedFieldsTimestampsTransformer(ctx, obj, existing); err != nil {
		return nil, err
	}
	if u.validate != nil {
		if err := u.validate(ctx, obj.DeepCopyObject(), existing.DeepCopyObject()); err != nil {
			return nil, err
		}
	}
	if old, err := meta.Accessor(existing); err != nil {
		return nil, err
	} else if old.GetDeletionTimestamp() != nil && len(m.GetFinalizers()) == 0 {
		u.finalized = obj
		return nil, errNoFinalizers
	}
	return obj, nil
}

// errOutdated has the text of Kubernetes, which clients look for.
var errOutdated = errors.New(
	"the object has been modified; please apply your changes to the latest version and try again")
