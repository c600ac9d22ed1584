// Package eks answers natively what a kubeconfig's exec entry asks the programs aws ("aws eks get-token") and
// aws-iam-authenticator ("aws-iam-authenticator token") for: a bearer token for an Amazon EKS cluster. No program runs.
//
// The token is a presigned STS GetCallerIdentity request: the prefix k8s-aws-v1. and the URL in unpadded base64url, with
// the cluster's name in the signed header x-k8s-aws-id. The cluster calls the URL and learns whose signature it is. It takes a
// token for 15 minutes from its date.
//
// Threat model: a token shows an AWS identity of the gateway to whoever receives it, who can use it towards the EKS cluster that
// it names while it lasts. Whoever writes a member's kubeconfig chooses server and cluster name, so writing one is
// worth as much as the gateway's AWS identity (and the roles it may assume) on every EKS cluster that knows it: give
// that identity no more than the gateway needs there. Arguments that would change the source of credentials or the
// endpoint that gets to see a signature are refused.
package eks

// Spec says which token is wanted. It holds no secret and is comparable.
type Spec struct {
	Cluster string // name of the cluster, or its id, as its API server knows itself
	Region  string // of STS; "" is the gateway's own
	// RoleARN is assumed first; "" signs with the gateway's own credentials. SessionName and ExternalID belong to
	// that; an empty SessionName lets the SDK choose one.
	RoleARN, SessionName, ExternalID string
	// Legacy uses the global STS endpoint for the regions that once had only that.
	Legacy bool
}
