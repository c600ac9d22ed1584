// Package registration registers a member cluster. It validates the kubeconfig, checks the rights of its credential in
// the cluster, and stores a secret and a Cluster object.
package registration

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"time"

	"github.com/google/uuid"
	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/validation"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/clusterpass/clusterpass/shared/api/cluster/v1alpha1"
	clusterpassv1alpha1 "github.com/clusterpass/clusterpass/shared/api/clusterpass/v1alpha1"
	"github.com/clusterpass/clusterpass/shared/cluster"
	"github.com/clusterpass/clusterpass/shared/cluster/kubeconfig"
	"github.com/clusterpass/clusterpass/shared/objects"
	"github.com/clusterpass/clusterpass/shared/passes"
	"github.com/clusterpass/clusterpass/shared/route"
	"github.com/clusterpass/clusterpass/shared/secrets"
)

const checkTimeout = 15 * time.Second

// Registrar registers clusters in two stores.
type Registrar struct {
	Secrets secrets.Store
	Objects objects.Store
	Policy  cluster.DialPolicy
	Tokens  cluster.Tokens // for EKS clusters; nil means a new eks.Source
}

// Request describes the cluster to register.
type Request struct {
	Name       string
	Kubeconfig secrets.Value // its current context; without references to files
	// Identity is the identity mode. Empty means impersonate if the credential has the rights, and otherwise direct.
	Identity v1alpha1.Identity
	// Plugin, if not nil, is the credential plugin of a kubeconfig without a credential. It needs identity direct. It is
	// never stored. The caller runs it first: the registration uses its latest credential.
	Plugin      kubeconfig.Plugin
	DirectUsers []string          // users that may call if the mode is direct; empty keeps those of the replaced cluster
	Labels      map[string]string // nil keeps those of the replaced cluster
	Insecure    bool              // allow insecure-skip-tls-verify
	Replace     bool              // replace a cluster of that name
	SameServer  bool              // with Replace: only a cluster with the same server; its identity mode and users stay
	// Tunnel, the URL of the bridge's tunnel port, makes the cluster a private one. The check bypasses it.
	Tunnel string
	// SkipCheck skips all calls to the member. Identity must then be set.
	SkipCheck bool
}

// Result is the outcome of Register.
type Result struct {
	Cluster *v1alpha1.Cluster
	// Changed is false if the cluster was already registered in exactly this form.
	Changed bool
}

// Register checks and stores a cluster, or stores nothing. A replaced cluster keeps its metadata, and its labels unless
// the request has some. With the same server it keeps all settings that the request omits.
func (r *Registrar) Register(ctx context.Context, req Request) (*Result, error) {
	if err := route.ValidClusterName(req.Name); err != nil {
		return nil, err
	}
	before, err := r.clusterToReplace(ctx, &req)
	if err != nil {
		return nil, err
	}
	c := &v1alpha1.Cluster{
		TypeMeta:   metav1.TypeMeta{APIVersion: v1alpha1.APIVersion, Kind: v1alpha1.Kind},
		ObjectMeta: metav1.ObjectMeta{Name: req.Name, Labels: req.Labels},
		Spec: v1alpha1.ClusterSpec{
			SyncMode: v1alpha1.Push, InsecureSkipTLSVerification: req.Insecure, Identity: req.Identity,
		},
	}
	if req.Identity == v1alpha1.Passthrough {
		// Do not store a credential that is never used.
		if req.Kubeconfig, err = WithoutCredential(req.Kubeconfig); err != nil {
			return nil, err
		}
	}
	if errs := validation.ValidateLabels(req.Labels, field.NewPath("labels")); len(errs) > 0 {
		return nil, errs.ToAggregate()
	}
	kc, err := req.validate(c)
	if err != nil {
		return nil, err
	}
	c.Spec.APIEndpoint = kc.Server.String()
	if before != nil {
		if req.SameServer && before.Spec.APIEndpoint != c.Spec.APIEndpoint {
			return nil, fmt.Errorf("there is a cluster %q already, with another server, %s", c.Name, before.Spec.APIEndpoint)
		}
		inherit(c, before, &req)
	}
	mode, proxy := c.Spec.SyncMode, c.Spec.ProxyURL
	if req.Tunnel != "" {
		mode, proxy = v1alpha1.Pull, req.Tunnel
	}
	if mode == v1alpha1.Pull {
		c.Spec.SyncMode, c.Spec.ProxyURL = v1alpha1.Push, "" // only the gateway may use the tunnel
	}
	if kc, err = req.validate(c); err != nil {
		return nil, err
	}
	if c.Mode() == v1alpha1.Direct {
		c.Spec.DirectUsers = req.DirectUsers
	}
	if !req.SkipCheck {
		if err := r.check(ctx, c, kc, req); err != nil {
			return nil, err
		}
	}
	if c.Mode() == v1alpha1.Direct && len(c.Spec.DirectUsers) == 0 {
		return nil, directUsersError(req.Identity == "")
	}
	c.Spec.SyncMode, c.Spec.ProxyURL = mode, proxy
	if _, err := req.validate(c); err != nil {
		return nil, err
	}
	changed, err := r.store(ctx, c, before, req)
	return &Result{c, changed}, err
}

// directUsersError is the error for identity direct without users. isDetected reports whether the cluster's answers,
// and not the request, led to that identity.
func directUsersError(isDetected bool) error {
	why := "identity direct gives every caller the rights of the stored credential"
	if isDetected {
		why = "the credential may not impersonate, so every caller would have its rights (identity direct)"
	}
	return fmt.Errorf("%s: name the allowed callers with --direct-user, or * for all", why)
}

// clusterToReplace returns the cluster that a request may replace, or nil. With SameServer the request gets its
// identity.
func (r *Registrar) clusterToReplace(ctx context.Context, req *Request) (*v1alpha1.Cluster, error) {
	before, _, err := r.readCluster(ctx, req.Name)
	switch {
	case err != nil || before == nil:
		return nil, err
	case !req.Replace:
		return nil, alreadyRegistered(req.Name)
	case req.SameServer && before.Spec.SyncMode == v1alpha1.Pull:
		return nil, fmt.Errorf("there is a private cluster %q already", req.Name)
	case req.SameServer:
		req.Identity, req.DirectUsers = before.Mode(), before.Spec.DirectUsers // decided at the first registration
	}
	return before, nil
}

func (r *Registrar) readCluster(ctx context.Context, name string) (*v1alpha1.Cluster, objects.Object, error) {
	o, err := r.Objects.Get(ctx, v1alpha1.Prefix+name)
	if errors.Is(err, objects.ErrNotFound) {
		return nil, o, nil
	} else if err != nil {
		return nil, o, err
	}
	c, err := v1alpha1.Decode(o.Key, o.Value)
	return c, o, err
}

// Validate is cluster.Validate for a new kubeconfig: its token must not have expired. A stored token may have.
func Validate(c *v1alpha1.Cluster, value secrets.Value) (*kubeconfig.Config, error) {
	return (&Request{Kubeconfig: value}).validate(c)
}

func (req *Request) validate(c *v1alpha1.Cluster) (*kubeconfig.Config, error) {
	now := time.Now()
	kc, err := cluster.Validate(c, req.Kubeconfig.Reveal(), req.Plugin, now)
	if err != nil {
		return nil, err
	}
	if end := kc.Credential.TokenExpires(); !end.IsZero() && now.After(end) {
		return nil, fmt.Errorf("the token of its kubeconfig expired on %s; make another", end.UTC().Format(time.RFC3339))
	}
	return kc, nil
}

// Installation returns this installation's ID, 8 lower-case letters and digits. The first call creates it. It
// distinguishes the installations that share a member.
func (r *Registrar) Installation(ctx context.Context) (string, error) {
	o, err := r.Objects.Get(ctx, clusterpassv1alpha1.InstallationKey)
	if errors.Is(err, objects.ErrNotFound) {
		o, err = r.Objects.Create(ctx, clusterpassv1alpha1.InstallationKey, []byte(uuid.NewString()[:8]))
		if errors.Is(err, objects.ErrExists) {
			o, err = r.Objects.Get(ctx, clusterpassv1alpha1.InstallationKey) // a concurrent call created it
		}
	}
	return string(o.Value), err
}

// Precheck returns the error of Register for an invalid name or one in use. It needs no credential.
func (r *Registrar) Precheck(ctx context.Context, name string, replace bool) error {
	if err := route.ValidClusterName(name); err != nil {
		return err
	}
	_, err := r.Objects.Get(ctx, v1alpha1.Prefix+name)
	switch {
	case errors.Is(err, objects.ErrNotFound) || err == nil && replace:
		return nil
	case err == nil:
		return alreadyRegistered(name)
	}
	return err
}

func alreadyRegistered(name string) error {
	return fmt.Errorf("there is a cluster %q already; replace it with --replace", name)
}

// check runs no plugin, since checkTimeout is too short for several runs.
func (r *Registrar) check(ctx context.Context, c *v1alpha1.Cluster, kc *kubeconfig.Config, req Request) (err error) {
	ctx, cancel := context.WithTimeout(cluster.AsProbe(ctx), checkTimeout)
	defer cancel()
	m := cluster.NewMember(c, kc, r.Policy, r.Tokens)
	defer m.Close()
	c.Status.KubernetesVersion, err = cluster.ServerVersion(func(out any) error {
		return m.Call(ctx, http.MethodGet, "/version", nil, out)
	})
	var refused *cluster.CallError
	if (err == nil || errors.As(err, &refused)) && isGateway(ctx, m) {
		return GatewayError(c.Spec.APIEndpoint)
	}
	if c.Mode() == v1alpha1.Passthrough && errors.As(err, &refused) && refused.Code == http.StatusUnauthorized {
		return nil // reachable; the rest depends on each caller's own token
	}
	if err != nil || c.Mode() == v1alpha1.Passthrough {
		return err
	}
	if err := checkKnown(ctx, m); err != nil {
		return err
	}
	switch req.Identity {
	case v1alpha1.Impersonate:
		lacking, err := missingRights(ctx, m, true)
		if err == nil && len(lacking) > 0 {
			err = &LackingError{lacking}
		}
		return err
	case "":
		lacking, err := missingRights(ctx, m, false)
		if c.Spec.Identity = v1alpha1.Impersonate; len(lacking) > 0 {
			c.Spec.Identity, c.Spec.DirectUsers = v1alpha1.Direct, req.DirectUsers
		}
		return err
	}
	return nil
}

const statusWrites = 5

// store starts again after a write of before's status. A change of before's spec is an error that wraps
// objects.ErrConflict. A nil before means that c is new.
func (r *Registrar) store(ctx context.Context, c, before *v1alpha1.Cluster, req Request) (changed bool, err error) {
	for range statusWrites {
		changed, err = r.storeOnce(ctx, c, before, req)
		if !errors.Is(err, objects.ErrConflict) || errors.Is(err, errSpecChanged) {
			break
		}
	}
	return changed, err
}

// errSpecChanged is the conflict after which store does not start again.
var errSpecChanged = fmt.Errorf("the cluster was changed while its registration was checked; try again: %w",
	objects.ErrConflict)

// storeOnce writes the secret under a new name, then the object that names it, and then deletes the previous secret. No
// reader ever sees an object together with a secret of another registration.
func (r *Registrar) storeOnce(ctx context.Context, c, before *v1alpha1.Cluster, req Request) (changed bool, err error) {
	key := v1alpha1.Prefix + c.Name
	now, old, err := r.readCluster(ctx, c.Name)
	switch {
	case err != nil:
		return false, err
	case now == nil && before == nil:
		c.UID, c.CreationTimestamp = types.UID(uuid.NewString()), metav1.Now().Rfc3339Copy()
		return true, r.write(ctx, c, req.Kubeconfig, func(value []byte) error {
			_, err := r.Objects.Create(ctx, key, value)
			return err
		})
	case before == nil && !req.Replace:
		return false, alreadyRegistered(c.Name)
	case now == nil || before == nil || now.UID != before.UID || !equality.Semantic.DeepEqual(now.Spec, before.Spec):
		return false, fmt.Errorf("store cluster %q: %w", c.Name, errSpecChanged)
	}
	var sec *secrets.Secret
	if now.OwnsSecret(now.SecretName()) {
		sec, err = r.Secrets.Get(ctx, now.SecretName())
		if err != nil && !errors.Is(err, secrets.ErrNotFound) {
			return false, err
		}
	}
	if sec != nil && sec.Value.Equal(req.Kubeconfig) {
		c.Spec.SecretRef, c.Spec.ImpersonatorSecretRef = now.Spec.SecretRef, now.Spec.ImpersonatorSecretRef
		// The observed state stays valid, and may be newer than the check.
		version := c.Status.KubernetesVersion
		c.Status = now.Status
		c.Status.KubernetesVersion = cmp.Or(version, now.Status.KubernetesVersion)
		value, err := json.Marshal(c)
		if err != nil || equality.Semantic.DeepEqual(c, now) {
			return false, err
		}
		_, err = r.Objects.Update(ctx, key, value, old.Revision)
		return true, err
	}
	err = r.write(ctx, c, req.Kubeconfig, func(value []byte) error {
		_, err := r.Objects.Update(ctx, key, value, old.Revision)
		return err
	})
	if err == nil {
		err = r.deleteSecrets(ctx, now)
	}
	return true, err
}

// The stored object must be gone or refer to other secrets.
func (r *Registrar) deleteSecrets(ctx context.Context, c *v1alpha1.Cluster) error {
	var errs []error
	for _, name := range c.OwnSecrets() {
		if err := r.Secrets.Delete(ctx, name); err != nil && !errors.Is(err, secrets.ErrNotFound) {
			errs = append(errs, err)
		}
	}
	return errors.Join(errs...)
}

// write deletes the new secret if commit does not store the object.
func (r *Registrar) write(ctx context.Context, c *v1alpha1.Cluster, kubeconfig secrets.Value,
	commit func(value []byte) error) error {
	name := v1alpha1.NewSecretName(c.Name, uuid.NewString()[:8])
	c.Spec.SecretRef = &v1alpha1.LocalSecretReference{Name: name}
	value, err := json.Marshal(c)
	if err != nil {
		return err
	}
	if _, err := r.Secrets.Create(ctx, name, kubeconfig, nil); err != nil {
		return err
	}
	err = commit(value)
	if err == nil {
		return nil
	}
	// The object may have been stored although the response was lost.
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), checkTimeout)
	defer cancel()
	stored, getErr := r.Objects.Get(ctx, v1alpha1.Prefix+c.Name)
	switch {
	case getErr == nil && bytes.Equal(stored.Value, value):
		return nil
	case getErr == nil || errors.Is(getErr, objects.ErrNotFound):
		return errors.Join(err, r.Secrets.Delete(ctx, name))
	default:
		return errors.Join(err,
			fmt.Errorf("the cluster may or may not be stored; if it is not, delete its secret %s: %w", name, getErr))
	}
}

// inherit copies what req omits to c. With the same server, that includes everything that an administrator set.
func inherit(c, before *v1alpha1.Cluster, req *Request) {
	c.ObjectMeta = *before.ObjectMeta.DeepCopy()
	if req.Labels != nil {
		c.Labels = req.Labels
	}
	if c.Spec.APIEndpoint != before.Spec.APIEndpoint {
		return
	}
	if len(req.DirectUsers) == 0 {
		req.DirectUsers = before.Spec.DirectUsers
	}
	c.Spec = *before.Spec.DeepCopy()
	c.Spec.InsecureSkipTLSVerification = req.Insecure
	c.Spec.Identity, c.Spec.DirectUsers = req.Identity, nil
	c.Spec.ImpersonatorSecretRef = nil // use the credential of this registration
}

// Remove deletes a cluster, its secrets and its agents' credentials. The object is deleted first, so that no request
// reaches a cluster without a secret.
func (r *Registrar) Remove(ctx context.Context, name string) error {
	c, err := r.deleteObject(ctx, name)
	if err != nil {
		return err
	}
	err = r.deleteSecrets(ctx, c)
	agents := &passes.Issuer{Objects: r.Objects, Secrets: r.Secrets}
	// A cluster that is not private has no agents.
	if aerr := agents.RevokeAgent(ctx, name); !errors.Is(aerr, objects.ErrNotFound) {
		err = errors.Join(err, aerr)
	}
	return err
}

// deleteObject starts again after a write of the cluster's status.
func (r *Registrar) deleteObject(ctx context.Context, name string) (*v1alpha1.Cluster, error) {
	var first *v1alpha1.Cluster
	for range statusWrites {
		c, obj, err := r.readCluster(ctx, name)
		switch {
		case err != nil:
			return nil, err
		case c == nil:
			return nil, fmt.Errorf("there is no cluster %q", name)
		case first == nil:
			first = c
		case first.UID != c.UID:
			return nil, fmt.Errorf("delete cluster %q: it was registered again meanwhile; try again: %w", name,
				objects.ErrConflict)
		}
		if _, err = r.Objects.Delete(ctx, obj.Key, obj.Revision); err == nil {
			return c, nil
		} else if !errors.Is(err, objects.ErrConflict) {
			return nil, err
		}
	}
	return nil, fmt.Errorf("delete cluster %q: %w", name, objects.ErrConflict)
}

// Clusters returns the registered clusters, sorted by name.
func (r *Registrar) Clusters(ctx context.Context) ([]v1alpha1.Cluster, error) {
	page, err := r.Objects.List(ctx, v1alpha1.Prefix, 0, "")
	if err != nil {
		return nil, err
	}
	out := make([]v1alpha1.Cluster, len(page.Objects))
	for i, o := range page.Objects {
		c, err := v1alpha1.Decode(o.Key, o.Value)
		if err != nil {
			return nil, err
		}
		out[i] = *c
	}
	return out, nil
}
