package v1alpha1

import (
	"encoding/json"
	"fmt"
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
	// Prefix starts the key of every Cluster in the object store. The cluster's name follows.
	Prefix = "clusters/"
)

// SyncMode is the gateway's path to a member.
type SyncMode string

// Values of SyncMode.
const (
	Push SyncMode = "Push" // the gateway dials the member's API server
	Pull SyncMode = "Pull" // an agent in the member dials the bridge
)

// Identity is the identity of requests at the member.
type Identity string

// Values of Identity.
const (
	// Impersonate sends the stored credential, and the caller as Impersonate-* headers. It is the default.
	Impersonate Identity = "impersonate"
	// Direct sends only the stored credential, so every caller has its rights. Only users in spec.directUsers may call.
	Direct Identity = "direct"
	// Passthrough sends only the caller's own bearer token.
	Passthrough Identity = "passthrough"
)

// AnyUser in spec.directUsers means every caller with a grant.
const AnyUser = "*"

// Cluster is a member cluster. It does not contain its credential: spec.secretRef is the name of the secret with the
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

// ClusterSpec is the configuration of a member.
type ClusterSpec struct {
	// SyncMode is the gateway's path to the member: Push, the default, or Pull.
	SyncMode SyncMode `json:"syncMode,omitempty"`
	// APIEndpoint is the URL of the member's API server, for information. Requests go to the server in the kubeconfig.
	APIEndpoint string `json:"apiEndpoint,omitempty"`
	// SecretRef is the secret with the kubeconfig: clusters/NAME.SUFFIX. The default is clusters/NAME.
	SecretRef *LocalSecretReference `json:"secretRef,omitempty"`
	// ImpersonatorSecretRef is the secret with the kubeconfig that is used instead if the identity is impersonate. Its
	// credential needs only the right to impersonate.
	ImpersonatorSecretRef *LocalSecretReference `json:"impersonatorSecretRef,omitempty"`
	// InsecureSkipTLSVerification allows insecure-skip-tls-verify in the kubeconfig.
	InsecureSkipTLSVerification bool `json:"insecureSkipTLSVerification,omitempty"`
	// ProxyURL (http, https or socks5) is the proxy to the API server. It overrides the kubeconfig's proxy-url. In mode
	// Pull it is the URL of the bridge's tunnel port. If the cluster has no agents of its own, the path is the name of the
	// cluster whose agents connect to it.
	ProxyURL string `json:"proxyURL,omitempty"`
	// Provider is the cloud or vendor of the member.
	Provider string `json:"provider,omitempty"`
	// Region of the member.
	Region string `json:"region,omitempty"`
	// Zones of the member.
	//
	// +listType=set
	Zones []string `json:"zones,omitempty"`
	// Taints of the member, like those of a node. The gateway only stores them.
	//
	// +listType=atomic
	Taints []Taint `json:"taints,omitempty"`

	// Identity is an extension of Clusterpass. Empty means Impersonate.
	Identity Identity `json:"identity,omitempty"`
	// DirectUsers is an extension of Clusterpass. It lists the users who may call a cluster with the identity Direct.
	// AnyUser means all.
	//
	// +listType=set
	DirectUsers []string `json:"directUsers,omitempty"`
	// ServiceProxy is an extension of Clusterpass. It lists the allowed targets of the member's proxy subresources. The
	// default is none. An entry is services/NAMESPACE/NAME, pods/NAMESPACE/NAME, either with an optional :PORT, or
	// nodes/NAME. Each part may be "*".
	//
	// +listType=set
	ServiceProxy []string `json:"serviceProxy,omitempty"`
	// Kubeconfig is an extension of Clusterpass and write-only. It has the member's address and credential, without
	// references to files. The gateway stores it in a secret and sets secretRef.
	Kubeconfig Kubeconfig `json:"kubeconfig,omitempty"`
}

// Kubeconfig is a credential in a request. It is parsed from JSON, but never marshalled or printed.
type Kubeconfig string

// MarshalJSON implements json.Marshaler. It hides the content.
func (Kubeconfig) MarshalJSON() ([]byte, error) { return []byte(`""`), nil }

// String implements fmt.Stringer.
func (Kubeconfig) String() string { return "[kubeconfig]" }

// GoString implements fmt.GoStringer.
func (Kubeconfig) GoString() string { return "[kubeconfig]" }

// OpenAPISchemaType implements an interface of the OpenAPI generator.
func (Kubeconfig) OpenAPISchemaType() []string { return []string{"string"} }

// OpenAPISchemaFormat implements an interface of the OpenAPI generator.
func (Kubeconfig) OpenAPISchemaFormat() string { return "" }

// Taint has the fields of a node's taint. The package k8s.io/api/core/v1 would add a megabyte to every function.
type Taint struct {
	// Key of the taint.
	Key string `json:"key"`
	// Value of the taint.
	Value string `json:"value,omitempty"`
	// Effect is NoSchedule, PreferNoSchedule or NoExecute.
	Effect string `json:"effect"`
	// TimeAdded is the time at which the taint was added.
	TimeAdded *metav1.Time `json:"timeAdded,omitempty"`
}

// LocalSecretReference is the name of a secret in the gateway's secret store.
type LocalSecretReference struct {
	// Namespace is accepted for compatibility with Karmada and ignored.
	Namespace string `json:"namespace,omitempty"`
	// Name of the secret, clusters/NAME or clusters/NAME.SUFFIX with the cluster's name.
	Name string `json:"name"`
}

// ClusterStatus is the observed state of a member.
type ClusterStatus struct {
	// KubernetesVersion is the version that the member's API server reports.
	KubernetesVersion string `json:"kubernetesVersion,omitempty"`
	// Conditions have Ready: whether the member answers. A private cluster has AgentCredentialReused after a replaced
	// credential of its agents was used.
	//
	// +listType=map
	// +listMapKey=type
	Conditions []metav1.Condition `json:"conditions,omitempty"`
	// Probe is an extension of Clusterpass. It is the latest stored probe of the member.
	Probe *Probe `json:"probe,omitempty"`
}

// Probe is the result of one probe of a member.
type Probe struct {
	// Time of the request.
	Time metav1.Time `json:"time"`
	// Latency of the response.
	Latency metav1.Duration `json:"latency,omitempty"`
}

// Condition types of a Cluster.
const (
	Ready = "Ready" // whether the member answers
	// AgentCredentialReused is True after a replaced credential of the agents was used, until the cluster joins again.
	// It is absent otherwise.
	AgentCredentialReused = "AgentCredentialReused"
)

// Decode returns the Cluster that the object store has under key, which starts with Prefix. Its name is that of the
// key.
func Decode(key string, value []byte) (*Cluster, error) {
	c := &Cluster{}
	if err := json.Unmarshal(value, c); err != nil {
		return nil, fmt.Errorf("read %s: %w", key, err)
	}
	c.Name = strings.TrimPrefix(key, Prefix)
	return c, nil
}

// NewSecretName returns a name for a new secret of a cluster. suffix makes it unique.
func NewSecretName(cluster, suffix string) string { return "clusters/" + cluster + "." + suffix }

// OwnsSecret reports whether a secret may belong to the cluster. Its name must be clusters/NAME or
// clusters/NAME.SUFFIX. A cluster's name has no dot, so a cluster cannot refer to another one's secret, or to anything
// else in the store.
func (c *Cluster) OwnsSecret(name string) bool {
	return name == "clusters/"+c.Name || strings.HasPrefix(name, NewSecretName(c.Name, ""))
}

// SecretName returns the name of the secret with the kubeconfig for requests.
func (c *Cluster) SecretName() string {
	if ref := c.Spec.ImpersonatorSecretRef; ref != nil && ref.Name != "" && c.Mode() == Impersonate {
		return ref.Name
	}
	if c.Spec.SecretRef != nil && c.Spec.SecretRef.Name != "" {
		return c.Spec.SecretRef.Name
	}
	return "clusters/" + c.Name
}

// OwnSecrets returns the names of all secrets that belong to the cluster according to its object.
func (c *Cluster) OwnSecrets() []string {
	names := []string{c.SecretName()}
	for _, ref := range []*LocalSecretReference{c.Spec.SecretRef, c.Spec.ImpersonatorSecretRef} {
		if ref != nil && ref.Name != names[0] {
			names = append(names, ref.Name)
		}
	}
	return slices.DeleteFunc(names, func(name string) bool { return !c.OwnsSecret(name) })
}

// MayDirect reports whether a user may call a cluster with the identity Direct.
func (c *Cluster) MayDirect(user string) bool {
	return slices.Contains(c.Spec.DirectUsers, user) || slices.Contains(c.Spec.DirectUsers, AnyUser)
}

// Mode returns spec.identity, or its default.
func (c *Cluster) Mode() Identity {
	if c.Spec.Identity == "" {
		return Impersonate
	}
	return c.Spec.Identity
}
