// Package passes makes and verifies the gateway's own credentials: tokens (JWTs that it signs) and client certificates, each of
// them a pass, an object that says whose it is and which clusters and verbs it is good for.
//
// Invariants:
//   - A pass is good for as long as its object is there, with the uid that the credential names. Nothing that is older than
//     MaxAge is believed of that: without the store the answer is 503.
//   - What a pass may do is what RBAC grants its user, and no more than its object says (identity.Scope).
//   - The object holds no secret: who reads the object store can make no credential of it.
//   - Keys that sign are in the secret store, or with a Signer. Keys that verify are in the object store.
//   - Agents' credentials and tunnel tokens have keys of their own, which verify no pass.
//   - A client certificate of the gateway's CA, pass or not, is good until an object revokes its serial number.
package passes

import "time"

// MaxAge is how old what is known of a pass, or of a certificate's revocation, may be at all.
const MaxAge = 30 * time.Second

// Limits of how long a pass may be good for.
const (
	MinTTL     = time.Minute
	MaxTTL     = 7 * 24 * time.Hour
	DefaultTTL = 8 * time.Hour
	// MaxCertificateTTL is MaxTTL for certificates, which others than the gateway may trust, and those know of no revocation.
	MaxCertificateTTL = 24 * time.Hour
)

// skew is by how much the clocks of two gateways may differ.
const skew = 10 * time.Second
