package main

import (
	"cmp"
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"strings"
	"time"

	"github.com/spf13/cobra"
	authenticationv1 "k8s.io/api/authentication/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	loginapi "github.com/clusterpass/clusterpass/shared/api/clusterpass/login"
	"github.com/clusterpass/clusterpass/shared/passes/kubeconfig"
	"github.com/clusterpass/clusterpass/shared/status"
	"github.com/clusterpass/clusterpass/shared/version"
)

const (
	networkTimeout = 10 * time.Second
	memberTimeout  = 30 * time.Second
	soon           = 7 * 24 * time.Hour
)

func doctor() *cobra.Command {
	from := &userFlags{}
	cmd := &cobra.Command{
		Use: "doctor [CLUSTER...]", Short: "Find out why a gateway or a cluster does not answer",
		Long: `Check each step of a request: the kubeconfig, the gateway's host name, address and certificate, your identity
and access rights, and each cluster that you may reach, or the given clusters. Each failed step prints what is
wrong and what to do. A difference between the versions of gateway, bridge and this program is a warning. The
exit code is 0 if no step fails, and otherwise 1.`,
		Example: `  clusterpass doctor
  clusterpass doctor --kubeconfig ann.kubeconfig member1`,
		RunE: func(cmd *cobra.Command, args []string) error {
			v := &visit{out: cmd.OutOrStdout()}
			v.all(cmd.Context(), from, args)
			switch v.failed {
			case 0:
				return nil
			case 1:
				return errors.New("1 check failed")
			}
			return fmt.Errorf("%d checks failed", v.failed)
		},
	}
	from.add(cmd)
	return cmd
}

type visit struct {
	out    io.Writer
	failed int // number of failed checks
}

func (v *visit) ok(step, format string, args ...any) {
	_, _ = fmt.Fprintf(v.out, "ok     %-10s %s\n", step, fmt.Sprintf(format, args...))
}

// warn prints a finding that fails no request.
func (v *visit) warn(step, what, do string) {
	_, _ = fmt.Fprintf(v.out, "warn   %-10s %s\n       %-10s -> %s\n", step, what, "", do)
}

func (v *visit) wrong(step, what, do string) {
	v.failed++
	_, _ = fmt.Fprintf(v.out, "WRONG  %-10s %s\n       %-10s -> %s\n", step, what, "", do)
}

// all runs the steps in order. It stops after a failed step that the next one needs.
func (v *visit) all(ctx context.Context, from *userFlags, clusters []string) {
	u, err := from.load()
	if err != nil {
		v.wrong("kubeconfig", err.Error(), "make a context for the gateway: clusterpass login --help")
		return
	}
	v.ok("kubeconfig", "has the server %s", u.url)
	cfg, err := u.config()
	if err != nil {
		v.wrong("kubeconfig", err.Error(), "log in again: clusterpass login --help")
		return
	}
	if !v.network(ctx, u, cfg) || !v.gateway(ctx, u, cfg) || !v.identity(ctx, u, cfg) {
		return
	}
	v.bridge(ctx, cfg)
	if len(clusters) == 0 {
		clusters = v.access(ctx, u)
	}
	for _, name := range clusters {
		v.member(ctx, cfg, name)
	}
}

// access returns the clusters that the user may call.
func (v *visit) access(ctx context.Context, u *user) []string {
	clusters, isEvery, err := u.reachable(ctx)
	switch {
	case err != nil:
		v.wrong("access", plain(err), "try again; if the problem persists, inform the gateway's administrator")
	case len(clusters) > 0:
		v.ok("access", "you may reach %s", strings.Join(clusters, ", "))
	case isEvery:
		v.wrong("access", "the gateway has no clusters yet", "register one: clusterpass cluster add --help")
	default:
		v.wrong("access", "you may reach no cluster", "ask the gateway's administrator for a grant: a ClusterRole with the "+
			"verb get on clusters/proxy in cluster.karmada.io, and its binding")
	}
	return clusters
}

func (v *visit) network(ctx context.Context, u *user, cfg *rest.Config) bool {
	gateway, err := url.Parse(u.url)
	if err != nil {
		v.wrong("kubeconfig", err.Error(), "log in again: clusterpass login --help")
		return false
	}
	if proxy := proxyOf(cfg, gateway); proxy != nil {
		v.ok("proxy", "the gateway is reached through the proxy %s, so its name, address and certificate are not checked "+
			"separately",
			proxy.Redacted())
		return true
	}
	ctx, cancel := context.WithTimeout(ctx, networkTimeout)
	defer cancel()
	host, port := gateway.Hostname(), gateway.Port()
	if port == "" {
		port = "443"
	}
	addresses, err := net.DefaultResolver.LookupHost(ctx, host)
	if err != nil {
		v.wrong("DNS", fmt.Sprintf("the name %q has no address: %v", host, reason(err)),
			"is the URL right? If so, does this machine use the right DNS server, or need a VPN?")
		return false
	}
	v.ok("DNS", "%s is %s", host, strings.Join(addresses, ", "))
	conn, err := (&net.Dialer{}).DialContext(ctx, "tcp", net.JoinHostPort(host, port))
	if err != nil {
		v.wrong("TCP", fmt.Sprintf("nothing answers at port %s: %v", port, reason(err)),
			"is the gateway running, and is the port right? A firewall or a missing VPN shows as a timeout")
		return false
	}
	defer conn.Close()
	v.ok("TCP", "port %s answers", port)
	settings, err := rest.TLSConfigFor(rest.AnonymousClientConfig(cfg)) // the next step checks the credential
	if err != nil {
		v.wrong("TLS", err.Error(), "log in again: clusterpass login --help")
		return false
	}
	if settings == nil {
		settings = &tls.Config{MinVersion: tls.VersionTLS12}
	}
	if settings.ServerName == "" {
		settings.ServerName = host
	}
	secure := tls.Client(conn, settings)
	if err := secure.HandshakeContext(ctx); err != nil {
		what, do := certificateTrouble(err, len(cfg.CAData) > 0)
		v.wrong("TLS", what, do)
		return false
	}
	v.ok("TLS", "the certificate is valid until %s",
		secure.ConnectionState().PeerCertificates[0].NotAfter.UTC().Format(time.RFC3339))
	return true
}

func proxyOf(cfg *rest.Config, gateway *url.URL) *url.URL {
	find := cfg.Proxy
	if find == nil {
		find = http.ProxyFromEnvironment
	}
	proxy, err := find(&http.Request{URL: gateway})
	if err != nil {
		return nil
	}
	return proxy
}

func reason(err error) error {
	var op *net.OpError
	if errors.As(err, &op) {
		return op.Err
	}
	var dns *net.DNSError
	if errors.As(err, &dns) {
		return errors.New(dns.Err)
	}
	return err
}

// certificateTrouble explains a failed handshake. own reports whether the kubeconfig contains a CA.
func certificateTrouble(err error, own bool) (what, do string) {
	var (
		unknown x509.UnknownAuthorityError
		name    x509.HostnameError
		invalid x509.CertificateInvalidError
	)
	switch {
	case errors.As(err, &unknown) && own:
		return "the gateway's certificate is not signed by the CA that your kubeconfig has",
			"the gateway's CA was changed, or another server answers: get a new kubeconfig from the gateway's administrator"
	case errors.As(err, &unknown):
		return "this machine does not trust the gateway's certificate",
			"log in with the CA of the gateway: clusterpass login URL --ca FILE"
	case errors.As(err, &name):
		return fmt.Sprintf("the gateway's certificate is for another name: %v", name),
			"use the URL that the certificate is for, or have the name added (CLUSTERPASS_HOSTS of the local gateway)"
	case errors.As(err, &invalid) && invalid.Reason == x509.Expired:
		return "the gateway's certificate has expired, or this machine's clock is wrong",
			"check the clock; if it is right, inform the gateway's administrator"
	}
	return "no TLS: " + err.Error(), "does something else than the gateway listen there?"
}

// gateway checks that the server is a Clusterpass gateway. Without an answer it returns true: identity explains why.
func (v *visit) gateway(ctx context.Context, u *user, cfg *rest.Config) bool {
	found, err := isGateway(ctx, cfg)
	if err != nil {
		return true
	}
	if !found {
		v.wrong("gateway", u.url+" is no Clusterpass gateway", "name a context of the gateway with --context, or make one: "+
			"clusterpass login --help")
		return false
	}
	v.ok("gateway", "%s is a Clusterpass gateway", u.url)
	return true
}

// isGateway reports whether the server of cfg publishes login methods. It sends no credential to it.
func isGateway(ctx context.Context, cfg *rest.Config) (bool, error) {
	server, err := url.Parse(cfg.Host)
	if err != nil {
		return false, err
	}
	ctx, cancel := context.WithTimeout(ctx, memberTimeout)
	defer cancel()
	cfg = rest.AnonymousClientConfig(cfg)
	cfg.Host = (&url.URL{Scheme: server.Scheme, Host: server.Host}).String()
	client, err := kubernetes.NewForConfig(cfg)
	if err != nil {
		return false, err
	}
	data, err := client.RESTClient().Get().AbsPath(loginapi.Path).DoRaw(ctx)
	switch code(err) {
	case http.StatusUnauthorized, http.StatusForbidden, http.StatusNotFound:
		return false, nil
	}
	if err != nil {
		return false, err
	}
	return json.Unmarshal(data, &loginapi.Methods{}) == nil, nil
}

func (v *visit) identity(ctx context.Context, u *user, cfg *rest.Config) bool {
	v.certificate(u)
	client, err := kubernetes.NewForConfig(cfg)
	if err != nil {
		v.wrong("identity", err.Error(), "log in again: clusterpass login --help")
		return false
	}
	who, err := client.AuthenticationV1().SelfSubjectReviews().Create(ctx, &authenticationv1.SelfSubjectReview{},
		metav1.CreateOptions{})
	switch {
	case err == nil:
		v.ok("identity", "you are %q, in groups %q", who.Status.UserInfo.Username, who.Status.UserInfo.Groups)
		return true
	case code(err) == http.StatusUnauthorized:
		v.wrong("identity", "the gateway does not accept your credential: "+plain(err),
			"get a new one, and log in with it: clusterpass login --help")
	case code(err) == 0 && u.auth.Exec != nil:
		v.wrong("identity", fmt.Sprintf("%q returns no credential: %s", u.auth.Exec.Command, plain(err)),
			"run it by hand to see why: "+strings.Join(append([]string{u.auth.Exec.Command}, u.auth.Exec.Args...), " "))
	case code(err) == 0:
		v.wrong("gateway", "the connection breaks off: "+plain(err),
			"is a proxy or a firewall in between? The gateway's log has the rest")
	case code(err) == http.StatusNotFound:
		v.wrong("gateway", "the server is not a gateway, or one without an API of its own: "+plain(err), "is the URL right?")
	default:
		v.wrong("gateway", plain(err),
			"the gateway has an internal error: try again; if the error persists, inform the gateway's administrator, whose "+
				"log has more")
	}
	return false
}

func (v *visit) certificate(u *user) {
	block, _ := pem.Decode(u.auth.ClientCertificateData)
	if block == nil {
		return
	}
	leaf, err := x509.ParseCertificate(block.Bytes)
	if err != nil {
		return // the gateway reports this
	}
	switch left := time.Until(leaf.NotAfter); {
	case left < 0:
		v.wrong("identity", "your client certificate has expired on "+leaf.NotAfter.UTC().Format(time.RFC3339),
			"get a new one, and log in with it: clusterpass login --help")
	case left < soon && leaf.NotAfter.Sub(leaf.NotBefore) > 2*soon:
		v.ok("identity", "your client certificate ends soon, on %s: get a new one", leaf.NotAfter.UTC().Format(time.RFC3339))
	}
}

func (v *visit) bridge(ctx context.Context, cfg *rest.Config) {
	found, err := serverVersion(ctx, cfg, bridgeVersionPath)
	if err != nil {
		v.wrong("streams", "the bridge does not answer: "+plain(err),
			"watch, logs -f, exec and port-forward do not work until the bridge runs: inform the gateway's administrator")
		return
	}
	v.ok("streams", "the bridge answers")
	v.versions(ctx, cfg, version.OfGateway(found.GitVersion))
}

// versions warns if gateway, bridge and this program are of different releases.
func (v *visit) versions(ctx context.Context, cfg *rest.Config, bridge string) {
	found, err := serverVersion(ctx, cfg, "/version")
	if err != nil {
		v.wrong("versions", "the gateway does not report its version: "+plain(err),
			"try again; if the problem persists, inform the gateway's administrator")
		return
	}
	gateway := version.OfGateway(found.GitVersion)
	own := version.OfGateway(version.Get().GitVersion(""))
	if gateway == own && bridge == own {
		v.ok("versions", "the gateway, the bridge and this program are of version %s", own)
		return
	}
	do := "use the clusterpass of the gateway's release"
	if gateway != bridge {
		do = "inform the gateway's administrator: functions and bridge must be of one release"
	}
	v.warn("versions", fmt.Sprintf("the gateway is of version %s, the bridge of %s and this program of %s",
		cmp.Or(gateway, "unknown"), cmp.Or(bridge, "unknown"), own), do)
}

func (v *visit) member(ctx context.Context, cfg *rest.Config, name string) {
	began := time.Now()
	err := get(ctx, cfg, kubeconfig.Path(name)+"/version")
	if err == nil {
		v.ok(name, "answers within %s", time.Since(began).Round(time.Millisecond))
		return
	}
	do := describeHint(name)
	switch code(err) {
	case http.StatusForbidden:
		do = adviceForbidden(err, name)
	case http.StatusNotFound:
		do = "is the name right? The gateway's administrator registers it: clusterpass cluster add " + name
	case http.StatusBadGateway, http.StatusServiceUnavailable:
		do = adviceUnusable(err, name)
	case http.StatusGatewayTimeout:
		do = "the cluster or the network is slow or down: try again, then ask its administrator"
	case http.StatusUnauthorized:
		do = "the cluster accepts only its own tokens (identity passthrough): get one from its administrator"
	}
	v.wrong(name, plain(err), do)
}

func describeHint(name string) string {
	return "kubectl --context clusterpass describe cluster " + name + " may show more; its administrator can help"
}

func adviceUnusable(err error, name string) string {
	switch {
	case apierrors.HasStatusCause(err, metav1.CauseType(status.CredentialRefused)):
		return "its administrator renews its credential: clusterpass cluster join " + name +
			" --replace --group GROUP, once for each group of its callers"
	case apierrors.HasStatusCause(err, metav1.CauseType(status.Unreachable)),
		apierrors.HasStatusCause(err, metav1.CauseType(status.CircuitOpen)):
		return "is the cluster up, and reachable from the gateway or, if it is private, from its agents? " +
			describeHint(name)
	}
	return describeHint(name)
}

func adviceForbidden(err error, name string) string {
	switch {
	case apierrors.HasStatusCause(err, metav1.CauseType(status.Forbidden)):
		return "ask the gateway's administrator for a grant: the verb get on clusters/proxy in cluster.karmada.io, " +
			"resourceName " + name
	case apierrors.HasStatusCause(err, metav1.CauseType(status.CannotImpersonate)):
		return "every group of yours must be allowed, or use kubectl's --as and --as-group"
	}
	return "the cluster refuses, not the gateway: ask its administrator for access in the cluster; if its credential at " +
		"the gateway may not impersonate you, every group of yours must be allowed: clusterpass cluster join " + name +
		" --replace --group GROUP"
}

func get(ctx context.Context, cfg *rest.Config, path string) error {
	ctx, cancel := context.WithTimeout(ctx, memberTimeout)
	defer cancel()
	client, err := kubernetes.NewForConfig(cfg)
	if err != nil {
		return err
	}
	// The gateway sends errors of discovery as text to clients that name a type.
	return client.RESTClient().Get().AbsPath(path).SetHeader("Accept", "*/*").Do(ctx).Error()
}
