// Package login defines the public document with the login methods of a gateway. It contains no secret.
package login

// Path is the path of the document in a gateway's URL.
const Path = "/.well-known/clusterpass"

// Methods are the login methods that need no credential of the gateway.
type Methods struct {
	OIDC   []OIDC  `json:"oidc,omitempty"`
	AWSIAM *AWSIAM `json:"awsIAM,omitempty"`
}

// OIDC is an OpenID Connect provider. The audience of a token is one of the listed ones, usually the client's ID.
type OIDC struct {
	URL       string   `json:"url"`
	Audiences []string `json:"audiences"`
}

// AWSIAM means that the gateway accepts tokens of aws eks get-token --cluster-name GatewayID.
type AWSIAM struct {
	GatewayID string `json:"gatewayID"`
}
