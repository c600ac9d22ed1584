package main

import (
	"context"
	"fmt"
	"os"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/clusterpass/clusterpass/shared/cluster"
	"github.com/clusterpass/clusterpass/shared/config"
	"github.com/clusterpass/clusterpass/shared/passes"
	"github.com/clusterpass/clusterpass/shared/pki"
	"github.com/clusterpass/clusterpass/shared/recording/keys"
	"github.com/clusterpass/clusterpass/shared/registration"
	"github.com/clusterpass/clusterpass/shared/stores"
	"github.com/clusterpass/clusterpass/shared/stores/kubernetes"
	"github.com/clusterpass/clusterpass/shared/version"
)

type app struct {
	store         string
	allowLoopback bool
	passKMSKey    string
}

func root() *cobra.Command {
	a := &app{}
	cmd := &cobra.Command{
		Use:   "clusterpass",
		Short: "One pass for every cluster",
		Long: `Use a Clusterpass gateway (login, kubeconfig, doctor, version), or administer its clusters and access rights.

The commands for administrators write into the installation's stores, at the location in --store or CLUSTERPASS_STORE:
  dir:PATH     directories on this machine, as used by "make up" (default: the user's data directory)
  aws:PREFIX   AWS Secrets Manager and DynamoDB; the environment of the AWS SDK defines region and credentials.
               With aws:PREFIX,key=KEY, a key in AWS KMS (alias, ID or ARN) encrypts new secrets.
  kubernetes:NAMESPACE
               Secrets and custom resources in a hub cluster; the current context of KUBECONFIG defines the cluster.
               Options: ,context=CONTEXT and ,kubeconfig=FILE`,
		SilenceUsage: true, SilenceErrors: true,
		Version: version.Get().String(),
	}
	cmd.SetVersionTemplate("{{.Name}} {{.Version}}\n")
	cmd.PersistentFlags().StringVar(&a.store, "store", os.Getenv("CLUSTERPASS_STORE"),
		"location of the installation's stores: dir:PATH, aws:PREFIX[,key=KEY] or kubernetes:NAMESPACE[,context=CONTEXT]")
	cmd.PersistentFlags().BoolVar(&a.allowLoopback, "allow-loopback", os.Getenv("CLUSTERPASS_ALLOW_LOOPBACK") == "true",
		"allow clusters with loopback addresses, as in the gateway's configuration; always allowed with dir:PATH")
	cmd.PersistentFlags().StringVar(&a.passKMSKey, "pass-kms-key", os.Getenv("CLUSTERPASS_PASS_KMS_KEY"),
		"key in AWS KMS that signs passes, as in the gateway's configuration: ARN, ID or alias")
	cmd.AddCommand(a.init(), a.cluster(), a.pass(), a.cert(), a.apply(), a.delete(), a.audit(), a.backup(), a.restore(),
		a.recording())
	for _, c := range []*cobra.Command{login(), kubeconfigCommand(), doctor(), versionCommand()} {
		c.SetHelpFunc(helpWithoutGlobalFlags)
		cmd.AddCommand(c)
	}
	return cmd
}

// helpWithoutGlobalFlags prints the help of a command for users, who need no flags of the stores.
func helpWithoutGlobalFlags(cmd *cobra.Command, args []string) {
	cmd.InheritedFlags().VisitAll(func(f *pflag.Flag) { f.Hidden = true })
	cmd.Root().HelpFunc()(cmd, args)
}

// oneArg returns an error unless there is one argument. Its name follows the command in cmd.Use, as in "create NAME".
func oneArg(cmd *cobra.Command, args []string) error {
	_, name, _ := strings.Cut(cmd.Use, " ")
	switch len(args) {
	case 1:
		return nil
	case 0:
		return fmt.Errorf("%s: %s is missing; run: %s", cmd.CommandPath(), name, cmd.UseLine())
	}
	return fmt.Errorf("%s: want one %s instead of %d; run: %s", cmd.CommandPath(), name, len(args), cmd.UseLine())
}

// Without help, cobra would print the help for a mistyped subcommand, too, and exit with 0.
func help(cmd *cobra.Command, _ []string) error { return cmd.Help() }

func (a *app) address() (addr stores.Address, err error) {
	if a.store == "" {
		addr, err = stores.Default()
	} else {
		err = addr.Decode(a.store)
	}
	if err != nil {
		err = &config.Error{Variable: "CLUSTERPASS_STORE", Problem: err.Error(), Example: "dir:/var/lib/clusterpass"}
	}
	return addr, err
}

// init creates the table for an emulator of AWS. On AWS, the template creates it. The gateway publishes the keys, too.
func (a *app) init() *cobra.Command {
	var clientCA, controlPlane string
	cmd := &cobra.Command{
		Use: "init", Short: "Initialize the stores, if necessary", Args: cobra.NoArgs,
		Long: `Initialize the stores, if necessary. For aws:PREFIX this creates the table PREFIX-objects. For
kubernetes:NAMESPACE it creates the namespace and the CustomResourceDefinition records.store.clusterpass.io, which only
an administrator of the hub may do. In a new store it creates the ResourceRegistry "default", with which the fleet has
all kinds of all clusters. A store is new while it has no clusters, roles, passes or registries. In every store it
publishes the keys that verify passes, and creates the key that signs recordings of sessions. The control function, the
bridge and the local program also publish the keys when they start.`,
		RunE: func(cmd *cobra.Command, _ []string) error {
			st, addr, err := a.openStores(cmd.Context())
			if err != nil {
				return err
			}
			if t, ok := st.Objects.(interface{ EnsureTable(context.Context) error }); ok {
				if err := t.EnsureTable(cmd.Context()); err != nil {
					return err
				}
			}
			if st.Hub != nil {
				if err := kubernetes.Install(cmd.Context(), st.Hub); err != nil {
					return err
				}
			}
			if controlPlane == "" {
				if err := stores.CreateDefaultRegistry(cmd.Context(), st.Objects); err != nil {
					return fmt.Errorf("create the ResourceRegistry %q: %w", stores.DefaultRegistry, err)
				}
			}
			if clientCA != "" {
				ca, err := pki.ReadCA(clientCA)
				if err == nil {
					err = passes.StoreCA(cmd.Context(), st.Secrets, ca)
				}
				if err != nil {
					return err
				}
			}
			issuer, err := a.issuerOver(cmd.Context(), st.Objects, st.Secrets, "")
			if err == nil {
				err = issuer.PublishAll(cmd.Context())
			}
			if err != nil {
				return fmt.Errorf("publish the keys that verify passes: %w", err)
			}
			if _, err := keys.Ensure(cmd.Context(), st.Secrets, st.Objects); err != nil {
				return err
			}
			_, err = fmt.Fprintf(cmd.OutOrStdout(), "%s is ready\n", addr)
			return err
		},
	}
	cmd.Flags().StringVar(&clientCA, "client-ca", "",
		"file with the certificate and key of the CA of clients, for the secret store: gateways can then create passes "+
			"in the form of certificates")
	cmd.Flags().StringVar(&controlPlane, "control-plane", os.Getenv("CLUSTERPASS_CONTROL_PLANE"),
		"control-plane cluster, as in the gateway's configuration; with one, init creates no ResourceRegistry")
	return cmd
}

func (a *app) openStores(ctx context.Context) (st *stores.Stores, addr stores.Address, err error) {
	if addr, err = a.address(); err == nil {
		st, err = stores.Open(ctx, addr, kubernetes.Opener())
	}
	return st, addr, err
}

func (a *app) registrar(ctx context.Context) (*registration.Registrar, error) {
	st, addr, err := a.openStores(ctx)
	if err != nil {
		return nil, err
	}
	// Refuse addresses that the gateway would refuse to dial.
	return &registration.Registrar{
		Secrets: st.Secrets, Objects: st.Objects,
		Policy: cluster.DialPolicy{AllowLoopback: a.allowLoopback || addr.Kind == "dir"},
	}, nil
}
