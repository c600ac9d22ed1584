package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"regexp"
	"slices"
	"strings"
	"text/tabwriter"

	"github.com/spf13/cobra"
	metav1validation "k8s.io/apimachinery/pkg/apis/meta/v1/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"

	"github.com/clusterpass/clusterpass/shared/api/cluster/v1alpha1"
	"github.com/clusterpass/clusterpass/shared/awsclient"
	"github.com/clusterpass/clusterpass/shared/eks/inventory"
	"github.com/clusterpass/clusterpass/shared/registration"
	"github.com/clusterpass/clusterpass/shared/route"
	"github.com/clusterpass/clusterpass/shared/secrets"
)

const (
	organization = "organization"
	accountLabel = "clusterpass.io/aws-account"
	regionLabel  = "topology.kubernetes.io/region"
	maxName      = 63
)

type discovery struct {
	aws, register, skipCheck bool
	query                    inventory.Query
	callRole, identity       string
	directUsers              []string
}

func (a *app) clusterDiscover() *cobra.Command {
	d := &discovery{}
	cmd := &cobra.Command{
		Use: "discover --aws", Args: cobra.NoArgs,
		Short: "List EKS clusters, and register those that are not registered",
		Long: `List the EKS clusters of AWS accounts, with your own AWS credentials. A cluster is registered if some
registered cluster has its API server.

--register registers the others. A cluster gets its own name, with region and account if the name is in use. With
several accounts, all new names end with the account. Labels are the tags that are valid labels, account and region.
The gateway calls a cluster with its AWS identity, so its roles need access there. Before a cluster is stored, the
command calls it with your AWS identity, unless there is --skip-check.`,
		Example: `  clusterpass cluster discover --aws --regions eu-central-1,us-east-1
  clusterpass cluster discover --aws --accounts organization --role clusterpass-discover --register --skip-check`,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if !d.aws {
				return errors.New("clusterpass cluster discover: there is no place to search; add --aws for EKS")
			}
			return a.discover(cmd.Context(), cmd.OutOrStdout(), d)
		},
	}
	f := cmd.Flags()
	f.BoolVar(&d.aws, "aws", false, "list the clusters of Amazon EKS")
	f.StringSliceVar(&d.query.Accounts, "accounts", nil,
		"IDs of AWS accounts, or organization for all of your organization (default: your account)")
	f.StringVar(&d.query.Role, "role", "clusterpass-discover", "name of the role to assume in other accounts")
	f.StringSliceVar(&d.query.Regions, "regions", nil, "AWS regions (default: the region of your environment)")
	f.BoolVar(&d.register, "register", false, "register the clusters that are not registered")
	f.StringVar(&d.callRole, "call-role", "",
		"with --register: name of a role in each cluster's account that the gateway assumes for its calls")
	f.StringVar(&d.identity, "identity", string(v1alpha1.Impersonate),
		"with --register: impersonate, direct or passthrough, as of: clusterpass cluster add")
	f.StringSliceVar(&d.directUsers, "direct-user", nil, "with --identity direct: user who may call; * for all")
	f.BoolVar(&d.skipCheck, "skip-check", false, "with --register: store without calling the clusters")
	return cmd
}

// target is a discovered cluster with its name at the gateway.
type target struct {
	inventory.Cluster
	name         string
	isRegistered bool
}

func (a *app) discover(ctx context.Context, out io.Writer, d *discovery) error {
	if slices.Contains(d.query.Accounts, organization) {
		d.query.Accounts, d.query.Organization = nil, true
	}
	cfg, err := awsclient.Load(ctx)
	if err != nil {
		return err
	}
	found, failures, err := inventory.List(ctx, cfg, d.query)
	if err != nil {
		return err
	}
	r, err := a.registrar(ctx)
	if err != nil {
		return err
	}
	registered, err := r.Clusters(ctx)
	if err != nil {
		return err
	}
	targets := nameTargets(found, registered, d.query.Organization || len(d.query.Accounts) > 1)
	if err := printTargets(out, targets); err != nil {
		return err
	}
	errs := make([]error, 0, len(failures))
	for _, f := range failures {
		errs = append(errs, fmt.Errorf("account %s, region %s: %w", f.Account, f.Region, f.Err))
	}
	for _, t := range targets {
		if d.register && !t.isRegistered {
			if err := registerTarget(ctx, out, r, t, d); err != nil {
				errs = append(errs, err)
			}
		}
	}
	return errors.Join(errs...)
}

// nameTargets returns the clusters with the names that they have at the gateway, or get there. With several accounts,
// each new name ends with the account, so that the owner of one account cannot choose a name that another expects.
func nameTargets(found []inventory.Cluster, registered []v1alpha1.Cluster, hasSeveralAccounts bool) []target {
	used, byServer := map[string]bool{}, map[string]string{}
	for _, c := range registered {
		used[c.Name] = true
		byServer[strings.ToLower(strings.TrimSuffix(c.Spec.APIEndpoint, "/"))] = c.Name
	}
	targets := make([]target, 0, len(found))
	for _, c := range found {
		t := target{Cluster: c}
		if t.name, t.isRegistered = byServer[strings.ToLower(c.Endpoint)]; !t.isRegistered {
			suffixes := []string{"", "-" + c.Region, "-" + c.Region + "-" + c.Account}
			if hasSeveralAccounts {
				suffixes = []string{"-" + c.Account, "-" + c.Region + "-" + c.Account}
			}
			t.name = freeName(c.Name, suffixes, used)
			used[t.name] = true
		}
		targets = append(targets, t)
	}
	return targets
}

var notInLabel = regexp.MustCompile(`[^a-z0-9-]+`)

// freeName returns a valid name that is not used, with the first suffix that yields one.
func freeName(cluster string, suffixes []string, used map[string]bool) string {
	for _, suffix := range suffixes {
		name := notInLabel.ReplaceAllString(strings.ToLower(cluster), "-")
		name = strings.Trim(name[:min(len(name), maxName-len(suffix))], "-") + suffix
		if !used[name] && route.ValidClusterName(name) == nil {
			return name
		}
	}
	return "" // Register reports it
}

func printTargets(out io.Writer, targets []target) error {
	w := tabwriter.NewWriter(out, 0, 0, 3, ' ', 0)
	_, _ = fmt.Fprintln(w, "NAME\tREGISTERED\tACCOUNT\tREGION\tEKS-NAME\tVERSION\tAPI-ENDPOINT")
	for _, t := range targets {
		is := "no"
		if t.isRegistered {
			is = "yes"
		}
		_, _ = fmt.Fprintf(w, "%s\t%s\t%s\t%s\t%s\t%s\t%s\n", t.name, is, t.Account, t.Region, t.Name, t.Version, t.Endpoint)
	}
	return w.Flush()
}

func registerTarget(ctx context.Context, out io.Writer, r *registration.Registrar, t target, d *discovery) error {
	kubeconfig, err := t.kubeconfig(d.callRole)
	if err != nil {
		return err
	}
	_, err = r.Register(ctx, registration.Request{
		Name: t.name, Kubeconfig: kubeconfig, Identity: v1alpha1.Identity(d.identity), DirectUsers: d.directUsers,
		Labels: t.labels(), SkipCheck: d.skipCheck,
	})
	if err != nil {
		return fmt.Errorf("cluster %q of account %s, region %s, is not registered: %w", t.Name, t.Account, t.Region, err)
	}
	_, err = fmt.Fprintf(out, "cluster %q is registered: %s\n", t.name, t.Endpoint)
	return err
}

// kubeconfig returns a kubeconfig whose credential is that of aws eks get-token, which the gateway makes itself.
func (t target) kubeconfig(callRole string) (secrets.Value, error) {
	args := []string{"eks", "get-token", "--cluster-name", t.Name, "--region", t.Region}
	if callRole != "" {
		args = append(args, "--role-arn", fmt.Sprintf("arn:%s:iam::%s:role/%s", t.Partition, t.Account, callRole))
	}
	config := clientcmdapi.NewConfig()
	config.Clusters[t.name] = &clientcmdapi.Cluster{Server: t.Endpoint, CertificateAuthorityData: t.CA}
	config.AuthInfos[t.name] = &clientcmdapi.AuthInfo{Exec: &clientcmdapi.ExecConfig{
		APIVersion: "client.authentication.k8s.io/v1beta1", Command: "aws", Args: args,
		InteractiveMode: clientcmdapi.NeverExecInteractiveMode,
	}}
	config.Contexts[t.name] = &clientcmdapi.Context{Cluster: t.name, AuthInfo: t.name}
	config.CurrentContext = t.name
	text, err := clientcmd.Write(*config)
	return secrets.NewValue(text), err
}

// labels returns the tags that are valid labels, the account and the region.
func (t target) labels() map[string]string {
	labels := map[string]string{}
	for key, value := range t.Tags {
		one := map[string]string{key: value}
		if len(metav1validation.ValidateLabels(one, field.NewPath("labels"))) == 0 {
			labels[key] = value
		}
	}
	labels[accountLabel], labels[regionLabel] = t.Account, t.Region
	return labels
}
