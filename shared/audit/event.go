package audit

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// Stage says at what point of a request an event was written.
type Stage string

// The stages of audit.k8s.io/v1 that are written. (RequestReceived would say nothing that the others do not.)
const (
	ResponseStarted  Stage = "ResponseStarted"  // of a stream: it is open
	ResponseComplete Stage = "ResponseComplete" // the last byte was sent
	Panic            Stage = "Panic"
)

// The annotations of events. Those of authorization.k8s.io are kube-apiserver's own.
const (
	DecisionAnnotation = "authorization.k8s.io/decision" // allow or forbid; absent where none was made
	ReasonAnnotation   = "authorization.k8s.io/reason"
	ClusterAnnotation  = "clusterpass.io/cluster"        // the member, or those that a call to the fleet changed; absent for its lists and the gateway's own API
	MethodAnnotation   = "clusterpass.io/authentication" // how the user was identified
	FailureAnnotation  = "clusterpass.io/failure"        // a status.Reason, where the gateway itself failed the call
	DurationAnnotation = "clusterpass.io/duration"       // as time.Duration has it
	SentAnnotation     = "clusterpass.io/bytes-sent"     // bytes of the body to the client
	ReceivedAnnotation = "clusterpass.io/bytes-received" // bytes of the body from the client
)

// Event is an Event of audit.k8s.io/v1, the fields that are used here, always of level Metadata. (Its Go types would link
// most of k8s.io/api.)
type Event struct {
	Kind                     string            `json:"kind"`
	APIVersion               string            `json:"apiVersion"`
	Level                    string            `json:"level"`
	AuditID                  string            `json:"auditID"`
	Stage                    Stage             `json:"stage"`
	RequestURI               string            `json:"requestURI"`
	Verb                     string            `json:"verb"`
	User                     User              `json:"user"`
	ImpersonatedUser         *User             `json:"impersonatedUser,omitempty"`
	SourceIPs                []string          `json:"sourceIPs,omitempty"`
	UserAgent                string            `json:"userAgent,omitempty"`
	ObjectRef                *Object           `json:"objectRef,omitempty"`
	ResponseStatus           *Status           `json:"responseStatus,omitempty"`
	RequestReceivedTimestamp metav1.MicroTime  `json:"requestReceivedTimestamp"`
	StageTimestamp           metav1.MicroTime  `json:"stageTimestamp"`
	Annotations              map[string]string `json:"annotations,omitempty"`
}

// User is a UserInfo of authentication.k8s.io/v1.
type User struct {
	Username string              `json:"username,omitempty"`
	UID      string              `json:"uid,omitempty"`
	Groups   []string            `json:"groups,omitempty"`
	Extra    map[string][]string `json:"extra,omitempty"`
}

// Object is an ObjectReference: what the request addresses, in the member where there is one.
type Object struct {
	Resource    string `json:"resource,omitempty"`
	Namespace   string `json:"namespace,omitempty"`
	Name        string `json:"name,omitempty"`
	APIGroup    string `json:"apiGroup,omitempty"`
	APIVersion  string `json:"apiVersion,omitempty"`
	Subresource string `json:"subresource,omitempty"`
}

// Status is a metav1.Status, the fields that are used here.
type Status struct {
	Metadata struct{} `json:"metadata"`
	Status   string   `json:"status,omitempty"`
	Message  string   `json:"message,omitempty"`
	Reason   string   `json:"reason,omitempty"`
	Code     int      `json:"code,omitempty"`
}
