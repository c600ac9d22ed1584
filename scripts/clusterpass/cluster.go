package main

import (
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"text/tabwriter"

	"github.com/spf13/cobra"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/yaml"

	"github.com/clusterpass/clusterpass/shared/api/cluster/v1alpha1"
	"github.com/clusterpass/clusterpass/shared/cluster"
	"github.com/clusterpass/clusterpass/shared/registration"
	"github.com/clusterpass/clusterpass/shared/secrets"
)

func (a *app) cluster() *cobra.Command {
	cmd := &cobra.Command{
		Use: "cluster", Short: "Register, list and remove member clusters", Args: cobra.NoArgs, RunE: help,
	}
	cmd.AddCommand(a.clusterAdd(), a.clusterJoin(), a.clusterDiscover(), a.clusterList(), a.clusterShow(),
		a.clusterRemove())
	return cmd
}

type source struct {
	kubeconfig, context string
	labels              map[string]string
	identity            string
	directUsers         []string
	insecure, replace   bool
	skipCheck           bool
	tunnel              string // URL of the bridge's tunnel port, for a private cluster
}

func (s *source) flags(cmd *cobra.Command) {
	f := cmd.Flags()
	f.StringVar(&s.kubeconfig, "kubeconfig", "",
		"kubeconfig file that reaches the cluster, or - for stdin (default: kubectl's)")
	f.StringVar(&s.context, "context", "", "context in it (default: its current context)")
	f.StringToStringVar(&s.labels, "label", nil, "label of the cluster, key=value; may be repeated")
	f.BoolVar(&s.insecure, "insecure-skip-tls-verify", false,
		"allow the kubeconfig to skip the verification of the server's certificate")
	f.BoolVar(&s.replace, "replace", false, "replace a cluster of this name")
}

func (a *app) clusterAdd() *cobra.Command {
	s := &source{}
	cmd := &cobra.Command{
		Use:   "add NAME",
		Short: "Register a cluster with a credential that exists",
		Long: `Register a cluster. Its kubeconfig, including all referenced files, becomes the cluster's secret.

Tokens, client certificates, basic authentication and the exec entries of "aws eks get-token" work. Any other exec
plugin or auth provider is refused. The credential is checked before anything is stored.

--identity defines the user as whom callers reach the cluster:
  impersonate  as themselves. The credential must be allowed to impersonate them.
  direct       as the user of the stored credential. Only users of --direct-user may call.
  passthrough  with a bearer token of the cluster, which callers send. No credential is stored.
The default depends on whether the credential may impersonate.`,
		Example: `  clusterpass cluster add prod --kubeconfig ~/.kube/config --context prod-admin --label region=eu
  clusterpass cluster add lab --context lab --identity direct --direct-user alice`,
		Args: oneArg,
		RunE: func(cmd *cobra.Command, args []string) error {
			kc, err := registration.Load(s.kubeconfig, s.context)
			if err != nil {
				return err
			}
			return a.register(cmd, args[0], kc, s)
		},
	}
	s.flags(cmd)
	f := cmd.Flags()
	f.StringVar(&s.identity, "identity", "", "impersonate, direct or passthrough (default: ask the cluster)")
	f.StringSliceVar(&s.directUsers, "direct-user", nil,
		"user who may call a cluster of identity direct; * for all; may be repeated")
	f.StringVar(&s.tunnel, "tunnel", "",
		"register a private cluster behind another cluster's agents, which must list its server: URL of the bridge's "+
			"tunnel port and that cluster, such as https://127.0.0.1:8444/prod")
	f.BoolVar(&s.skipCheck, "skip-check", false, "store without calling the cluster; needs --identity")
	return cmd
}

func (a *app) register(cmd *cobra.Command, name string, kubeconfig secrets.Value, s *source) error {
	if s.skipCheck && s.identity == "" {
		return fmt.Errorf(
			"--skip-check needs --identity: without a call to the cluster, the identity mode is unknown; add --identity")
	}
	r, err := a.registrar(cmd.Context())
	if err != nil {
		return err
	}
	out := cmd.OutOrStdout()
	if s.tunnel != "" {
		r.Policy = cluster.DialPolicy{AllowLoopback: true} // this machine calls the cluster, not the gateway
		out = cmd.ErrOrStderr()                            // standard output is reserved for the manifest
	}
	res, err := r.Register(cmd.Context(), registration.Request{
		Name: name, Kubeconfig: kubeconfig, Identity: v1alpha1.Identity(s.identity), DirectUsers: s.directUsers,
		Labels: s.labels, Insecure: s.insecure, Replace: s.replace, SkipCheck: s.skipCheck, Tunnel: s.tunnel,
	})
	if err != nil {
		return fmt.Errorf("cluster %q is not registered: %w", name, err)
	}
	c := res.Cluster
	_, err = fmt.Fprintf(out, "cluster %q is registered: %s, Kubernetes %s, identity %s\n",
		name, c.Spec.APIEndpoint, orUnknown(c.Status.KubernetesVersion), c.Mode())
	return err
}

func orUnknown(s string) string {
	if s == "" {
		return "of unknown version"
	}
	return s
}

func (a *app) clusterList() *cobra.Command {
	var output string
	cmd := &cobra.Command{
		Use: "list", Aliases: []string{"ls"}, Short: "List the registered clusters", Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			r, err := a.registrar(cmd.Context())
			if err != nil {
				return err
			}
			clusters, err := r.Clusters(cmd.Context())
			if err != nil {
				return err
			}
			switch output {
			case "":
				return table(cmd.OutOrStdout(), clusters)
			case "json":
				enc := json.NewEncoder(cmd.OutOrStdout())
				enc.SetIndent("", "  ")
				return enc.Encode(struct {
					metav1.TypeMeta `json:",inline"`
					Items           []v1alpha1.Cluster `json:"items"`
				}{metav1.TypeMeta{APIVersion: v1alpha1.APIVersion, Kind: "ClusterList"}, clusters})
			default:
				return fmt.Errorf("--output %q: want json, or nothing for a table", output)
			}
		},
	}
	cmd.Flags().StringVarP(&output, "output", "o", "", "json (default: a table)")
	return cmd
}

func table(w io.Writer, clusters []v1alpha1.Cluster) error {
	tw := tabwriter.NewWriter(w, 0, 0, 3, ' ', 0)
	_, _ = fmt.Fprintln(tw, "NAME\tVERSION\tMODE\tIDENTITY\tAPI-ENDPOINT\tLABELS")
	for _, c := range clusters {
		labels := make([]string, 0, len(c.Labels))
		for _, k := range slices.Sorted(maps.Keys(c.Labels)) {
			labels = append(labels, k+"="+c.Labels[k])
		}
		_, _ = fmt.Fprintf(tw, "%s\t%s\t%s\t%s\t%s\t%s\n", c.Name, c.Status.KubernetesVersion, c.Spec.SyncMode, c.Mode(),
			c.Spec.APIEndpoint, strings.Join(labels, ","))
	}
	return tw.Flush()
}

func (a *app) clusterShow() *cobra.Command {
	return &cobra.Command{
		Use: "show NAME", Short: "Print a cluster's object; its secret is never shown", Args: oneArg,
		ValidArgsFunction: storedNames(a.clusterNames),
		RunE: func(cmd *cobra.Command, args []string) error {
			r, err := a.registrar(cmd.Context())
			if err != nil {
				return err
			}
			clusters, err := r.Clusters(cmd.Context())
			if err != nil {
				return err
			}
			i := slices.IndexFunc(clusters, func(c v1alpha1.Cluster) bool { return c.Name == args[0] })
			if i < 0 {
				return fmt.Errorf("there is no cluster %q; see: clusterpass cluster list", args[0])
			}
			b, err := yaml.Marshal(clusters[i])
			if err != nil {
				return err
			}
			_, err = cmd.OutOrStdout().Write(b)
			return err
		},
	}
}

func (a *app) clusterRemove() *cobra.Command {
	return &cobra.Command{
		Use: "remove NAME", Aliases: []string{"rm"}, Short: "Remove a cluster and its secret from the gateway",
		Args:              oneArg,
		ValidArgsFunction: storedNames(a.clusterNames),
		RunE: func(cmd *cobra.Command, args []string) error {
			r, err := a.registrar(cmd.Context())
			if err != nil {
				return err
			}
			if err := r.Remove(cmd.Context(), args[0]); err != nil {
				return err
			}
			_, err = fmt.Fprintf(cmd.OutOrStdout(), "cluster %q is removed\n", args[0])
			return err
		},
	}
}
