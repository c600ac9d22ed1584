package v1alpha1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// Names of the API group.
const (
	Group      = "clusterpass.io"
	Version    = "v1alpha1"
	APIVersion = Group + "/" + Version
	PassKind   = "Pass"
	// PassPrefix begins the key of every Pass in the object store; the pass's name follows.
	PassPrefix = "passes/"
	// RevocationPrefix begins the key of every Revocation; the certificate's serial number follows, in lower case
	// hexadecimal digits without leading zeros.
	RevocationPrefix = "revocations/"
	// AgentPrefix begins the key of what says that the agents of a private cluster may connect; the cluster's name follows.
	AgentPrefix = "agents/"
)

// Any in a pass's clusters or verbs stands for all that its user may have.
const Any = "*"

// Form is what a pass is.
type Form string

// The forms.
const (
	Token       Form = "token"       // a JWT, signed by the gateway
	Certificate Form = "certificate" // a client certificate of the gateway's CA
)

// Pass is a credential that the gateway made: short-lived, and good for only as long as this object is there. The object holds no
// secret: only the answer to its creation has the credential.
//
// +k8s:deepcopy-gen:interfaces=k8s.io/apimachinery/pkg/runtime.Object
type Pass struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	Spec   PassSpec   `json:"spec,omitempty"`
	Status PassStatus `json:"status,omitempty"`
}

// PassList is a list of Passes.
//
// +k8s:deepcopy-gen:interfaces=k8s.io/apimachinery/pkg/runtime.Object
type PassList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`

	Items []Pass `json:"items"`
}

// PassSpec says who holds a pass and what it is good for, which is never more than what RBAC grants its user and groups. It does not
// change: a pass that was changed is refused.
type PassSpec struct {
	// User is whom the pass identifies; by default who creates it, with their groups. For somebody else, the creator needs the verb
	// impersonate.
	User string `json:"user,omitempty"`
	// Groups are the user's. For those that the creator is not in, they need the verb impersonate.
	//
	// +listType=set
	Groups []string `json:"groups,omitempty"`
	// Clusters are those that the pass reaches; * for all that the user may reach. At least one.
	//
	// +listType=set
	Clusters []string `json:"clusters"`
	// Verbs are get, create, update, patch and delete, as the HTTP method's; upgrades such as exec need create. * for all. At least
	// one.
	//
	// +listType=set
	Verbs []string `json:"verbs"`
	// TTL is how long the pass is good for: a minute to a week, a certificate to a day, or less where the gateway is configured so; by
	// default 8 hours, or what is allowed.
	TTL metav1.Duration `json:"ttl,omitempty"`
	// Form is token, the default, or certificate.
	Form Form `json:"form,omitempty"`
}

// PassStatus is what the gateway says of a pass.
type PassStatus struct {
	// ExpirationTimestamp is when the pass ends.
	ExpirationTimestamp metav1.Time `json:"expirationTimestamp,omitempty"`
	// CreatedBy is who created the pass, as the gateway saw them then. A pass that was made in the stores, past the gateway, has none.
	CreatedBy *PassCreator `json:"createdBy,omitempty"`
	// Kubeconfig is the credential, with a context for each cluster and one for the fleet. It is in the answer to the creation of the pass,
	// and nowhere else.
	Kubeconfig string `json:"kubeconfig,omitempty"`
}

// PassCreator is who created a pass.
type PassCreator struct {
	// User is as whom they did.
	User string `json:"user"`
	// Impersonator is who acted as User; empty if they were User.
	Impersonator string `json:"impersonator,omitempty"`
}

// Revocation says that a client certificate of the gateway's CA is not good any more. (Certificates that are passes end with their
// Pass, too.)
//
// +k8s:deepcopy-gen:interfaces=k8s.io/apimachinery/pkg/runtime.Object
type Revocation struct {
	metav1.TypeMeta `json:",inline"`
	// ObjectMeta.Name is the serial number, as in the key.
	metav1.ObjectMeta `json:"metadata,omitempty"`

	Spec RevocationSpec `json:"spec,omitempty"`
}

// RevocationSpec is for people.
type RevocationSpec struct {
	// User is whose certificate it was.
	User string `json:"user,omitempty"`
	// Reason says why it was revoked.
	Reason string `json:"reason,omitempty"`
}
