// Package eks creates bearer tokens for Amazon EKS clusters, as "aws eks get-token" does. It runs no program.
//
// A token is a presigned STS GetCallerIdentity request: k8s-aws-v1. and the URL in unpadded base64url. The signed
// header x-k8s-aws-id contains the cluster's name. The cluster calls the URL to learn the caller, for 15 minutes from
// its date.
//
// The author of a member's kubeconfig chooses server, cluster name and role. The server can use the token at any
// cluster that accepts the gateway's AWS identity or that role. Give both no more rights than the gateway needs there.
package eks

// Spec specifies a token. It contains no secret and is comparable.
type Spec struct {
	Cluster string // name of the cluster, or its id, as its API server is configured
	Region  string // of STS; "" means the gateway's own region
	// RoleARN is assumed first; "" signs with the gateway's own credentials. The SDK chooses an empty SessionName.
	RoleARN, SessionName, ExternalID string
	// Legacy uses the global STS endpoint for the regions that once had only that one.
	Legacy bool
}
