// Package eks creates bearer tokens for Amazon EKS clusters. It replaces two programs in the exec entry of a
// kubeconfig: "aws eks get-token" and "aws-iam-authenticator token". It runs no program.
//
// The token is a presigned STS GetCallerIdentity request. Its form is the prefix k8s-aws-v1. and the URL in unpadded
// base64url. The signed header x-k8s-aws-id contains the cluster's name. The cluster calls the URL, and learns whose
// signature it is. It accepts a token for 15 minutes from its date.
//
// Threat model: the receiver of a token can use it at the EKS cluster that it names, with the gateway's AWS identity,
// while it lasts. The author of a member's kubeconfig chooses server and cluster name. Writing a kubeconfig therefore
// gives the rights of the gateway's AWS identity on every EKS cluster that accepts it. The same applies to the roles
// that it may assume. Give that identity no more rights than the gateway needs there. Arguments are rejected if they
// would change the source of credentials, or the endpoint that receives a signature.
package eks

// Spec specifies a token. It contains no secret and is comparable.
type Spec struct {
	Cluster string // name of the cluster, or its id, as its API server is configured
	Region  string // of STS; "" means the gateway's own region
	// RoleARN is assumed first. "" signs with the gateway's own credentials. SessionName and ExternalID are for that role.
	// With an empty SessionName the SDK chooses one.
	RoleARN, SessionName, ExternalID string
	// Legacy uses the global STS endpoint for the regions that once had only that one.
	Legacy bool
}
