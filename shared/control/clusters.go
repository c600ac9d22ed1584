package control

import (
	"context"
	"fmt"
	"net/url"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	metav1validation "k8s.io/apimachinery/pkg/apis/meta/v1/validation"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"sigs.k8s.io/structured-merge-diff/v6/fieldpath"

	"github.com/clusterpass/clusterpass/shared/api/cluster/v1alpha1"
	"github.com/clusterpass/clusterpass/shared/cluster/kubeconfig"
	"github.com/clusterpass/clusterpass/shared/control/registry"
	"github.com/clusterpass/clusterpass/shared/route"
)

func (s *Server) clusters() (*clusterStore, *status) {
	store := s.store(registry.Store{
		Version: clusterGroup, Plural: "clusters", Singular: "cluster",
		NewObject:     func() runtime.Object { return &v1alpha1.Cluster{} },
		NewListObject: func() runtime.Object { return &v1alpha1.ClusterList{} },
		Strategy: s.strategy(strategy{
			prepare: func(_ context.Context, obj, old runtime.Object) {
				c := obj.(*v1alpha1.Cluster)
				c.Spec.Kubeconfig = "" // clusterStore stores it as a secret
				c.Status = v1alpha1.ClusterStatus{}
				if old == nil {
					c.Generation = 1
					return
				}
				before := old.(*v1alpha1.Cluster)
				c.Status = before.Status
				if !equality.Semantic.DeepEqual(before.Spec, c.Spec) {
					c.Generation = before.Generation + 1
				}
			},
			validate: func(obj, _ runtime.Object) field.ErrorList { return validateCluster(obj.(*v1alpha1.Cluster)) },
			reset: fieldsToReset(clusterGroup, fieldpath.MakePathOrDie("status"),
				fieldpath.MakePathOrDie("spec", "kubeconfig")),
		}),
		TableConvertor: clusterColumns,
	})
	clusters := &clusterStore{stored: store, secrets: s.cfg.Secrets, objects: s.cfg.Objects,
		probes: newProbes(s.cfg.Probe), log: s.cfg.Log}
	store.AfterDelete = clusters.afterDelete
	return clusters, statusOf(store, s.strategy(strategy{
		prepare: func(_ context.Context, obj, old runtime.Object) {
			c, before := obj.(*v1alpha1.Cluster), old.(*v1alpha1.Cluster)
			c.Spec, c.Labels, c.Annotations, c.Finalizers = before.Spec, before.Labels, before.Annotations, before.Finalizers
		},
		validate: func(obj, _ runtime.Object) field.ErrorList {
			return metav1validation.ValidateConditions(obj.(*v1alpha1.Cluster).Status.Conditions,
				field.NewPath("status", "conditions"))
		},
		reset: fieldsToReset(clusterGroup, fieldpath.MakePathOrDie("spec")),
	}))
}

var clusterColumns = table{
	{name: "Version", about: "Version of the member's Kubernetes.",
		cell: clusterCell(func(c *v1alpha1.Cluster) string { return c.Status.KubernetesVersion })},
	{name: "Mode", about: "How the gateway reaches the member.",
		cell: clusterCell(func(c *v1alpha1.Cluster) string { return string(c.Spec.SyncMode) })},
	{name: "Ready", about: "Whether the member answers.", cell: clusterCell(func(c *v1alpha1.Cluster) string {
		if ready := meta.FindStatusCondition(c.Status.Conditions, v1alpha1.Ready); ready != nil {
			return string(ready.Status)
		}
		return string(metav1.ConditionUnknown)
	})},
	age,
	{name: "Identity", about: "Identity mode: the user as whom requests reach the member.", wide: true,
		cell: clusterCell(func(c *v1alpha1.Cluster) string { return string(c.Mode()) })},
	{name: "Region", about: "Region of the member.", wide: true,
		cell: clusterCell(func(c *v1alpha1.Cluster) string { return c.Spec.Region })},
	{name: "Zones", about: "Zones of the member.", wide: true,
		cell: clusterCell(func(c *v1alpha1.Cluster) string { return strings.Join(c.Spec.Zones, ",") })},
	{name: "API-Endpoint", about: "Address of the member's API server.", wide: true,
		cell: clusterCell(func(c *v1alpha1.Cluster) string { return c.Spec.APIEndpoint })},
	{name: "Proxy-URL", about: "Proxy through which the member is dialled.", wide: true,
		cell: clusterCell(func(c *v1alpha1.Cluster) string { return redactURL(c.Spec.ProxyURL) })},
	{name: "Reason", about: "Why the member is not ready.", wide: true,
		cell: clusterCell(func(c *v1alpha1.Cluster) string {
			if ready := meta.FindStatusCondition(c.Status.Conditions, v1alpha1.Ready); ready != nil &&
				ready.Status != metav1.ConditionTrue {
				return ready.Reason
			}
			return ""
		})},
	{
		name: "Agent-Credential", about: "Reused after a replaced credential of the agents was used.", wide: true,
		cell: clusterCell(agentCredential),
	},
}

func agentCredential(c *v1alpha1.Cluster) string {
	if meta.IsStatusConditionTrue(c.Status.Conditions, v1alpha1.AgentCredentialReused) {
		return "Reused"
	}
	return ""
}

func clusterCell(cell func(*v1alpha1.Cluster) string) func(runtime.Object) any {
	return func(obj runtime.Object) any { return cell(obj.(*v1alpha1.Cluster)) }
}

func redactURL(s string) string {
	u, err := url.Parse(s)
	if err != nil {
		return ""
	}
	return u.Redacted()
}

var (
	syncModes  = []v1alpha1.SyncMode{v1alpha1.Push, v1alpha1.Pull}
	identities = []v1alpha1.Identity{"", v1alpha1.Impersonate, v1alpha1.Direct, v1alpha1.Passthrough}
	effects    = []string{"NoSchedule", "PreferNoSchedule", "NoExecute"}
)

// validateCluster leaves spec.kubeconfig to clusterStore.
func validateCluster(c *v1alpha1.Cluster) field.ErrorList {
	spec := field.NewPath("spec")
	var errs field.ErrorList
	if err := route.ValidClusterName(c.Name); err != nil {
		errs = append(errs, field.Invalid(field.NewPath("metadata", "name"), c.Name, err.Error()))
	}
	if !slices.Contains(syncModes, c.Spec.SyncMode) {
		errs = append(errs, field.NotSupported(spec.Child("syncMode"), c.Spec.SyncMode, syncModes))
	}
	if !slices.Contains(identities, c.Spec.Identity) {
		errs = append(errs, field.NotSupported(spec.Child("identity"), c.Spec.Identity, identities[1:]))
	}
	errs = append(errs, validateURLs(c, spec)...)
	for name, ref := range map[string]*v1alpha1.LocalSecretReference{"secretRef": c.Spec.SecretRef,
		"impersonatorSecretRef": c.Spec.ImpersonatorSecretRef} {
		if ref != nil && !c.OwnsSecret(ref.Name) {
			errs = append(errs, field.Invalid(spec.Child(name, "name"), ref.Name,
				fmt.Sprintf("want a secret of this cluster: clusters/%s, or clusters/%s. with a suffix", c.Name, c.Name)))
		}
	}
	if c.Mode() == v1alpha1.Direct && len(c.Spec.DirectUsers) == 0 {
		errs = append(errs, field.Required(spec.Child("directUsers"),
			"identity direct gives callers the rights of the stored credential: name the allowed callers, or * for all"))
	}
	return append(errs, validateEntries(c, spec)...)
}

// validateURLs returns errors without passwords.
func validateURLs(c *v1alpha1.Cluster, spec *field.Path) field.ErrorList {
	var errs field.ErrorList
	if c.Spec.APIEndpoint != "" {
		if u, err := url.Parse(c.Spec.APIEndpoint); err != nil || u.Scheme != "https" || u.Host == "" || u.User != nil {
			errs = append(errs, field.Invalid(spec.Child("apiEndpoint"), redactURL(c.Spec.APIEndpoint),
				"want an https URL without a user"))
		}
	}
	if c.Spec.ProxyURL != "" {
		u, err := kubeconfig.ParseProxyURL(c.Spec.ProxyURL)
		if err != nil {
			errs = append(errs, field.Invalid(spec.Child("proxyURL"), redactURL(c.Spec.ProxyURL), err.Error()))
		} else if u.User != nil {
			errs = append(errs, field.Invalid(spec.Child("proxyURL"), u.Redacted(),
				"a user and password do not belong into an object that others read: put them into the kubeconfig's proxy-url"))
		}
	}
	return errs
}

func validateEntries(c *v1alpha1.Cluster, spec *field.Path) field.ErrorList {
	var errs field.ErrorList
	for i, entry := range c.Spec.ServiceProxy {
		if !validServiceProxy(entry) {
			errs = append(errs, field.Invalid(spec.Child("serviceProxy").Index(i), entry,
				"would match nothing: want services/NAMESPACE/NAME, pods/NAMESPACE/NAME, either with :PORT behind, or "+
					"nodes/NAME; * stands for any one of the parts"))
		}
	}
	for i, t := range c.Spec.Taints {
		if t.Key == "" {
			errs = append(errs, field.Required(spec.Child("taints").Index(i).Child("key"), ""))
		}
		if !slices.Contains(effects, t.Effect) {
			errs = append(errs, field.NotSupported(spec.Child("taints").Index(i).Child("effect"), t.Effect, effects))
		}
	}
	return errs
}

func validServiceProxy(entry string) bool {
	parts := strings.Split(entry, "/")
	last := len(parts) - 1
	switch kind := parts[0]; {
	case last == 1 && (kind == "nodes" || kind == "*"):
	case last == 2 && (kind == "services" || kind == "pods" || kind == "*"):
		if parts[1] != "*" && len(validation.IsDNS1123Label(parts[1])) > 0 {
			return false
		}
	default:
		return false
	}
	name, port, hasPort := strings.Cut(parts[last], ":")
	return (name == "*" || len(validation.IsDNS1123Subdomain(name)) == 0) &&
		(!hasPort || port != "" && !strings.Contains(port, ":"))
}
