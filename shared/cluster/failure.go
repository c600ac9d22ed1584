package cluster

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"

	"github.com/clusterpass/clusterpass/shared/status"
)

// CallFailure explains the error of a round trip to a cluster at host. The error of a private cluster's tunnel explains
// itself.
func CallFailure(cluster, host string, err error) *status.Error {
	fail := func(reason status.Reason, format string, args ...any) *status.Error {
		return &status.Error{Reason: reason, Cluster: cluster, Err: err,
			Message: fmt.Sprintf("cluster %q ", cluster) + fmt.Sprintf(format, args...)}
	}
	var (
		known     *status.Error
		forbidden *ForbiddenAddressError
		dns       *net.DNSError
		untrusted *tls.CertificateVerificationError
		alert     tls.AlertError
		op        *net.OpError
	)
	switch {
	case errors.As(err, &known):
		return known
	case errors.As(err, &forbidden):
		return fail(status.Misconfigured, "cannot be used: %v", forbidden)
	case errors.As(err, &untrusted):
		return fail(status.Unreachable, "at %s shows a certificate that is not trusted: %v", host, untrusted.Err)
	case errors.As(err, &alert):
		return fail(status.CredentialRefused, "at %s refuses the gateway's TLS connection: %v", host, alert)
	case errors.As(err, &dns):
		return fail(status.Unreachable, "is unreachable: no address for %s", dns.Name)
	case hasExceededDeadline(err):
		return fail(status.Timeout, "at %s did not answer in time; try again, or ask for less", host)
	case errors.As(err, &op) && op.Op == "dial":
		return fail(status.Unreachable, "is unreachable at %s: %v", host, op.Err)
	default:
		return fail(status.Unreachable, "at %s broke the connection before it answered", host)
	}
}

// hasExceededDeadline reports whether err is that of a context's deadline, or of a timeout of a connection.
func hasExceededDeadline(err error) bool {
	var timeout net.Error
	return errors.Is(err, context.DeadlineExceeded) || errors.As(err, &timeout) && timeout.Timeout()
}
