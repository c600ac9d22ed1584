// Package passes issues and verifies the gateway's own credentials. Each is a pass: an object with a user, clusters and
// verbs. Its credential is a token (a JWT that the gateway signs) or a client certificate.
//
// Invariants:
//   - A pass is valid while its object exists with the uid in the credential. The cached object is at most MaxAge old,
//     also while the store is down. Afterwards the response is 503.
//   - A pass grants what RBAC grants its user, limited by its object (identity.Scope).
//   - The object contains no secret. Reading the object store does not reveal a credential.
//   - Private keys are in the secret store, or in the service of a Signer. Public keys are in the object store.
//   - Agents' credentials and tunnel tokens have their own keys, which do not verify passes.
//   - Any client certificate of the gateway's CA is valid until an object revokes its serial number.
package passes

import "time"

// MaxAge is the maximum age of cached passes, revocations and enrolments of agents. They reach it only while the store
// is down.
const MaxAge = 30 * time.Second

// Limits of the lifetime of a pass.
const (
	MinTTL     = time.Minute
	MaxTTL     = 7 * 24 * time.Hour
	DefaultTTL = 8 * time.Hour
	// MaxCertificateTTL is MaxTTL for certificates. Other servers may trust them, and those read no revocations.
	MaxCertificateTTL = 24 * time.Hour
)

// clockSkew is the accepted difference between the clocks of two gateways.
const clockSkew = 10 * time.Second
