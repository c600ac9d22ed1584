package control

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/apiserver/pkg/registry/rest"
	"k8s.io/apiserver/pkg/util/dryrun"
	"k8s.io/apiserver/pkg/warning"
	clientcmdv1 "k8s.io/client-go/tools/clientcmd/api/v1"
	"sigs.k8s.io/structured-merge-diff/v6/fieldpath"

	"github.com/clusterpass/clusterpass/shared/access"
	clusterv1alpha1 "github.com/clusterpass/clusterpass/shared/api/cluster/v1alpha1"
	"github.com/clusterpass/clusterpass/shared/api/clusterpass/v1alpha1"
	"github.com/clusterpass/clusterpass/shared/control/registry"
	"github.com/clusterpass/clusterpass/shared/identity"
	"github.com/clusterpass/clusterpass/shared/passes"
	"github.com/clusterpass/clusterpass/shared/passes/kubeconfig"
	"github.com/clusterpass/clusterpass/shared/secrets"
	gatewaystatus "github.com/clusterpass/clusterpass/shared/status"
)

// passStore is the registry of passes. Only the response to the creation of a pass contains its credential.
type passStore struct {
	*stored
	s *Server
}

func (s *Server) passes() *passStore {
	store := s.store(registry.Store{
		Version: passGroup, Plural: "passes", Singular: "pass",
		NewObject:     func() runtime.Object { return &v1alpha1.Pass{} },
		NewListObject: func() runtime.Object { return &v1alpha1.PassList{} },
		Strategy: s.strategy(strategy{
			prepare: func(ctx context.Context, obj, old runtime.Object) {
				p := obj.(*v1alpha1.Pass)
				redactLastApplied(p) // a client that applies the response would store its credential
				if p.Status = (v1alpha1.PassStatus{}); old != nil {
					p.Status = old.(*v1alpha1.Pass).Status
					return
				}
				p.Status.ExpirationTimestamp = metav1.NewTime(p.CreationTimestamp.Add(p.Spec.TTL.Duration)).Rfc3339Copy()
				creator := caller(ctx)
				p.Status.CreatedBy = &v1alpha1.PassCreator{User: creator.Name, Impersonator: creator.Impersonator}
			},
			validate: func(obj, old runtime.Object) field.ErrorList {
				p := obj.(*v1alpha1.Pass)
				if old != nil {
					if !equality.Semantic.DeepEqual(p.Spec, old.(*v1alpha1.Pass).Spec) {
						return field.ErrorList{
							field.Forbidden(field.NewPath("spec"), "a pass does not change: delete it, and create another one")}
					}
					return nil
				}
				return validatePass(p, s.cfg.MaxPassTTL)
			},
			reset: fieldsToReset(passGroup, fieldpath.MakePathOrDie("status")),
		}),
		TableConvertor: table{
			{name: "User", about: "User of the pass.",
				cell: passCell(func(p *v1alpha1.Pass) string { return p.Spec.User })},
			{name: "Groups", about: "The user's groups.",
				cell: passCell(func(p *v1alpha1.Pass) string { return strings.Join(p.Spec.Groups, ",") })},
			{name: "Clusters", about: "Clusters that the pass allows.",
				cell: passCell(func(p *v1alpha1.Pass) string { return strings.Join(p.Spec.Clusters, ",") })},
			{name: "Form", about: "Form of the pass: token or certificate.",
				cell: passCell(func(p *v1alpha1.Pass) string { return string(p.Spec.Form) })},
			{name: "Expires", about: "Time when the pass expires.", cell: passCell(expiry)},
			{name: "Verbs", about: "Verbs that the pass allows.", wide: true,
				cell: passCell(func(p *v1alpha1.Pass) string { return strings.Join(p.Spec.Verbs, ",") })},
			{name: "Created-By", about: "Who created the pass.", wide: true, cell: passCell(createdBy)},
			{name: "Age", about: age.about, wide: true, cell: age.cell},
		},
	})
	return &passStore{store, s}
}

func passCell(cell func(*v1alpha1.Pass) string) func(runtime.Object) any {
	return func(obj runtime.Object) any { return cell(obj.(*v1alpha1.Pass)) }
}

func expiry(p *v1alpha1.Pass) string {
	end := p.Status.ExpirationTimestamp
	if time.Now().After(end.Time) {
		return end.UTC().Format(time.RFC3339) + " (expired)"
	}
	return end.UTC().Format(time.RFC3339)
}

func createdBy(p *v1alpha1.Pass) string {
	switch creator := p.Status.CreatedBy; {
	case creator == nil:
		return "<none>"
	case creator.Impersonator != "":
		return creator.Impersonator + " as " + creator.User
	default:
		return creator.User
	}
}

func validatePass(p *v1alpha1.Pass, maxTTL time.Duration) field.ErrorList {
	var e *passes.FieldError
	if errors.As(passes.Validate(p, maxTTL), &e) {
		if e.Value == "" {
			return field.ErrorList{field.Required(field.NewPath(e.Field), e.Problem)}
		}
		return field.ErrorList{field.Invalid(field.NewPath(e.Field), strings.Trim(e.Value, `"`), e.Problem)}
	}
	return nil
}

func (p *passStore) Create(ctx context.Context, obj runtime.Object, validate rest.ValidateObjectFunc,
	opts *metav1.CreateOptions) (runtime.Object, error) {
	if err := p.grant(ctx, obj.(*v1alpha1.Pass)); err != nil {
		return nil, err
	}
	m := &minting{store: p, dryRun: dryrun.IsDryRun(opts.DryRun)}
	out, err := p.stored.Create(ctx, obj, m.mintAfter(validate), opts)
	return m.addCredential(ctx, out), err
}

// Update also creates passes, by server-side apply.
func (p *passStore) Update(ctx context.Context, name string, info rest.UpdatedObjectInfo,
	createValidation rest.ValidateObjectFunc,
	updateValidation rest.ValidateObjectUpdateFunc, forceCreate bool, opts *metav1.UpdateOptions) (runtime.Object,
	bool, error) {
	info = rest.WrapUpdatedObjectInfo(info, func(ctx context.Context, obj, old runtime.Object) (runtime.Object, error) {
		if old.(*v1alpha1.Pass).ResourceVersion != "" {
			return obj, nil
		}
		return obj, p.grant(ctx, obj.(*v1alpha1.Pass))
	})
	m := &minting{store: p, dryRun: dryrun.IsDryRun(opts.DryRun)}
	out, created, err := p.stored.Update(ctx, name, info, m.mintAfter(createValidation), updateValidation,
		forceCreate, opts)
	return m.addCredential(ctx, out), created, err
}

// grant sets the defaults of a new pass from its creator, and rejects rights that the creator may not grant.
func (p *passStore) grant(ctx context.Context, pass *v1alpha1.Pass) error {
	u := caller(ctx)
	if u.Method == passes.Method {
		// Otherwise a stolen pass could create others, which would outlive its revocation.
		return forbidden("a pass cannot create another pass; use the credential that you created it with")
	}
	own := groupsOf(u)
	if pass.Spec.User == "" {
		if pass.Spec.User = u.Name; len(pass.Spec.Groups) == 0 {
			pass.Spec.Groups = slices.DeleteFunc(slices.Clone(own), func(g string) bool { return g == identity.Authenticated })
		}
	}
	if slices.Contains(pass.Spec.Groups, access.Masters) && !access.IsMaster(u) {
		return forbidden(fmt.Sprintf("only members of %s may create passes with it", access.Masters))
	}
	other := &identity.User{Groups: slices.DeleteFunc(slices.Clone(pass.Spec.Groups),
		func(g string) bool { return slices.Contains(own, g) })}
	if pass.Spec.User != u.Name {
		other.Name = pass.Spec.User
	}
	policy, err := p.s.cfg.Access.Latest(ctx)
	if err != nil {
		return asAPIError(err)
	}
	for _, needed := range access.Impersonation(other) {
		if ok, reason := policy.Allowed(u, needed); !ok {
			return asAPIError(access.Forbidden(u, needed, reason))
		}
	}
	return nil
}

func forbidden(why string) error {
	return asAPIError(gatewaystatus.New(gatewaystatus.Forbidden, "", "%s", "passes.clusterpass.io is forbidden: "+why))
}

// The response of a function may have 1 MB. A larger kubeconfig would be lost, and the credential with it.
const (
	maxContexts = 512 << 10 // bytes of all contexts
	perContext  = 512       // bytes of one context without the CA, which each has
)

type minting struct {
	store      *passStore
	dryRun     bool
	pass       *v1alpha1.Pass // the pass that kubeconfig belongs to
	kubeconfig []byte
}

// mintAfter returns a validation that mints the credential after everything else about a new pass is valid. The
// credential works only after the pass is stored.
func (m *minting) mintAfter(validate rest.ValidateObjectFunc) rest.ValidateObjectFunc {
	return func(ctx context.Context, obj runtime.Object) error {
		if validate != nil {
			if err := validate(ctx, obj); err != nil {
				return err
			}
		}
		p := obj.(*v1alpha1.Pass)
		issuer, err := m.store.issuerOf(ctx, p)
		if err != nil || m.dryRun {
			return err
		}
		contexts, err := m.store.contextsOf(ctx, p)
		if err != nil {
			return err
		}
		cfg := &m.store.s.cfg
		if most := maxContexts / (perContext + 2*len(cfg.ServerCA)); len(contexts) > most {
			contexts = contexts[:most]
			warning.AddWarning(ctx, "",
				fmt.Sprintf("the kubeconfig has contexts for %d of the clusters; the others are at %s/clusters/NAME",
					most, cfg.Issuer.URL))
		}
		minted, err := issuer.Mint(ctx, p)
		if errors.Is(err, passes.ErrNotSigner) {
			cfg.Log.Warn("a pass is not signed here", "error", err.Error())
			return forbidden("this program does not sign passes; create the pass at the URL of the gateway's functions")
		} else if err != nil {
			return m.store.unavailable(err)
		}
		m.pass = p
		m.kubeconfig, err = kubeconfig.Write(kubeconfig.Gateway{URL: cfg.Issuer.URL, CA: cfg.ServerCA}, clientcmdv1.AuthInfo{
			Token: string(minted.Token.Reveal()), ClientCertificateData: minted.Certificate, ClientKeyData: minted.Key.Reveal(),
		}, contexts, "")
		return err
	}
}

// addCredential adds the credential to the response of the write that stored its pass. The warning is for clients that
// do not print the response.
func (m *minting) addCredential(ctx context.Context, out runtime.Object) runtime.Object {
	if p, ok := out.(*v1alpha1.Pass); ok && p != nil && m.pass != nil && p.UID == m.pass.UID {
		p.Status.Kubeconfig = string(m.kubeconfig)
		warning.AddWarning(ctx, "",
			"the credential is shown only in this response: -o 'jsonpath={.status.kubeconfig}' prints it")
	}
	return out
}

// issuerOf returns an error if this gateway issues no passes of that form.
func (p *passStore) issuerOf(ctx context.Context, pass *v1alpha1.Pass) (*passes.Issuer, error) {
	refused := func(detail string) error {
		return apierrors.NewInvalid(schema.GroupKind{Group: v1alpha1.Group, Kind: v1alpha1.PassKind}, pass.Name,
			field.ErrorList{field.Forbidden(field.NewPath("spec", "form"), detail)})
	}
	if p.s.cfg.Issuer.URL == "" {
		return nil, refused(
			"the gateway's own URL is not configured, and passes need it: its administrator sets CLUSTERPASS_URL")
	}
	if pass.Spec.Form != v1alpha1.Certificate {
		return p.s.cfg.Issuer, nil
	}
	ca, err := passes.LoadCA(ctx, p.s.cfg.Secrets)
	switch {
	case errors.Is(err, secrets.ErrNotFound):
		return nil, refused(
			"the gateway does not have the key of its CA of clients: use form token, or have its administrator run " +
				"clusterpass init --client-ca")
	case err != nil:
		return nil, p.unavailable(err)
	}
	return &passes.Issuer{CA: ca}, nil
}

func (p *passStore) unavailable(err error) error {
	p.s.cfg.Log.Warn("the credential of a pass cannot be made", "error", err.Error())
	return apierrors.NewServiceUnavailable("the gateway cannot make the credential now; try again")
}

const clustersPerPage = 500

// contextsOf returns the clusters of a pass. For * it returns those that the user of the pass may read.
func (p *passStore) contextsOf(ctx context.Context, pass *v1alpha1.Pass) ([]kubeconfig.Context, error) {
	var out []kubeconfig.Context
	if !slices.Contains(pass.Spec.Clusters, v1alpha1.Any) {
		for _, name := range pass.Spec.Clusters {
			out = append(out, kubeconfig.Context{Cluster: name})
		}
		return out, nil
	}
	policy, err := p.s.cfg.Access.Policy(ctx)
	if err != nil {
		return nil, asAPIError(err)
	}
	holder := &identity.User{Name: pass.Spec.User, Groups: pass.Spec.Groups}
	for cont := ""; ; {
		page, err := p.s.cfg.Objects.List(ctx, clusterv1alpha1.Prefix, clustersPerPage, cont)
		if err != nil {
			return nil, p.unavailable(err)
		}
		for _, o := range page.Objects {
			name := strings.TrimPrefix(o.Key, clusterv1alpha1.Prefix)
			if ok, _ := policy.Allowed(holder, access.Cluster(name, "GET", nil)); ok {
				out = append(out, kubeconfig.Context{Cluster: name})
			}
		}
		if cont = page.Continue; cont == "" {
			return out, nil
		}
	}
}
