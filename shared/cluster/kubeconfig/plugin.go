package kubeconfig

import (
	"context"
	"crypto/tls"
	"fmt"
)

// Plugin is a credential plugin: a program of the gateway's user that returns a member's credential, as for kubectl.
// Only the local program has any. A Plugin is safe for concurrent use.
//
// Its errors reach clients, logs and stores. They contain neither the plugin's definition nor its output.
type Plugin interface {
	// Credential returns the current credential. It runs the program if there is none, or if it has expired. An error
	// that wraps context.DeadlineExceeded means that the program still runs.
	Credential(ctx context.Context) (PluginCredential, error)
	// Latest runs nothing. It returns the latest credential, which may be empty or expired, and the error of the latest
	// run, nil if that succeeded.
	Latest() (PluginCredential, error)
	// Renew runs the program after a member has refused the credential with this token, unless a newer credential exists.
	// It reports whether Credential may return another one now.
	Renew(ctx context.Context, refusedToken string) bool
}

// PluginCredential is a bearer token, a client certificate or both. It is formatted as [hidden].
type PluginCredential struct {
	Token       string
	Certificate *tls.Certificate // another pointer means another certificate
}

// Format implements fmt.Formatter for every verb.
func (PluginCredential) Format(f fmt.State, _ rune) { _, _ = f.Write([]byte("[hidden]")) }
