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
	// RecordingPolicyKind is the kind of a policy that chooses sessions to record.
	RecordingPolicyKind = "RecordingPolicy"
	// PassPrefix starts the key of every Pass in the object store. The pass's name follows.
	PassPrefix = "passes/"
	// RecordingPolicyPrefix starts the key of every RecordingPolicy. The policy's name follows.
	RecordingPolicyPrefix = "recordingpolicies/"
	// RevocationPrefix starts the key of every Revocation. The certificate's serial number follows, in lower-case
	// hexadecimal digits without leading zeros.
	RevocationPrefix = "revocations/"
	// AgentPrefix starts the key of the object that allows the agents of a private cluster to connect. The cluster's name
	// follows.
	AgentPrefix = "agents/"
	// KeyPrefix starts the key of each published set of keys that verify tokens, which is no object of the API.
	KeyPrefix = "keys/"
	// InstallationKey is the key of the installation's ID, which is no object of the API.
	InstallationKey = "installation/id"
)

// Any in a pass's clusters or verbs means all that its user may use.
const Any = "*"

// Form is the form of a pass.
type Form string

// Values of Form.
const (
	Token       Form = "token"       // a JWT, signed by the gateway
	Certificate Form = "certificate" // a client certificate of the gateway's CA
)

// Pass is a short-lived credential from the gateway. It is valid only while this object exists. The object contains no
// secret. Only the response to its creation contains the credential.
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

// PassSpec is the user and scope of a pass, which never grants more than RBAC grants its user and groups. It is
// immutable: a changed pass is refused.
type PassSpec struct {
	// User is the user of the pass. The default is its creator, with the creator's groups. For another user, the creator
	// needs the verb impersonate.
	User string `json:"user,omitempty"`
	// Groups of the user. For groups that the creator is not in, the creator needs the verb impersonate.
	//
	// +listType=set
	Groups []string `json:"groups,omitempty"`
	// Clusters that the pass may be used for, at least one. * means all that the user may reach.
	//
	// +listType=set
	Clusters []string `json:"clusters"`
	// Verbs are get, create, update, patch and delete, as derived from the HTTP method, at least one. Upgrades such as
	// exec need create. * means all.
	//
	// +listType=set
	Verbs []string `json:"verbs"`
	// TTL is the lifetime of the pass: a minute to a week, and at most a day for a certificate. The gateway's
	// configuration may reduce it. The default is 8 hours, or the maximum if that is less.
	TTL metav1.Duration `json:"ttl,omitempty"`
	// Form is token, the default, or certificate.
	Form Form `json:"form,omitempty"`
}

// PassStatus is the state of a pass.
type PassStatus struct {
	// ExpirationTimestamp is the time at which the pass expires.
	ExpirationTimestamp metav1.Time `json:"expirationTimestamp,omitempty"`
	// CreatedBy is the identity of the creator at that time. A pass that was created directly in the stores has none.
	CreatedBy *PassCreator `json:"createdBy,omitempty"`
	// Kubeconfig is the credential, with a context for each cluster and one for the fleet. Only the response to the
	// creation of the pass contains it.
	Kubeconfig string `json:"kubeconfig,omitempty"`
}

// PassCreator is the creator of a pass.
type PassCreator struct {
	// User is the creator's identity.
	User string `json:"user"`
	// Impersonator is the user who impersonated User, or empty.
	Impersonator string `json:"impersonator,omitempty"`
}

// Revocation revokes a client certificate of the gateway's CA. Certificates that are passes also end with their Pass.
//
// +k8s:deepcopy-gen:interfaces=k8s.io/apimachinery/pkg/runtime.Object
type Revocation struct {
	metav1.TypeMeta `json:",inline"`
	// ObjectMeta.Name is the serial number, as in the key.
	metav1.ObjectMeta `json:"metadata,omitempty"`

	Spec RevocationSpec `json:"spec,omitempty"`
}

// RevocationSpec is information for administrators.
type RevocationSpec struct {
	// User is the user of the certificate.
	User string `json:"user,omitempty"`
	// Reason is the reason for the revocation.
	Reason string `json:"reason,omitempty"`
}

// RecordingLevel is what happens to a session that cannot be recorded.
//
// +enum
type RecordingLevel string

// Values of RecordingLevel.
const (
	// Required refuses a session without a recorder, and ends a session whose recorder fails.
	Required RecordingLevel = "required"
	// BestEffort continues a session whose recorder fails, and marks it in the audit log.
	BestEffort RecordingLevel = "bestEffort"
)

// RecordingPolicy chooses sessions to record: exec, attach, debug containers and port-forward. A session that no policy
// chooses is not recorded. If several policies choose it, the strictest one decides.
//
// +k8s:deepcopy-gen:interfaces=k8s.io/apimachinery/pkg/runtime.Object
type RecordingPolicy struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	Spec RecordingPolicySpec `json:"spec,omitempty"`
}

// RecordingPolicyList is a list of RecordingPolicies.
//
// +k8s:deepcopy-gen:interfaces=k8s.io/apimachinery/pkg/runtime.Object
type RecordingPolicyList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`

	Items []RecordingPolicy `json:"items"`
}

// RecordingPolicySpec selects sessions by cluster, namespace and caller. A session must meet all three. In each list, *
// in a name matches any characters.
type RecordingPolicySpec struct {
	// Clusters of the sessions, such as prod-*. Empty means all.
	//
	// +listType=set
	Clusters []string `json:"clusters,omitempty"`
	// Namespaces of the sessions. Empty means all. A request without a namespace may reach any namespace, so it matches
	// every list.
	//
	// +listType=set
	Namespaces []string `json:"namespaces,omitempty"`
	// Users selects callers, together with Groups: those whom either list names. If both are empty, all callers are
	// selected. Callers whom only the cluster identifies are always selected. A user who impersonates another is selected
	// by both names.
	//
	// +listType=set
	Users []string `json:"users,omitempty"`
	// Groups selects callers, together with Users.
	//
	// +listType=set
	Groups []string `json:"groups,omitempty"`
	// Level is required or bestEffort. With required, a session that cannot be recorded is refused or ended, and other
	// requests that can run commands are refused.
	Level RecordingLevel `json:"level"`
	// RecordInput also records what the caller types, which includes passwords.
	RecordInput bool `json:"recordInput,omitempty"`
}
