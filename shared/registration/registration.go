// Package registration makes a Kubernetes cluster a member: it checks that its kubeconfig can work, asks the cluster what
// the credential may do, and stores the secret and the Cluster object.
package registration

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"time"

	"github.com/google/uuid"
	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/validation"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/clusterpass/clusterpass/shared/api/cluster/v1alpha1"
	"github.com/clusterpass/clusterpass/shared/cluster"
	"github.com/clusterpass/clusterpass/shared/cluster/kubeconfig"
	"github.com/clusterpass/clusterpass/shared/objects"
	"github.com/clusterpass/clusterpass/shared/passes"
	"github.com/clusterpass/clusterpass/shared/route"
	"github.com/clusterpass/clusterpass/shared/secrets"
)

// checkTimeout bounds the calls that try a credential out.
const checkTimeout = 15 * time.Second

// Registrar registers clusters in two stores.
type Registrar struct {
	Secrets secrets.Store
	Objects objects.Store
	Policy  cluster.DialPolicy
	Tokens  cluster.Tokens // for clusters on EKS; nil means an eks.Source of its own
}

// Request describes the cluster to register.
type Request struct {
	Name       string
	Kubeconfig secrets.Value // inline data only; its current context counts
	// Identity is how callers reach the member. Empty asks the cluster: impersonate where the credential may, else
	// direct.
	Identity    v1alpha1.Identity
	DirectUsers []string          // who may call where it is direct; empty keeps those of the cluster that is replaced
	Labels      map[string]string // nil keeps those of the cluster that is replaced
	Insecure    bool              // allow insecure-skip-tls-verify
	Replace     bool              // a cluster of that name
	SameServer  bool              // with Replace: only one with the same server, whose identity and users stay
	// Tunnel, if not empty, makes the cluster a private one: the URL of the bridge's tunnel port, through which the gateway reaches it
	// once its agents are connected. It is checked without.
	Tunnel string
	// SkipCheck stores without calling the member; Identity must not be empty then.
	SkipCheck bool
}

// Result is what was found and stored.
type Result struct {
	Cluster *v1alpha1.Cluster
	// Changed is false where the cluster was registered exactly so before.
	Changed bool
}

// Register checks and stores. Nothing is stored when a check fails. What the request does not say of a cluster that it replaces stays, as
// long as its server does; the way that is checked is the one that is stored, unless that is a tunnel.
func (r *Registrar) Register(ctx context.Context, req Request) (*Result, error) {
	if err := route.ValidClusterName(req.Name); err != nil {
		return nil, err
	}
	before, _, err := r.registered(ctx, req.Name)
	switch {
	case err != nil:
		return nil, err
	case before != nil && !req.Replace:
		return nil, taken(req.Name)
	case before != nil && req.SameServer && before.Spec.SyncMode == v1alpha1.Pull:
		return nil, fmt.Errorf("there is a private cluster %q already", req.Name)
	case before != nil && req.SameServer:
		req.Identity, req.DirectUsers = before.Mode(), before.Spec.DirectUsers // who may call was decided there
	}
	c := &v1alpha1.Cluster{
		TypeMeta:   metav1.TypeMeta{APIVersion: v1alpha1.APIVersion, Kind: v1alpha1.Kind},
		ObjectMeta: metav1.ObjectMeta{Name: req.Name, Labels: req.Labels},
		Spec: v1alpha1.ClusterSpec{
			SyncMode: v1alpha1.Push, InsecureSkipTLSVerification: req.Insecure, Identity: req.Identity,
		},
	}
	if req.Identity == v1alpha1.Passthrough {
		// What is never used is not kept.
		if req.Kubeconfig, err = WithoutCredential(req.Kubeconfig); err != nil {
			return nil, err
		}
	}
	if errs := validation.ValidateLabels(req.Labels, field.NewPath("labels")); len(errs) > 0 {
		return nil, errs.ToAggregate()
	}
	kc, err := Validate(c, req.Kubeconfig)
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
		c.Spec.SyncMode, c.Spec.ProxyURL = v1alpha1.Push, "" // only the gateway may use the tunnel: it is checked without
	}
	if kc, err = Validate(c, req.Kubeconfig); err != nil {
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
		return nil,
			errors.New(
				"identity direct gives every caller the power of the stored credential: name those who may call with " +
					"--direct-user, or * for all")
	}
	c.Spec.SyncMode, c.Spec.ProxyURL = mode, proxy
	if _, err := Validate(c, req.Kubeconfig); err != nil {
		return nil, err
	}
	changed, err := r.store(ctx, c, before, req)
	return &Result{c, changed}, err
}

// registered returns the cluster of that name and its object, nil where there is none.
func (r *Registrar) registered(ctx context.Context, name string) (*v1alpha1.Cluster, objects.Object, error) {
	o, err := r.Objects.Get(ctx, v1alpha1.Prefix+name)
	if errors.Is(err, objects.ErrNotFound) {
		return nil, o, nil
	} else if err != nil {
		return nil, o, err
	}
	c := &v1alpha1.Cluster{}
	if err := json.Unmarshal(o.Value, c); err != nil {
		return nil, o, fmt.Errorf("read the cluster %q that is replaced: %w", name, err)
	}
	c.Name = name
	return c, o, nil
}

// Validate is cluster.Validate for a kubeconfig that is new: its token must not have expired, either. (One that is stored may have
// been replaced since it was read, which the member's refusal brings to light.)
func Validate(c *v1alpha1.Cluster, value secrets.Value) (*kubeconfig.Config, error) {
	now := time.Now()
	kc, err := cluster.Validate(c, value.Reveal(), now)
	if err != nil {
		return nil, err
	}
	if end := kc.Credential.TokenExpires(); !end.IsZero() && now.After(end) {
		return nil, fmt.Errorf("the token of its kubeconfig expired on %s; make another", end.UTC().Format(time.RFC3339))
	}
	return kc, nil
}

// installationKey is the key of the object that Installation keeps.
const installationKey = "installation/id"

// Installation tells this installation of the gateway from others where they meet, in members: 8 lower case letters and
// digits, made when first asked for.
func (r *Registrar) Installation(ctx context.Context) (string, error) {
	o, err := r.Objects.Get(ctx, installationKey)
	if errors.Is(err, objects.ErrNotFound) {
		if o, err = r.Objects.Create(ctx, installationKey, []byte(uuid.NewString()[:8])); errors.Is(err, objects.ErrExists) {
			o, err = r.Objects.Get(ctx, installationKey) // another call was faster
		}
	}
	return string(o.Value), err
}

// Precheck returns the error with which Register would refuse a request before it looks at its credential: a name that cannot be, or one
// that is taken.
func (r *Registrar) Precheck(ctx context.Context, name string, replace bool) error {
	if err := route.ValidClusterName(name); err != nil {
		return err
	}
	_, err := r.Objects.Get(ctx, v1alpha1.Prefix+name)
	switch {
	case errors.Is(err, objects.ErrNotFound) || err == nil && replace:
		return nil
	case err == nil:
		return taken(name)
	}
	return err
}

func taken(name string) error {
	return fmt.Errorf("there is a cluster %q already; --replace registers it anew", name)
}

// check calls the member and fills in what only it can say.
func (r *Registrar) check(ctx context.Context, c *v1alpha1.Cluster, kc *kubeconfig.Config, req Request) (err error) {
	ctx, cancel := context.WithTimeout(ctx, checkTimeout)
	defer cancel()
	m := cluster.NewMember(c, kc, r.Policy, r.Tokens)
	defer m.Close()
	c.Status.KubernetesVersion, err = version(ctx, m)
	var refused *cluster.CallError
	if c.Mode() == v1alpha1.Passthrough && errors.As(err, &refused) && refused.Code == http.StatusUnauthorized {
		return nil // it is there; who calls is for its callers to say
	}
	if err != nil || c.Mode() == v1alpha1.Passthrough {
		return err
	}
	if err := known(ctx, m); err != nil {
		return err
	}
	switch req.Identity {
	case v1alpha1.Impersonate:
		lacking, err := lacks(ctx, m, true)
		if err == nil && len(lacking) > 0 {
			err = &LackingError{lacking}
		}
		return err
	case "":
		lacking, err := lacks(ctx, m, false)
		if c.Spec.Identity = v1alpha1.Impersonate; len(lacking) > 0 {
			c.Spec.Identity, c.Spec.DirectUsers = v1alpha1.Direct, req.DirectUsers
		}
		return err
	}
	return nil
}

// version asks the member for its version. Members may answer that to everybody.
func version(ctx context.Context, m *cluster.Member) (string, error) {
	var v struct{ GitVersion string }
	if err := m.Call(ctx, http.MethodGet, "/version", nil, &v); err != nil {
		return "", err
	}
	return v.GitVersion, nil
}

// store writes the secret under a new name, then the object that names it, then deletes the secret before it: at no moment do an
// object and a secret go together that were not registered together. before is what c replaces, nil for nothing.
func (r *Registrar) store(ctx context.Context, c, before *v1alpha1.Cluster, req Request) (changed bool, err error) {
	key := v1alpha1.Prefix + c.Name
	now, old, err := r.registered(ctx, c.Name)
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
		return false, taken(c.Name)
	case now == nil || before == nil || now.UID != before.UID || !equality.Semantic.DeepEqual(now.Spec, before.Spec):
		return false,
			fmt.Errorf("cluster %q was changed while its registration was checked; try again: %w", c.Name, objects.ErrConflict)
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
		// What was found of the member holds as before. It may be newer than the check.
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

// deleteSecrets deletes the secrets of a cluster whose object is gone or names others.
func (r *Registrar) deleteSecrets(ctx context.Context, c *v1alpha1.Cluster) error {
	var errs []error
	for _, name := range c.OwnSecrets() {
		if err := r.Secrets.Delete(ctx, name); err != nil && !errors.Is(err, secrets.ErrNotFound) {
			errs = append(errs, err)
		}
	}
	return errors.Join(errs...)
}

// write stores a new secret and then, by commit, the object that names it. Without the object the secret goes again.
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
	// The write may have been done although its answer was lost: only what is certainly not named may go.
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
			fmt.Errorf("whether the cluster was stored is not known; if not, its secret %s is left over: %w", name, getErr))
	}
}

// inherit gives c what req does not say anew of the cluster that it replaces: its identity, and for the same server what an
// administrator has set.
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
	c.Spec.ImpersonatorSecretRef = nil // the credential that comes with the registration is the one to use
}

// Remove deletes a cluster, its secret and what lets its agents connect. The object goes first: a cluster without a secret could still be called.
func (r *Registrar) Remove(ctx context.Context, name string) error {
	obj, err := r.Objects.Get(ctx, v1alpha1.Prefix+name)
	if errors.Is(err, objects.ErrNotFound) {
		return fmt.Errorf("there is no cluster %q", name)
	} else if err != nil {
		return err
	}
	var c v1alpha1.Cluster
	if err := json.Unmarshal(obj.Value, &c); err != nil {
		return fmt.Errorf("read cluster %q: %w", name, err)
	}
	if _, err := r.Objects.Delete(ctx, obj.Key, obj.Revision); err != nil {
		return err
	}
	c.Name = name
	err = r.deleteSecrets(ctx, &c)
	agents := &passes.Issuer{Objects: r.Objects, Secrets: r.Secrets}
	if aerr := agents.RevokeAgent(ctx, name); !errors.Is(aerr, objects.ErrNotFound) { // which it is of a cluster that is not private
		err = errors.Join(err, aerr)
	}
	return err
}

// Clusters lists the registered clusters by name.
func (r *Registrar) Clusters(ctx context.Context) ([]v1alpha1.Cluster, error) {
	page, err := r.Objects.List(ctx, v1alpha1.Prefix, 0, "")
	if err != nil {
		return nil, err
	}
	out := make([]v1alpha1.Cluster, len(page.Objects))
	for i, o := range page.Objects {
		if err := json.Unmarshal(o.Value, &out[i]); err != nil {
			return nil, fmt.Errorf("read %s: %w", o.Key, err)
		}
		out[i].Name = strings.TrimPrefix(o.Key, v1alpha1.Prefix)
	}
	return out, nil
}
