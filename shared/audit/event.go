package audit

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// Stage is the point of a request at which an event was written.
type Stage string

// The stages that are written.
const (
	RequestReceived  Stage = "RequestReceived"  // only of a request that proves a sink; see Request.Admit
	ResponseStarted  Stage = "ResponseStarted"  // a stream is open
	ResponseComplete Stage = "ResponseComplete" // the last byte was sent
	Panic            Stage = "Panic"
)

// The annotations of events. Those of authorization.k8s.io are kube-apiserver's own.
const (
	// DecisionAnnotation is allow or forbid. It is absent where no decision was made.
	DecisionAnnotation = "authorization.k8s.io/decision"
	ReasonAnnotation   = "authorization.k8s.io/reason"
	// ClusterAnnotation is absent for lists of the fleet, and for the gateway's own API.
	ClusterAnnotation  = "clusterpass.io/cluster"
	MethodAnnotation   = "clusterpass.io/authentication" // how the user was identified
	FailureAnnotation  = "clusterpass.io/failure"        // a status.Reason, where the gateway itself failed the call
	DurationAnnotation = "clusterpass.io/duration"       // in the form of time.Duration
	SentAnnotation     = "clusterpass.io/bytes-sent"     // bytes of the body to the client
	ReceivedAnnotation = "clusterpass.io/bytes-received" // bytes of the body from the client
	// RecordingAnnotation is the id of a session's recording.
	RecordingAnnotation = "clusterpass.io/recording"
	// UnrecordedAnnotation is why a session's recording is missing or incomplete.
	UnrecordedAnnotation = "clusterpass.io/unrecorded"
	// CountAnnotation is the number of events that a summary of unidentified clients represents.
	CountAnnotation = "clusterpass.io/count"
	// ShortenedAnnotation is true if the sink rejected the event with its whole texts.
	ShortenedAnnotation = "clusterpass.io/shortened"
	// The annotations of a token that only the member can verify. All but the hash were chosen by the token's author.
	TokenHashAnnotation    = "clusterpass.io/unverified-token-sha256"
	TokenIssuerAnnotation  = "clusterpass.io/unverified-token-issuer"
	TokenSubjectAnnotation = "clusterpass.io/unverified-token-subject"
	TokenIDAnnotation      = "clusterpass.io/unverified-token-id"
)

// Event is an Event of audit.k8s.io/v1. Kubernetes' Go types would link most of k8s.io/api.
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

// Token contains the claims of a bearer token that was not verified.
type Token struct {
	Hash                string // SHA-256 of the whole token, in hexadecimal digits
	Issuer, Subject, ID string // the claims iss, sub and jti of a JWT; "" where it has none
}

// Shorten returns t with the claims as an event has them, of at most maxClaim bytes.
func (t Token) Shorten() Token {
	t.Issuer, t.Subject, t.ID = cut(t.Issuer, maxClaim), cut(t.Subject, maxClaim), cut(t.ID, maxClaim)
	return t
}

// Object is an ObjectReference: the resource of the request.
type Object struct {
	Resource    string `json:"resource,omitempty"`
	Namespace   string `json:"namespace,omitempty"`
	Name        string `json:"name,omitempty"`
	APIGroup    string `json:"apiGroup,omitempty"`
	APIVersion  string `json:"apiVersion,omitempty"`
	Subresource string `json:"subresource,omitempty"`
}

// Status contains the fields of metav1.Status that are used here.
type Status struct {
	Metadata struct{} `json:"metadata"`
	Status   string   `json:"status,omitempty"`
	Message  string   `json:"message,omitempty"`
	Reason   string   `json:"reason,omitempty"`
	Code     int      `json:"code,omitempty"`
}
