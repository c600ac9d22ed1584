package registry

import (
	"context"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apiserver/pkg/storage"
)

// dryRunStorage reads and validates as its storage does, and writes nothing.
type dryRunStorage struct {
	storage.Interface
	codec runtime.Codec
}

func (r dryRunStorage) Create(ctx context.Context, key string, obj, out runtime.Object, _ uint64) error {
	err := r.Get(ctx, key, storage.GetOptions{}, out)
	switch {
	case err == nil:
		return storage.NewKeyExistsError(key, 0)
	case !storage.IsNotFound(err):
		return err
	}
	return r.setResult(obj, out)
}

func (r dryRunStorage) GuaranteedUpdate(ctx context.Context, key string, out runtime.Object, ignoreNotFound bool,
	preconditions *storage.Preconditions, tryUpdate storage.UpdateFunc, _ runtime.Object) error {
	existing := out.DeepCopyObject()
	if err := r.Get(ctx, key, storage.GetOptions{IgnoreNotFound: ignoreNotFound}, existing); err != nil {
		return err
	}
	if err := preconditions.Check(key, existing); err != nil {
		return err
	}
	version, err := r.Versioner().ObjectResourceVersion(existing)
	if err != nil {
		return err
	}
	updated, _, err := tryUpdate(existing, storage.ResponseMeta{ResourceVersion: version})
	if err != nil {
		return err
	}
	return r.setResult(updated, out)
}

func (r dryRunStorage) Delete(ctx context.Context, key string, out runtime.Object, preconditions *storage.Preconditions,
	validate storage.ValidateObjectFunc, _ runtime.Object, _ storage.DeleteOptions) error {
	if err := r.Get(ctx, key, storage.GetOptions{}, out); err != nil {
		return err
	}
	if err := preconditions.Check(key, out); err != nil {
		return err
	}
	return validate(ctx, out)
}

// setResult sets out to what a write of obj would return.
func (r dryRunStorage) setResult(obj, out runtime.Object) error {
	if err := runtime.SetZeroValue(out); err != nil {
		return err
	}
	data, err := runtime.Encode(r.codec, obj)
	if err != nil {
		return err
	}
	_, _, err = r.codec.Decode(data, nil, out)
	return err
}
