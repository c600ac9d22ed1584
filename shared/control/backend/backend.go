// Package backend is the storage of a Kubernetes API server over an objects.Store: the store's revision is the resourceVersion, its
// compare-and-swap decides between writers, and its log is what watches read.
//
// Invariants:
//   - A write is made on the state that was read for it, or not at all.
//   - A list followed by a watch from its resourceVersion misses nothing. Reads are always of the newest state; a list that must be
//     of an older one, which the store does not keep, is refused with 410.
//   - What cannot be read fails the call that asks for it, by name. It is never left out.
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

// Backend keeps the objects of one resource. It implements storage.Interface; keys are the object store's own.
type Backend struct {
	store     objects.Store
	codec     runtime.Codec
	resource  schema.GroupResource
	newObject func() runtime.Object
	versioner storage.APIObjectVersioner
}

// New returns the storage of resource in store. codec writes what is stored; newObject makes an empty object.
func New(store objects.Store, codec runtime.Codec, resource schema.GroupResource, newObject func() runtime.Object) *Backend {
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
		return b.explain(key, err)
	}
	if err := b.notOlder(opts.ResourceVersion, o.Revision, func() (uint64, error) { return b.store.Revision(ctx) }); err != nil {
		return err
	}
	return b.decode(o, out)
}

// Create implements storage.Interface. Nothing here lives for a limited time: ttl is ignored.
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
		return b.explain(key, err)
	}
	return b.decode(o, out)
}

// GuaranteedUpdate implements storage.Interface. The hint of what is stored is ignored: it is read anew.
func (b *Backend) GuaranteedUpdate(ctx context.Context, key string, out runtime.Object, ignoreNotFound bool,
	preconditions *storage.Preconditions, tryUpdate storage.UpdateFunc, _ runtime.Object) error {
	for {
		o, err := b.store.Get(ctx, key)
		if errors.Is(err, objects.ErrNotFound) && ignoreNotFound {
			o = objects.Object{Key: key}
		} else if err != nil {
			return b.explain(key, err)
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
		if !contended(err) {
			return b.explain(key, err)
		}
		if err := ctx.Err(); err != nil {
			return storage.NewTimeoutError(key, err.Error())
		}
	}
}

// put writes over the revision that was read, 0 for none.
func (b *Backend) put(ctx context.Context, key string, value []byte, rev uint64) (objects.Object, error) {
	if rev == 0 {
		return b.store.Create(ctx, key, value)
	}
	return b.store.Update(ctx, key, value, rev)
}

// contended reports whether another writer was faster, so that the write is to be thought over.
func contended(err error) bool {
	return errors.Is(err, objects.ErrConflict) || errors.Is(err, objects.ErrExists) || errors.Is(err, objects.ErrNotFound)
}

// Delete implements storage.Interface.
func (b *Backend) Delete(ctx context.Context, key string, out runtime.Object, preconditions *storage.Preconditions,
	validate storage.ValidateObjectFunc, _ runtime.Object, _ storage.DeleteOptions) error {
	for {
		o, err := b.store.Get(ctx, key)
		if err != nil {
			return b.explain(key, err)
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
			return b.explain(key, err)
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
	// Not by the versioner, which refuses 0: that is the version of a store without a write, and what a watch of all begins from.
	m.SetResourceVersion(fmt.Sprint(page.Revision))
	m.SetContinue(page.Continue)
	if page.Continue != "" && page.Remaining > 0 && opts.Predicate.Empty() {
		m.SetRemainingItemCount(&page.Remaining)
	}
	return nil
}

// list gives each object that opts selects, and the page that tells where the list is to go on.
func (b *Backend) list(ctx context.Context, key string, opts storage.ListOptions, each func(runtime.Object)) (objects.Page, error) {
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
			return page, b.explainList(err, cont)
		}
		if first == 0 {
			first = page.Revision
			if err := exactly(opts, page.Revision); err != nil {
				return page, err
			}
			if err := b.notOlder(opts.ResourceVersion, page.Revision, nil); err != nil {
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

// listOne is the list of a single name, as field selectors for metadata.name ask for it.
func (b *Backend) listOne(ctx context.Context, key string, opts storage.ListOptions, each func(runtime.Object)) (objects.Page, error) {
	// The revision first: a watch from it may see the object once more, and never once too few.
	rev, err := b.store.Revision(ctx)
	if err != nil {
		return objects.Page{}, b.explain(key, err)
	}
	page := objects.Page{Revision: rev}
	if err := errors.Join(exactly(opts, rev), b.notOlder(opts.ResourceVersion, rev, nil)); err != nil {
		return page, err
	}
	o, err := b.store.Get(ctx, key)
	if errors.Is(err, objects.ErrNotFound) {
		return page, nil
	} else if err != nil {
		return page, b.explain(key, err)
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

// exactly refuses a list that must be of a state that is gone.
func exactly(opts storage.ListOptions, rev uint64) error {
	if opts.ResourceVersionMatch == metav1.ResourceVersionMatchExact && opts.Predicate.Continue == "" && opts.ResourceVersion != fmt.Sprint(rev) {
		return apierrors.NewResourceExpired("the gateway keeps no older states; list without resourceVersionMatch=Exact")
	}
	return nil
}

// notOlder refuses an answer older than the client has seen: one from another store, or from a future. latest is asked where rev is not
// the store's own.
func (b *Backend) notOlder(asked string, rev uint64, latest func() (uint64, error)) error {
	want, err := b.versioner.ParseResourceVersion(asked)
	if err != nil {
		return apierrors.NewBadRequest(err.Error())
	}
	if want > rev && latest != nil {
		if rev, err = latest(); err != nil {
			return b.explain("", err)
		}
	}
	if want > rev {
		return storage.NewTooLargeResourceVersionError(want, rev, 1)
	}
	return nil
}

// Stats implements storage.Interface.
func (b *Backend) Stats(context.Context) (storage.Stats, error) {
	return storage.Stats{}, errors.New("objects are not counted")
}

// ReadinessCheck implements storage.Interface: the store is asked by each call.
func (b *Backend) ReadinessCheck() error { return nil }

// RequestWatchProgress implements storage.Interface: watches report progress by themselves.
func (b *Backend) RequestWatchProgress(context.Context) error { return nil }

// GetCurrentResourceVersion implements storage.Interface.
func (b *Backend) GetCurrentResourceVersion(ctx context.Context) (uint64, error) {
	rev, err := b.store.Revision(ctx)
	return rev, b.explain("", err)
}

// EnableResourceSizeEstimation implements storage.Interface.
func (b *Backend) EnableResourceSizeEstimation(storage.KeysFunc) error { return nil }

// CompactRevision implements storage.Interface.
func (b *Backend) CompactRevision() int64 { return 0 }

// encode gives what is stored of obj: without its version, which is the store's to say.
func (b *Backend) encode(obj runtime.Object) ([]byte, error) {
	obj = obj.DeepCopyObject()
	if err := b.versioner.PrepareObjectForStorage(obj); err != nil {
		return nil, err
	}
	value, err := runtime.Encode(b.codec, obj)
	if err != nil {
		return nil, err
	}
	// Without the line's end the bytes are those that json.Marshal gives to others who write such objects.
	value = bytes.TrimSuffix(value, []byte("\n"))
	if len(value) > objects.MaxValue {
		return nil, apierrors.NewRequestEntityTooLargeError(fmt.Sprintf("the object has %d bytes; the gateway keeps at most %d", len(value), objects.MaxValue))
	}
	return value, nil
}

// decode reads a stored object into out. Its name is that of its key, whatever it says itself.
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

// explain turns a store's error into one that the API server knows.
func (b *Backend) explain(key string, err error) error {
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
		return apierrors.NewResourceExpired("the gateway keeps no history back to this resourceVersion; list anew")
	case errors.Is(err, objects.ErrInvalid):
		return apierrors.NewBadRequest(err.Error())
	case errors.Is(err, context.DeadlineExceeded), errors.Is(err, context.Canceled):
		return apierrors.NewTimeoutError("the object store did not answer in time; try again", 1)
	case errors.Is(err, objects.ErrUnavailable), errors.Is(err, objects.ErrForbidden):
		return unavailable(err)
	}
	return apierrors.NewInternalError(err)
}

// unavailable hides what a store says of itself.
func unavailable(err error) error {
	after := int32(max(2*time.Second, objects.RetryAfter(err)) / time.Second)
	return &apierrors.StatusError{ErrStatus: metav1.Status{
		Status: metav1.StatusFailure, Code: http.StatusServiceUnavailable, Reason: metav1.StatusReasonServiceUnavailable,
		Message: "the gateway cannot read its objects now; try again", Details: &metav1.StatusDetails{RetryAfterSeconds: after},
	}}
}

// explainList is explain for lists, where what is invalid can only be the continue token.
func (b *Backend) explainList(err error, cont string) error {
	if errors.Is(err, objects.ErrInvalid) && cont != "" {
		return apierrors.NewBadRequest("the continue token belongs to another list; list from the start")
	}
	return b.explain("", err)
}
