// Package backend implements the storage of a Kubernetes API server, over an objects.Store. The store's revision is the
// resourceVersion.
//
// Invariants:
//   - A write replaces exactly the state that was read for it, or fails.
//   - A list followed by a watch from its resourceVersion misses no event.
//   - Reads return the newest state. The store keeps no older states, so a list of an older one fails with 410.
//   - An object that cannot be decoded fails the request, and the error names it. No list omits it.
package backend

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net/http"
	"reflect"
	"strings"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/storage"

	"github.com/clusterpass/clusterpass/shared/objects"
)

// Backend stores the objects of one resource. It implements storage.Interface. Keys are those of the object store.
type Backend struct {
	store     objects.Store
	codec     runtime.Codec
	resource  schema.GroupResource
	newObject func() runtime.Object
	versioner storage.APIObjectVersioner
}

// New returns the storage of resource in store. codec encodes stored objects. newObject returns an empty object.
func New(store objects.Store, codec runtime.Codec, resource schema.GroupResource,
	newObject func() runtime.Object) *Backend {
	return &Backend{store: store, codec: codec, resource: resource, newObject: newObject}
}

var _ storage.Interface = (*Backend)(nil)

// Versioner implements storage.Interface.
func (b *Backend) Versioner() storage.Versioner { return b.versioner }

// Get implements storage.Interface.
func (b *Backend) Get(ctx context.Context, key string, opts storage.GetOptions, out runtime.Object) error {
	o, err := b.store.Get(ctx, key)
	if errors.Is(err, objects.ErrNotFound) && opts.IgnoreNotFound {
		return runtime.SetZeroValue(out)
	} else if err != nil {
		return b.apiError(key, err)
	}
	if err := b.checkMinVersion(opts.ResourceVersion, o.Revision,
		func() (uint64, error) { return b.store.Revision(ctx) }); err != nil {
		return err
	}
	return b.decode(o, out)
}

// Create implements storage.Interface. It ignores the TTL.
func (b *Backend) Create(ctx context.Context, key string, obj, out runtime.Object, _ uint64) error {
	if v, err := b.versioner.ObjectResourceVersion(obj); err == nil && v != 0 {
		return storage.ErrResourceVersionSetOnCreate
	}
	value, err := b.encode(obj)
	if err != nil {
		return err
	}
	o, err := b.store.Create(ctx, key, value)
	if err != nil || out == nil {
		return b.apiError(key, err)
	}
	return b.decode(o, out)
}

// GuaranteedUpdate implements storage.Interface. It ignores the cached object.
func (b *Backend) GuaranteedUpdate(ctx context.Context, key string, out runtime.Object, ignoreNotFound bool,
	preconditions *storage.Preconditions, tryUpdate storage.UpdateFunc, _ runtime.Object) error {
	for {
		o, err := b.store.Get(ctx, key)
		if errors.Is(err, objects.ErrNotFound) && ignoreNotFound {
			o = objects.Object{Key: key}
		} else if err != nil {
			return b.apiError(key, err)
		}
		before := b.newObject()
		if o.Revision != 0 {
			if err := b.decode(o, before); err != nil {
				return err
			}
		}
		if err := preconditions.Check(key, before); err != nil {
			return err
		}
		after, _, err := tryUpdate(before, storage.ResponseMeta{ResourceVersion: o.Revision})
		if err != nil {
			return err
		}
		value, err := b.encode(after)
		if err != nil {
			return err
		}
		if o.Revision != 0 && bytes.Equal(value, o.Value) {
			return b.decode(o, out)
		}
		o, err = b.put(ctx, key, value, o.Revision)
		if err == nil {
			return b.decode(o, out)
		}
		if !isContended(err) {
			return b.apiError(key, err)
		}
		if err := ctx.Err(); err != nil {
			return storage.NewTimeoutError(key, err.Error())
		}
	}
}

func (b *Backend) put(ctx context.Context, key string, value []byte, rev uint64) (objects.Object, error) {
	if rev == 0 {
		return b.store.Create(ctx, key, value)
	}
	return b.store.Update(ctx, key, value, rev)
}

// isContended reports whether the write must be retried, because another writer was faster.
func isContended(err error) bool {
	return errors.Is(err, objects.ErrConflict) || errors.Is(err, objects.ErrExists) || errors.Is(err, objects.ErrNotFound)
}

// Delete implements storage.Interface.
func (b *Backend) Delete(ctx context.Context, key string, out runtime.Object, preconditions *storage.Preconditions,
	validate storage.ValidateObjectFunc, _ runtime.Object, _ storage.DeleteOptions) error {
	for {
		o, err := b.store.Get(ctx, key)
		if err != nil {
			return b.apiError(key, err)
		}
		obj := b.newObject()
		if err := b.decode(o, obj); err != nil {
			return err
		}
		if err := preconditions.Check(key, obj); err != nil {
			return err
		}
		if err := validate(ctx, obj); err != nil {
			return err
		}
		o, err = b.store.Delete(ctx, key, o.Revision)
		if err == nil {
			return b.decode(o, out)
		}
		if !errors.Is(err, objects.ErrConflict) {
			return b.apiError(key, err)
		}
		if err := ctx.Err(); err != nil {
			return storage.NewTimeoutError(key, err.Error())
		}
	}
}

// GetList implements storage.Interface.
func (b *Backend) GetList(ctx context.Context, key string, opts storage.ListOptions, list runtime.Object) error {
	itemsPtr, err := meta.GetItemsPtr(list)
	if err != nil {
		return err
	}
	items := reflect.ValueOf(itemsPtr).Elem()
	page, err := b.list(ctx, key, opts, func(obj runtime.Object) {
		items.Set(reflect.Append(items, reflect.ValueOf(obj).Elem()))
	})
	if err != nil {
		return err
	}
	if items.IsNil() {
		items.Set(reflect.MakeSlice(items.Type(), 0, 0))
	}
	m, err := meta.ListAccessor(list)
	if err != nil {
		return err
	}
	// The versioner refuses 0, which is the version of an empty store.
	m.SetResourceVersion(fmt.Sprint(page.Revision))
	m.SetContinue(page.Continue)
	if page.Continue != "" && page.Remaining > 0 && opts.Predicate.Empty() {
		m.SetRemainingItemCount(&page.Remaining)
	}
	return nil
}

// list passes each selected object to each, and returns the page with its revision and continue token.
func (b *Backend) list(ctx context.Context, key string, opts storage.ListOptions,
	each func(runtime.Object)) (objects.Page, error) {
	if !opts.Recursive {
		return b.listOne(ctx, key, opts, each)
	}
	prefix := strings.TrimSuffix(key, "/") + "/"
	cont, limit, found := opts.Predicate.Continue, int(opts.Predicate.Limit), 0
	var first uint64
	for {
		n := 0
		if limit > 0 {
			n = limit - found
		}
		page, err := b.store.List(ctx, prefix, n, cont)
		if err != nil {
			return page, b.listError(err, cont)
		}
		if first == 0 {
			first = page.Revision
			if err := checkExactVersion(opts, page.Revision); err != nil {
				return page, err
			}
			if err := b.checkMinVersion(opts.ResourceVersion, page.Revision, nil); err != nil {
				return page, err
			}
		}
		for _, o := range page.Objects {
			obj := b.newObject()
			if err := b.decode(o, obj); err != nil {
				return page, err
			}
			match, err := opts.Predicate.Matches(obj)
			if err != nil {
				return page, err
			}
			if match {
				found++
				each(obj)
			}
		}
		cont = page.Continue
		if cont == "" || limit > 0 && found == limit {
			page.Revision = first
			return page, nil
		}
	}
}

func (b *Backend) listOne(ctx context.Context, key string, opts storage.ListOptions,
	each func(runtime.Object)) (objects.Page, error) {
	// The revision is read first. A watch from it may repeat the object, but never misses a change.
	rev, err := b.store.Revision(ctx)
	if err != nil {
		return objects.Page{}, b.apiError(key, err)
	}
	page := objects.Page{Revision: rev}
	if err := errors.Join(checkExactVersion(opts, rev), b.checkMinVersion(opts.ResourceVersion, rev, nil)); err != nil {
		return page, err
	}
	o, err := b.store.Get(ctx, key)
	if errors.Is(err, objects.ErrNotFound) {
		return page, nil
	} else if err != nil {
		return page, b.apiError(key, err)
	}
	obj := b.newObject()
	if err := b.decode(o, obj); err != nil {
		return page, err
	}
	match, err := opts.Predicate.Matches(obj)
	if err == nil && match {
		each(obj)
	}
	return page, err
}

func checkExactVersion(opts storage.ListOptions, rev uint64) error {
	if opts.ResourceVersionMatch == metav1.ResourceVersionMatchExact && opts.Predicate.Continue == "" &&
		opts.ResourceVersion != fmt.Sprint(rev) {
		return apierrors.NewResourceExpired("the gateway keeps no older states; list without resourceVersionMatch=Exact")
	}
	return nil
}

// checkMinVersion rejects a response that is older than the version that the client has seen. latest, if not nil, reads
// the store's revision when rev is an object's own.
func (b *Backend) checkMinVersion(requested string, rev uint64, latest func() (uint64, error)) error {
	minimum, err := b.versioner.ParseResourceVersion(requested)
	if err != nil {
		return apierrors.NewBadRequest(err.Error())
	}
	if minimum > rev && latest != nil {
		if rev, err = latest(); err != nil {
			return b.apiError("", err)
		}
	}
	if minimum > rev {
		return storage.NewTooLargeResourceVersionError(minimum, rev, 1)
	}
	return nil
}

// Stats implements storage.Interface.
func (b *Backend) Stats(context.Context) (storage.Stats, error) {
	return storage.Stats{}, errors.New("objects are not counted")
}

// ReadinessCheck implements storage.Interface. Every request checks the store itself.
func (b *Backend) ReadinessCheck() error { return nil }

// RequestWatchProgress implements storage.Interface. Watches report progress without it.
func (b *Backend) RequestWatchProgress(context.Context) error { return nil }

// GetCurrentResourceVersion implements storage.Interface.
func (b *Backend) GetCurrentResourceVersion(ctx context.Context) (uint64, error) {
	rev, err := b.store.Revision(ctx)
	return rev, b.apiError("", err)
}

// EnableResourceSizeEstimation implements storage.Interface.
func (b *Backend) EnableResourceSizeEstimation(storage.KeysFunc) error { return nil }

// CompactRevision implements storage.Interface.
func (b *Backend) CompactRevision() int64 { return 0 }

// encode drops the resourceVersion, which the store assigns.
func (b *Backend) encode(obj runtime.Object) ([]byte, error) {
	obj = obj.DeepCopyObject()
	if err := b.versioner.PrepareObjectForStorage(obj); err != nil {
		return nil, err
	}
	value, err := runtime.Encode(b.codec, obj)
	if err != nil {
		return nil, err
	}
	// Without the newline the bytes equal those of json.Marshal, by which other writers store such objects.
	value = bytes.TrimSuffix(value, []byte("\n"))
	if len(value) > objects.MaxValue {
		return nil, apierrors.NewRequestEntityTooLargeError(
			fmt.Sprintf("the object has %d bytes; the gateway keeps at most %d", len(value), objects.MaxValue))
	}
	return value, nil
}

// decode reads a stored object into out. The object's name is that of its key, not the one in the value.
func (b *Backend) decode(o objects.Object, out runtime.Object) error {
	if err := runtime.SetZeroValue(out); err != nil {
		return err
	}
	obj, _, err := b.codec.Decode(o.Value, nil, out)
	if err != nil {
		return apierrors.NewInternalError(fmt.Errorf("the stored object %s cannot be read: %w", o.Key, err))
	}
	if obj != out {
		return apierrors.NewInternalError(fmt.Errorf("the stored object %s is of another kind", o.Key))
	}
	m, err := meta.Accessor(out)
	if err != nil {
		return err
	}
	_, name, _ := strings.Cut(o.Key, "/")
	m.SetName(name)
	return b.versioner.UpdateObject(out, o.Revision)
}

func (b *Backend) apiError(key string, err error) error {
	switch {
	case err == nil:
		return nil
	case errors.Is(err, objects.ErrNotFound):
		return storage.NewKeyNotFoundError(key, 0)
	case errors.Is(err, objects.ErrExists):
		return storage.NewKeyExistsError(key, 0)
	case errors.Is(err, objects.ErrConflict):
		return storage.NewResourceVersionConflictsError(key, 0)
	case errors.Is(err, objects.ErrCompacted):
		return apierrors.NewResourceExpired("the gateway keeps no history back to this resourceVersion; list again")
	case errors.Is(err, objects.ErrInvalid):
		return apierrors.NewBadRequest(err.Error())
	case errors.Is(err, context.DeadlineExceeded), errors.Is(err, context.Canceled):
		return apierrors.NewTimeoutError("the object store did not answer in time; try again", 1)
	case errors.Is(err, objects.ErrUnavailable), errors.Is(err, objects.ErrForbidden):
		return unavailable(err)
	}
	return apierrors.NewInternalError(err)
}

// unavailable hides the details of the store's error.
func unavailable(err error) error {
	after := int32(max(2*time.Second, objects.RetryAfter(err)) / time.Second)
	return &apierrors.StatusError{ErrStatus: metav1.Status{
		Status: metav1.StatusFailure, Code: http.StatusServiceUnavailable, Reason: metav1.StatusReasonServiceUnavailable,
		Message: "the gateway cannot read its objects now; try again",
		Details: &metav1.StatusDetails{RetryAfterSeconds: after},
	}}
}

func (b *Backend) listError(err error, cont string) error {
	if errors.Is(err, objects.ErrInvalid) && cont != "" {
		return apierrors.NewBadRequest("the continue token belongs to another list; list from the start")
	}
	return b.apiError("", err)
}
