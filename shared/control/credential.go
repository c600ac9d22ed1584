package control

import (
	"context"
	"errors"
	"log/slog"
	"slices"
	"time"

	"github.com/google/uuid"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/apiserver/pkg/registry/rest"
	"k8s.io/apiserver/pkg/util/dryrun"

	"github.com/clusterpass/clusterpass/shared/api/cluster/v1alpha1"
	"github.com/clusterpass/clusterpass/shared/objects"
	"github.com/clusterpass/clusterpass/shared/registration"
	"github.com/clusterpass/clusterpass/shared/secrets"
)

// clusterStore moves the credential of a write from the Cluster into a secret. An object never names a secret that was
// not written for it. The destination of a credential changes only together with the credential.
type clusterStore struct {
	*stored
	secrets secrets.Store
	objects objects.Store
	probes  *probes
	log     *slog.Logger
}

// cleanupTimeout bounds the deletion of secrets after a write, which a cancelled request does not end.
const cleanupTimeout = 15 * time.Second

type credential struct {
	value  secrets.Value
	secret string   // name of the new secret; "" if the write has none, or if it is stored already
	stored []string // names of the secrets that the attempts of the write stored
}

func (c *clusterStore) Create(ctx context.Context, obj runtime.Object, validate rest.ValidateObjectFunc,
	opts *metav1.CreateOptions) (runtime.Object, error) {
	cred, cluster := &credential{}, obj.(*v1alpha1.Cluster)
	if cluster.Name == "" && cluster.GenerateName != "" {
		cluster.Name = c.Strategy.GenerateName(cluster.GenerateName) // the secret's name begins with it
	}
	if err := c.extractCredential(ctx, cred, cluster, nil); err != nil {
		return nil, err
	}
	out, err := c.stored.Create(ctx, obj, c.storeSecretAfter(cred, validate, opts.DryRun), opts)
	return out, c.deleteUnused(ctx, cred, cluster.Name, nil, err)
}

func (c *clusterStore) Update(ctx context.Context, name string, info rest.UpdatedObjectInfo,
	createValidation rest.ValidateObjectFunc,
	updateValidation rest.ValidateObjectUpdateFunc, forceCreate bool, opts *metav1.UpdateOptions) (runtime.Object,
	bool, error) {
	cred := &credential{}
	var before *v1alpha1.Cluster
	info = rest.WrapUpdatedObjectInfo(info, func(ctx context.Context, obj, old runtime.Object) (runtime.Object, error) {
		if before = old.(*v1alpha1.Cluster).DeepCopy(); before.ResourceVersion == "" {
			before = nil
		}
		return obj, c.extractCredential(ctx, cred, obj.(*v1alpha1.Cluster), before)
	})
	storeSecret := c.storeSecretAfter(cred, nil, opts.DryRun)
	validateUpdate := func(ctx context.Context, obj, old runtime.Object) error {
		if updateValidation != nil {
			if err := updateValidation(ctx, obj, old); err != nil {
				return err
			}
		}
		return storeSecret(ctx, obj)
	}
	out, created, err := c.stored.Update(ctx, name, info, c.storeSecretAfter(cred, createValidation, opts.DryRun),
		validateUpdate, forceCreate, opts)
	if dryrun.IsDryRun(opts.DryRun) {
		return out, created, err
	}
	return out, created, c.deleteUnused(ctx, cred, name, before, err)
}

// extractCredential moves the credential out of obj, and rejects changes that need one. before is nil for a new
// cluster.
func (c *clusterStore) extractCredential(ctx context.Context, cred *credential, obj, before *v1alpha1.Cluster) error {
	data := []byte(obj.Spec.Kubeconfig)
	obj.Spec.Kubeconfig = ""
	redactLastApplied(obj)
	var errs field.ErrorList
	if len(data) == 0 {
		cred.secret = "" // an earlier attempt may have set it
		errs = checkWithoutCredential(obj, before)
	} else {
		errs = c.checkWithCredential(ctx, cred, obj, before, data)
	}
	if len(errs) > 0 {
		return apierrors.NewInvalid(schema.GroupKind{Group: v1alpha1.Group, Kind: v1alpha1.Kind}, obj.Name, errs)
	}
	return nil
}

const needsCredential = "needs the credential again: give the cluster's kubeconfig in spec.kubeconfig"

// checkWithoutCredential rejects changes that would send a stored credential elsewhere, or give its power to other
// users. It copies the endpoint and the secret's name of before if obj lacks them.
func checkWithoutCredential(obj, before *v1alpha1.Cluster) field.ErrorList {
	spec := field.NewPath("spec")
	var errs field.ErrorList
	refuse := func(changed bool, name string) {
		if changed {
			errs = append(errs, field.Forbidden(spec.Child(name), needsCredential))
		}
	}
	if before == nil {
		refuse(obj.Spec.ProxyURL != "", "proxyURL")
		refuse(obj.Spec.InsecureSkipTLSVerification, "insecureSkipTLSVerification")
		// A secret of that name may exist, or be created later. The users in this object would have its power.
		refuse(obj.Mode() == v1alpha1.Direct, "identity")
		refuse(len(obj.Spec.DirectUsers) > 0, "directUsers")
		return errs
	}
	if obj.Spec.APIEndpoint == "" {
		obj.Spec.APIEndpoint = before.Spec.APIEndpoint
	}
	if obj.Spec.SecretRef == nil {
		obj.Spec.SecretRef = before.Spec.SecretRef
	}
	refuse(obj.Spec.APIEndpoint != before.Spec.APIEndpoint, "apiEndpoint")
	refuse(obj.Spec.ProxyURL != before.Spec.ProxyURL, "proxyURL")
	refuse(obj.Spec.InsecureSkipTLSVerification != before.Spec.InsecureSkipTLSVerification, "insecureSkipTLSVerification")
	refuse(!sameSecret(obj.Spec.SecretRef, before.Spec.SecretRef), "secretRef")
	refuse(!sameSecret(obj.Spec.ImpersonatorSecretRef, before.Spec.ImpersonatorSecretRef), "impersonatorSecretRef")
	refuse(obj.Mode() != before.Mode(), "identity")
	refuse(slices.ContainsFunc(obj.Spec.DirectUsers,
		func(u string) bool { return !slices.Contains(before.Spec.DirectUsers, u) }), "directUsers")
	return errs
}

func sameSecret(a, b *v1alpha1.LocalSecretReference) bool {
	return a == nil && b == nil || a != nil && b != nil && a.Name == b.Name
}

// checkWithCredential checks that data works for obj, and chooses the name of its secret.
func (c *clusterStore) checkWithCredential(ctx context.Context, cred *credential, obj, before *v1alpha1.Cluster,
	data []byte) field.ErrorList {
	at := field.NewPath("spec", "kubeconfig")
	if obj.Spec.ImpersonatorSecretRef != nil {
		return field.ErrorList{field.Forbidden(field.NewPath("spec", "impersonatorSecretRef"),
			"with a kubeconfig there is one credential: leave this out, or set it to null")}
	}
	value := secrets.NewValue(data)
	if obj.Mode() == v1alpha1.Passthrough {
		var err error
		if value, err = registration.WithoutCredential(value); err != nil {
			return field.ErrorList{field.Invalid(at, obj.Spec.Kubeconfig, err.Error())}
		}
	}
	kc, err := registration.Validate(obj, value)
	if err != nil {
		return field.ErrorList{field.Invalid(at, obj.Spec.Kubeconfig, err.Error())}
	}
	obj.Spec.APIEndpoint = kc.Server.String()
	if before != nil {
		if current, err := c.secrets.Get(ctx, before.SecretName()); err == nil && before.OwnsSecret(before.SecretName()) &&
			current.Value.Equal(value) {
			obj.Spec.SecretRef, cred.secret = &v1alpha1.LocalSecretReference{Name: before.SecretName()}, ""
			return nil
		}
	}
	if cred.secret == "" || !cred.value.Equal(value) { // an earlier attempt may have stored another value under its name
		cred.secret, cred.value = v1alpha1.NewSecretName(obj.Name, uuid.NewString()[:8]), value
	}
	obj.Spec.SecretRef = &v1alpha1.LocalSecretReference{Name: cred.secret}
	return nil
}

func (c *clusterStore) storeSecretAfter(cred *credential, validate rest.ValidateObjectFunc,
	dryRun []string) rest.ValidateObjectFunc {
	return func(ctx context.Context, obj runtime.Object) error {
		if validate != nil {
			if err := validate(ctx, obj); err != nil {
				return err
			}
		}
		if cred.secret == "" || slices.Contains(cred.stored, cred.secret) || dryrun.IsDryRun(dryRun) {
			return nil
		}
		if _, err := c.secrets.Create(ctx, cred.secret, cred.value, nil); err != nil {
			c.log.Warn("the credential of a cluster cannot be stored", "secret", cred.secret, "error", err.Error())
			return apierrors.NewServiceUnavailable("the gateway cannot keep the credential now; try again")
		}
		cred.stored = append(cred.stored, cred.secret)
		return nil
	}
}

// deleteUnused deletes the previous secret and those of failed attempts. It returns err.
func (c *clusterStore) deleteUnused(ctx context.Context, cred *credential, name string, before *v1alpha1.Cluster,
	err error) error {
	if err == nil && before == nil && len(cred.stored) < 2 || err != nil && len(cred.stored) == 0 {
		return err
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), cleanupTimeout)
	defer cancel()
	candidates := cred.stored
	if before != nil {
		candidates = append(candidates, before.OwnSecrets()...)
	}
	// A write may have succeeded although its response was lost. The stored object shows which secrets are used.
	now, getErr := c.objects.Get(ctx, v1alpha1.Prefix+name)
	var named []string
	switch {
	case errors.Is(getErr, objects.ErrNotFound): // it was not created, or is deleted
	case getErr != nil:
		if len(cred.stored) > 0 {
			c.log.Warn("whether a cluster was written is not known; one of its secrets may be left over", "cluster", name,
				"error", getErr.Error())
		}
		return err
	default:
		current, decodeErr := v1alpha1.Decode(now.Key, now.Value)
		if decodeErr != nil {
			return err
		}
		named = current.OwnSecrets()
	}
	c.delete(ctx, slices.DeleteFunc(candidates, func(secret string) bool { return slices.Contains(named, secret) }))
	return err
}

func (c *clusterStore) afterDelete(ctx context.Context, obj runtime.Object) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), cleanupTimeout)
	defer cancel()
	c.delete(ctx, obj.(*v1alpha1.Cluster).OwnSecrets())
}

func (c *clusterStore) delete(ctx context.Context, names []string) {
	for _, name := range names {
		if err := c.secrets.Delete(ctx, name); err != nil && !errors.Is(err, secrets.ErrNotFound) {
			c.log.Warn("a secret that no cluster names cannot be deleted", "secret", name, "error", err.Error())
		}
	}
}
