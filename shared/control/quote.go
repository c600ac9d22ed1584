package control

import (
	"context"
	"encoding/json"
	"errors"
	"strconv"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apiserver/pkg/registry/rest"
)

// unquoted is an update whose errors quote nothing of what was sent. The API server's own say what is wrong with a patch together with the
// whole document, into the answer and, where they are unexpected, into the log; and a document may hold a credential.
type unquoted struct{ rest.UpdatedObjectInfo }

// UpdatedObject implements rest.UpdatedObjectInfo.
func (u unquoted) UpdatedObject(ctx context.Context, old runtime.Object) (runtime.Object, error) {
	obj, err := u.UpdatedObjectInfo.UpdatedObject(ctx, old)
	return obj, unquote(err)
}

func unquote(err error) error {
	if err == nil {
		return nil
	}
	var known *apierrors.StatusError
	if !errors.As(err, &known) {
		if text, _, _ := strings.Cut(err.Error(), ", got "); strings.HasPrefix(text, "failed to create typed patch object") {
			return apierrors.NewBadRequest(text) // and not the server's failure
		}
		return err
	}
	if known.ErrStatus.Details == nil {
		return err
	}
	out := &apierrors.StatusError{ErrStatus: *known.ErrStatus.DeepCopy()}
	for i := range out.ErrStatus.Details.Causes {
		cause := &out.ErrStatus.Details.Causes[i]
		kind, rest, found := strings.Cut(cause.Message, ": ")
		document, err := strconv.QuotedPrefix(rest)
		if cause.Field != "patch" || !found || err != nil {
			continue
		}
		short := kind + strings.TrimPrefix(rest, document)
		out.ErrStatus.Message = strings.ReplaceAll(out.ErrStatus.Message, cause.Message, short)
		cause.Message = short
	}
	return out
}

// lastApplied is the annotation in which kubectl apply remembers its input.
const lastApplied = "kubectl.kubernetes.io/last-applied-configuration"

// forget takes credentials, which are named kubeconfig wherever they stand, out of what kubectl apply remembers of its input.
func forget(obj metav1.Object) {
	annotations := obj.GetAnnotations()
	last, ok := annotations[lastApplied]
	if !ok {
		return
	}
	var doc any
	if err := json.Unmarshal([]byte(last), &doc); err != nil {
		delete(annotations, lastApplied)
	} else if forgetIn(doc) {
		value, _ := json.Marshal(doc) // it was JSON before
		annotations[lastApplied] = string(value) + "\n"
	}
}

// forgetIn reports whether there was something to forget. Names count in any case: what nobody would read is remembered all the same.
func forgetIn(doc any) (found bool) {
	switch doc := doc.(type) {
	case map[string]any:
		for key, value := range doc {
			if strings.EqualFold(key, "kubeconfig") {
				delete(doc, key)
				found = true
			} else if forgetIn(value) {
				found = true
			}
		}
	case []any:
		for _, value := range doc {
			found = forgetIn(value) || found
		}
	}
	return found
}
