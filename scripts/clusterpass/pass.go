package main

import (
	"context"
	"crypto/x509"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clientcmdv1 "k8s.io/client-go/tools/clientcmd/api/v1"

	"github.com/clusterpass/clusterpass/shared/api/clusterpass/v1alpha1"
	"github.com/clusterpass/clusterpass/shared/objects"
	"github.com/clusterpass/clusterpass/shared/passes"
	"github.com/clusterpass/clusterpass/shared/passes/kmssigner"
	"github.com/clusterpass/clusterpass/shared/passes/kubeconfig"
	"github.com/clusterpass/clusterpass/shared/pki"
	"github.com/clusterpass/clusterpass/shared/registration"
	"github.com/clusterpass/clusterpass/shared/secrets"
)

func (a *app) pass() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "pass",
		Short: "Create, list and revoke passes",
		Long: `Passes are short-lived credentials from the gateway: tokens or client certificates, limited to clusters and
verbs. A pass never grants more than RBAC grants its user. It ends when it expires or is revoked.`,
		Args: cobra.NoArgs, RunE: help,
	}
	cmd.AddCommand(a.passCreate(), a.passList(), a.passRevoke(), a.passRotateKey())
	return cmd
}

type passRequest struct {
	user, form, gateway, gatewayCA, ca, output string
	groups, clusters, verbs                    []string
	ttl                                        time.Duration
}

func (a *app) passCreate() *cobra.Command {
	req := &passRequest{}
	cmd := &cobra.Command{
		Use: "create NAME", Short: "Create a pass and print it as a kubeconfig", Args: oneArg,
		Long: `Create a pass and print it once, as a kubeconfig with a context for each cluster, or as the bare token.

The gateway's URL and CA are read from the kubeconfig in --gateway, which the gateway must have written. --gateway may
also be the URL itself.`,
		Example: `  clusterpass pass create ann-laptop --user ann --group dev > ann.kubeconfig
  clusterpass pass create ci --user ci --cluster member1 --verb get --ttl 1h --output token`,
		RunE: func(cmd *cobra.Command, args []string) error {
			p := &v1alpha1.Pass{
				ObjectMeta: metav1.ObjectMeta{Name: args[0]},
				Spec: v1alpha1.PassSpec{
					User: req.user, Groups: req.groups, Clusters: req.clusters, Verbs: req.verbs,
					TTL:  metav1.Duration{Duration: req.ttl},
					Form: v1alpha1.Form(req.form),
				},
			}
			if req.output != "kubeconfig" && (req.output != "token" || p.Spec.Form != v1alpha1.Token) {
				return fmt.Errorf("--output %q: want kubeconfig, or token with --form token", req.output)
			}
			out, err := a.createPass(cmd.Context(), p, req)
			if err != nil {
				return err
			}
			_, err = cmd.OutOrStdout().Write(out)
			return err
		},
	}
	f := cmd.Flags()
	f.StringVar(&req.user, "user", "", "user of the pass")
	f.StringSliceVar(&req.groups, "group", nil, "group of the user; may be repeated")
	f.StringSliceVar(&req.clusters, "cluster", []string{v1alpha1.Any},
		"cluster that the pass reaches; may be repeated; * for all that the user may reach")
	f.StringSliceVar(&req.verbs, "verb", []string{v1alpha1.Any},
		"RBAC verb: get, create, update, patch or delete; exec needs create; may be repeated; * for all that the "+
			"user may use")
	f.DurationVar(&req.ttl, "ttl", passes.DefaultTTL, "lifetime of the pass, 1m to 168h")
	f.StringVar(&req.form, "form", string(v1alpha1.Token), "token or certificate")
	f.StringVar(&req.gateway, "gateway", "clusterpass.kubeconfig",
		"kubeconfig that the gateway wrote, for its URL and CA; or its https:// URL")
	f.StringVar(&req.gatewayCA, "gateway-ca", "",
		"CA of the gateway's certificate: a PEM file, or "+storedCA+" for the CA of certificates that bridges make "+
			"(CLUSTERPASS_HOSTS) (default: that of the kubeconfig in --gateway, or the CAs of the system)")
	f.StringVar(&req.ca, "ca", "",
		"file with the certificate and key of the CA of clients, for --form certificate (default: those in the secret store)")
	f.StringVarP(&req.output, "output", "o", "kubeconfig", "kubeconfig or token")
	_ = cmd.MarkFlagRequired("user") // the flag exists
	return cmd
}

func (a *app) createPass(ctx context.Context, p *v1alpha1.Pass, req *passRequest) ([]byte, error) {
	gw, err := kubeconfig.Read(req.gateway)
	if err != nil {
		return nil, fmt.Errorf("%w; name a kubeconfig of the gateway with --gateway", err)
	}
	r, err := a.registrar(ctx)
	if err != nil {
		return nil, err
	}
	if req.gatewayCA != "" {
		if gw.CA, err = gatewayCA(ctx, req.gatewayCA, r.Secrets); err != nil {
			return nil, fmt.Errorf("--gateway-ca: %w", err)
		}
	}
	issuer, err := a.issuerOver(ctx, r.Objects, r.Secrets, gw.URL)
	if err != nil {
		return nil, err
	}
	if p.Spec.Form == v1alpha1.Certificate {
		if issuer.CA, err = a.clientCA(ctx, req.ca, r.Secrets); err != nil {
			return nil, err
		}
	}
	contexts, err := contextsOf(ctx, r, p.Spec.Clusters)
	if err != nil {
		return nil, err
	}
	made, err := issuer.Create(ctx, p)
	if errors.Is(err, objects.ErrExists) {
		return nil, fmt.Errorf("there is a pass %q already; choose another name, or revoke it first", p.Name)
	} else if err != nil {
		return nil, err
	}
	if req.output == "token" {
		return append(made.Token.Reveal(), '\n'), nil
	}
	return kubeconfig.Write(gw, clientcmdv1.AuthInfo{
		Token: string(made.Token.Reveal()), ClientCertificateData: made.Certificate, ClientKeyData: made.Key.Reveal(),
	}, contexts, "")
}

// storedCA is the value of --gateway-ca for the CA in the secret store.
const storedCA = "store"

func gatewayCA(ctx context.Context, from string, store secrets.Store) ([]byte, error) {
	if from == storedCA {
		ca, err := passes.LoadServerCA(ctx, store)
		if err != nil {
			return nil, err
		}
		return ca.PEM(), nil
	}
	data, err := os.ReadFile(from)
	switch {
	case err != nil:
		return nil, err
	case !x509.NewCertPool().AppendCertsFromPEM(data):
		return nil, fmt.Errorf("%s contains no PEM certificate", from)
	case pki.ContainsPrivateKey(data): // it would be in the kubeconfig of the pass
		return nil, fmt.Errorf("%s contains a private key; name a file that contains only the certificate", from)
	}
	return data, nil
}

func (a *app) clientCA(ctx context.Context, path string, store secrets.Store) (*pki.CA, error) {
	if path != "" {
		return pki.ReadCA(path)
	}
	ca, err := passes.LoadCA(ctx, store)
	if errors.Is(err, secrets.ErrNotFound) {
		err = errors.New(
			"the secret store has no key of the CA of clients (clusterpass init --client-ca); name a file with it by --ca, " +
				"or use --form token")
	}
	return ca, err
}

func contextsOf(ctx context.Context, r *registration.Registrar, names []string) ([]kubeconfig.Context, error) {
	var out []kubeconfig.Context
	if !slices.Contains(names, v1alpha1.Any) {
		for _, n := range names {
			out = append(out, kubeconfig.Context{Cluster: n})
		}
		return out, nil
	}
	clusters, err := r.Clusters(ctx)
	for _, c := range clusters {
		out = append(out, kubeconfig.Context{Cluster: c.Name})
	}
	return out, err
}

func (a *app) passList() *cobra.Command {
	return &cobra.Command{
		Use: "list", Aliases: []string{"ls"}, Short: "List the passes; their credentials are never shown", Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			issuer, err := a.issuer(cmd.Context())
			if err != nil {
				return err
			}
			all, err := issuer.List(cmd.Context(), func(name string, err error) {
				_, _ = fmt.Fprintf(cmd.ErrOrStderr(), "warning: the pass %q is invalid: its object cannot be decoded: %v; "+
					"delete it with: clusterpass pass revoke %s\n", name, err, name)
			})
			if err != nil {
				return err
			}
			tw := tabwriter.NewWriter(cmd.OutOrStdout(), 0, 0, 3, ' ', 0)
			_, _ = fmt.Fprintln(tw, "NAME\tUSER\tGROUPS\tCLUSTERS\tFORM\tEXPIRES\tVERBS")
			for _, p := range all {
				end := p.Status.ExpirationTimestamp.UTC().Format(time.RFC3339)
				if time.Now().After(p.Status.ExpirationTimestamp.Time) {
					end += " (expired)"
				}
				_, _ = fmt.Fprintf(tw, "%s\t%s\t%s\t%s\t%s\t%s\t%s\n", p.Name, p.Spec.User, strings.Join(p.Spec.Groups, ","),
					strings.Join(p.Spec.Clusters, ","), p.Spec.Form, end, strings.Join(p.Spec.Verbs, ","))
			}
			return tw.Flush()
		},
	}
}

func (a *app) passRevoke() *cobra.Command {
	return &cobra.Command{
		Use: "revoke NAME", Short: "Revoke a pass, and end its open streams", Args: oneArg,
		ValidArgsFunction: storedNames(a.passNames),
		RunE: func(cmd *cobra.Command, args []string) error {
			issuer, err := a.issuer(cmd.Context())
			if err == nil {
				err = issuer.Revoke(cmd.Context(), args[0])
			}
			if errors.Is(err, objects.ErrNotFound) {
				return fmt.Errorf("there is no pass %q; see: clusterpass pass list", args[0])
			} else if err != nil {
				return err
			}
			_, err = fmt.Fprintf(cmd.OutOrStdout(), "pass %q is revoked; all gateways refuse it within %s\n", args[0],
				revocationTime)
			return err
		},
	}
}

// revocationTime is the usual time until every gateway applies a revocation, and the bound while the store fails.
var revocationTime = fmt.Sprintf("%s, or within %s if they cannot read the store", passes.RevocationTime, passes.MaxAge)

func (a *app) passRotateKey() *cobra.Command {
	var discard bool
	cmd := &cobra.Command{
		Use: "rotate-key", Short: "Create new keys for signing tokens", Args: cobra.NoArgs,
		Long: `Create new keys for signing tokens: passes, credentials of agents, and tokens for the tunnels of private
clusters. The gateway also does this when a key is 30 days old. Existing tokens stay valid, unless --discard
ends them, e.g. after the theft of a key. Certificates are not affected.

With --pass-kms-key, the key in KMS continues to sign passes, and --discard ends all passes that another key
signed. Without it, keys in the secret store sign passes from now on, even if a key in KMS did before.`,
		RunE: func(cmd *cobra.Command, _ []string) error {
			issuer, err := a.issuer(cmd.Context())
			if err == nil {
				err = issuer.RotateKey(cmd.Context(), discard)
			}
			if err != nil {
				return err
			}
			done := "there are new keys"
			if discard {
				done += "; tokens signed by those before end within " + passes.MaxAge.String()
			}
			_, err = fmt.Fprintln(cmd.OutOrStdout(), done)
			return err
		},
	}
	cmd.Flags().BoolVar(&discard, "discard", false, "end all tokens that older keys signed")
	return cmd
}

func (a *app) issuer(ctx context.Context) (*passes.Issuer, error) {
	r, err := a.registrar(ctx)
	if err != nil {
		return nil, err
	}
	return a.issuerOver(ctx, r.Objects, r.Secrets, "")
}

// url may be "" if no token is issued.
func (a *app) issuerOver(
	ctx context.Context, obj objects.Store, sec secrets.Store, url string,
) (*passes.Issuer, error) {
	signer, err := kmssigner.Open(ctx, a.passKMSKey)
	return &passes.Issuer{Objects: obj, Secrets: sec, URL: url, Signer: signer}, err
}
