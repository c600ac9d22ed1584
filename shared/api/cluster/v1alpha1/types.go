package v1alpha1

import (
	"slices"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// Names of the API group.
const (
	Group      = "cluster.karmada.io"
	Version    = "v1alpha1"
	APIVersion = Group + "/" + Version
	Kind       = "Cluster"
	// Prefix begins the key of every Cluster in the object store; the cluster's name follows.
	Prefix = "clusters/"
)

// SyncMode says how the gateway reaches a member.
type SyncMode string

// The modes.
const (
	Push SyncMode = "Push" // the gateway dials the member's API server
	Pull SyncMode = "Pull" // an agent in the member dials the bridge
)

// Identity says as whom a call reaches the member.
type Identity string

// The identities.
const (
	// Impersonate sends the stored credential and the caller as Impersonate-* headers. The default.
	Impersonate Identity = "impersonate"
	// Direct sends the stored credential alone: every caller has its power. Only for spec.directUsers.
	Direct Identity = "direct"
	// Passthrough sends the caller's own bearer token and nothing of the gateway's.
	Passthrough Identity = "passthrough"
)

// AnyUser in spec.directUsers stands for every caller with a grant.
const AnyUser = "*"

// Cluster is a member cluster. Its credential is not part of it: spec.secretRef names the secret, which holds a
// kubeconfig.
//
// +k8s:deepcopy-gen:interfaces=k8s.io/apimachinery/pkg/runtime.Object
type Cluster struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	Spec   ClusterSpec   `json:"spec,omitempty"`
	Status ClusterStatus `json:"status,omitempty"`
}

// ClusterList is a list of Clusters.
//
// +k8s:deepcopy-gen:interfaces=k8s.io/apimachinery/pkg/runtime.Object
type ClusterList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`

	Items []Cluster `json:"items"`
}

// ClusterSpec is what an administrator says of a member.
type ClusterSpec struct {
	// SyncMode says how the gateway reaches the member: Push, the default, or Pull.
	SyncMode SyncMode `json:"syncMode,omitempty"`
	// APIEndpoint is the URL of the member's API server, for people; calls go to the kubeconfig's.
	APIEndpoint string `json:"apiEndpoint,omitempty"`
	// SecretRef names the secret with the kubeconfig, clusters/NAME.SUFFIX; by default clusters/NAME.
	SecretRef *LocalSecretReference `json:"secretRef,omitempty"`
	// ImpersonatorSecretRef names the secret with the kubeconfig that is used instead where the identity is impersonate. Its
	// credential need not be able to do anything but impersonate.
	ImpersonatorSecretRef *LocalSecretReference `json:"impersonatorSecretRef,omitempty"`
	// InsecureSkipTLSVerification allows the kubeconfig to say insecure-skip-tls-verify, which it may not otherwise.
	InsecureSkipTLSVerification bool `json:"insecureSkipTLSVerification,omitempty"`
	// ProxyURL (http, https or socks5) is dialled instead of the API server; it wins over the kubeconfig's proxy-url. In mode Pull it is
	// the bridge's tunnel port; a path names the cluster whose agents lead to this one, if it has none of its own.
	ProxyURL string `json:"proxyURL,omitempty"`
	// Provider names the cloud or vendor of the member.
	Provider string `json:"provider,omitempty"`
	// Region of the member.
	Region string `json:"region,omitempty"`
	// Zones of the member.
	//
	// +listType=set
	Zones []string `json:"zones,omitempty"`
	// Taints of the member, as a node has them. The gateway keeps them for others to read.
	//
	// +listType=atomic
	Taints []Taint `json:"taints,omitempty"`

	// Identity is ours; empty means Impersonate.
	Identity Identity `json:"identity,omitempty"`
	// DirectUsers is ours: the users who may call a cluster whose identity is Direct; AnyUser for all.
	//
	// +listType=set
	DirectUsers []string `json:"directUsers,omitempty"`
	// ServiceProxy is ours: what may be called through the member's own proxy subresources, by default nothing. An entry is
	// services/NAMESPACE/NAME, pods/NAMESPACE/NAME, either with :PORT behind, or nodes/NAME; "*" stands for any one of the
	// parts.
	//
	// +listType=set
	ServiceProxy []string `json:"serviceProxy,omitempty"`
	// Kubeconfig is ours and can only be written: the member's address and credential, inline data only. It goes into a secret, which
	// secretRef names then, and is neither kept here nor shown to anybody.
	Kubeconfig Kubeconfig `json:"kubeconfig,omitempty"`
}

// Kubeconfig is a credential on its way in. It is read from JSON and never written to it, nor printed.
type Kubeconfig string

// MarshalJSON implements json.Marshaler: it shows nothing.
func (Kubeconfig) MarshalJSON() ([]byte, error) { return []byte(`""`), nil }

// String implements fmt.Stringer.
func (Kubeconfig) String() string { return "[kubeconfig]" }

// GoString implements fmt.GoStringer.
func (Kubeconfig) GoString() string { return "[kubeconfig]" }

// OpenAPISchemaType is for the OpenAPI generator.
func (Kubeconfig) OpenAPISchemaType() []string { return []string{"string"} }

// OpenAPISchemaFormat is for the OpenAPI generator.
func (Kubeconfig) OpenAPISchemaFormat() string { return "" }

// Taint has the form of a node's taint. (k8s.io/api/core/v1 would add a megabyte to every function.)
type Taint struct {
	// Key of the taint.
	Key string `json:"key"`
	// Value of the taint.
	Value string `json:"value,omitempty"`
	// Effect is NoSchedule, PreferNoSchedule or NoExecute.
	Effect string `json:"effect"`
	// TimeAdded is when the taint was added.
	TimeAdded *metav1.Time `json:"timeAdded,omitempty"`
}

// LocalSecretReference names a secret of the gateway's secret store.
type LocalSecretReference struct {
	// Namespace is accepted for Karmada's sake and means nothing here.
	Namespace string `json:"namespace,omitempty"`
	// Name of the secret, clusters/NAME or clusters/NAME.SUFFIX with the cluster's name.
	Name string `json:"name"`
}

// ClusterStatus is what was seen of a member.
type ClusterStatus struct {
	// KubernetesVersion is what the member's API server said of itself.
	KubernetesVersion string `json:"kubernetesVersion,omitempty"`
	// Conditions have Ready: whether the member answers. A private cluster has AgentCredentialReused after a copy of its
	// agents' credential was used.
	//
	// +listType=map
	// +listMapKey=type
	Conditions []metav1.Condition `json:"conditions,omitempty"`
	// Probe is ours: the latest look at the member that was written down.
	Probe *Probe `json:"probe,omitempty"`
}

// Probe is one look at a member.
type Probe struct {
	// Time at which the member was asked.
	Time metav1.Time `json:"time"`
	// Latency of its answer.
	Latency metav1.Duration `json:"latency,omitempty"`
}

// The types of a Cluster's conditions.
const (
	Ready = "Ready" // whether the member answers
	// AgentCredentialReused is True after a copy of the agents' credential was used, until the cluster joins again.
	// It is absent otherwise.
	AgentCredentialReused = "AgentCredentialReused"
)

// NewSecretName is a name for a cluster's secret, one of many: suffix tells them apart.
func NewSecretName(cluster, suffix string) string { return "clusters/" + cluster + "." + suffix }

// OwnsSecret reports whether a secret may be the cluster's: clusters/NAME, or clusters/NAME.SUFFIX (a cluster's name has no dot). No
// cluster may name another's, or what else the store holds.
func (c *Cluster) OwnsSecret(name string) bool {
	return name == "clusters/"+c.Name || strings.HasPrefix(name, NewSecretName(c.Name, ""))
}

// SecretName is the name of the secret with the kubeconfig that calls go by.
func (c *Cluster) SecretName() string {
	if ref := c.Spec.ImpersonatorSecretRef; ref != nil && ref.Name != "" && c.Mode() == Impersonate {
		return ref.Name
	}
	if c.Spec.SecretRef != nil && c.Spec.SecretRef.Name != "" {
		return c.Spec.SecretRef.Name
	}
	return "clusters/" + c.Name
}

// OwnSecrets are the names of all secrets that are the cluster's by its object.
func (c *Cluster) OwnSecrets() []string {
	names := []string{c.SecretName()}
	for _, ref := range []*LocalSecretReference{c.Spec.SecretRef, c.Spec.ImpersonatorSecretRef} {
		if ref != nil && ref.Name != names[0] {
			names = append(names, ref.Name)
		}
	}
	return slices.DeleteFunc(names, func(name string) bool { return !c.OwnsSecret(name) })
}

// MayDirect reports whether a user may call a cluster whose identity is Direct.
func (c *Cluster) MayDirect(user string) bool {
	return slices.Contains(c.Spec.DirectUsers, user) || slices.Contains(c.Spec.DirectUsers, AnyUser)
}

// Mode is spec.identity with its default.
func (c *Cluster) Mode() Identity {
	if c.Spec.Identity == "" {
		return Impersonate
	}
	return c.Spec.Identity
}
