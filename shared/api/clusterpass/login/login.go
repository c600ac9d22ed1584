// Package login is the document by which people's programs learn how to identify themselves to a gateway. It is for everybody: it says what
// identity providers say, too, and no secret.
package login

// Path is where in a gateway's URL the document is.
const Path = "/.well-known/clusterpass"

// Methods are the ways to identify oneself that need nothing of the gateway beforehand.
type Methods struct {
	OIDC   []OIDC  `json:"oidc,omitempty"`
	AWSIAM *AWSIAM `json:"awsIAM,omitempty"`
}

// OIDC is an OpenID Connect provider. Tokens are for one of the audiences, as a rule the client's ID.
type OIDC struct {
	URL       string   `json:"url"`
	Audiences []string `json:"audiences"`
}

// AWSIAM is that tokens of aws eks get-token --cluster-name GatewayID are taken.
type AWSIAM struct {
	GatewayID string `json:"gatewayID"`
}
