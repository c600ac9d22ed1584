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

// unquoted is an update whose errors do not quote the request. The library's own errors about a patch quote the
// whole document, whose credential would appear in the response and in the log.
type unquoted struct{ rest.UpdatedObjectInfo }

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
			return apierrors.NewBadRequest(text) // and not an error of the server
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

const lastApplied = "kubectl.kubernetes.io/last-applied-configuration"

// redactLastApplied removes credentials, which are always in fields named kubeconfig, from the annotation of kubectl.
func redactLastApplied(obj metav1.Object) {
	annotations := obj.GetAnnotations()
	last, ok := annotations[lastApplied]
	if !ok {
		return
	}
	var doc any
	if err := json.Unmarshal([]byte(last), &doc); err != nil {
		delete(annotations, lastApplied)
	} else if redactKubeconfigs(doc) {
		value, _ := json.Marshal(doc) // it was JSON before
		annotations[lastApplied] = string(value) + "\n"
	}
}

// redactKubeconfigs ignores case, because kubectl also stores fields that no API server reads.
func redactKubeconfigs(doc any) (found bool) {
	switch doc := doc.(type) {
	case map[string]any:
		for key, value := range doc {
			if strings.EqualFold(key, "kubeconfig") {
				delete(doc, key)
				found = true
			} else if redactKubeconfigs(value) {
				found = true
			}
		}
	case []any:
		for _, value := range doc {
			found = redactKubeconfigs(value) || found
		}
	}
	return found
}
