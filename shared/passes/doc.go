// Package passes issues and verifies the gateway's own credentials. A pass is an object with a user, clusters and
// verbs. Its credential is a token (a JWT) or a client certificate.
//
// Invariants:
//   - A pass is valid while its object exists with the uid in the credential. The cached object is at most MaxAge old.
//     If the store is down for longer, the response is 503.
//   - A pass grants what RBAC grants its user, limited by its object (identity.Scope).
//   - The object store contains no credential.
//   - Private keys are in the secret store, or in the service of a Signer. Public keys are in the object store.
//   - Agents' credentials and tunnel tokens have their own keys, which do not verify passes.
//   - A client certificate without a pass is valid until it expires, or until an object revokes its serial number.
package passes

import "time"

// MaxAge is the maximum age of cached objects, which they reach only while the store is down.
const MaxAge = 30 * time.Second

// Limits of the lifetime of a pass. Agents' credentials have the same MinTTL and MaxTTL.
const (
	MinTTL     = time.Minute
	MaxTTL     = 7 * 24 * time.Hour
	DefaultTTL = 8 * time.Hour
	// MaxCertificateTTL is shorter, because other servers may trust certificates and read no revocations.
	MaxCertificateTTL = 24 * time.Hour
)

// clockSkew is the accepted difference between the clocks of two gateways.
const clockSkew = 10 * time.Second
