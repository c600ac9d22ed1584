package main

import (
	"fmt"

	"github.com/spf13/cobra"
	"k8s.io/client-go/tools/clientcmd"
)

func kubeconfigCommand() *cobra.Command {
	from := &userFlags{}
	cmd := &cobra.Command{
		Use: "kubeconfig", Short: "Print a kubeconfig with a context for each cluster that you may reach", Args: cobra.NoArgs,
		Long: `Print a kubeconfig with your credential for a gateway. It has a context for each cluster that you may reach,
"fleet" for all of them, "fleet@" for all of them with names as NAME@CLUSTER, and "clusterpass" for the gateway itself.
Anyone with this output can act as you.`,
		Example: `  clusterpass kubeconfig > clusterpass.kubeconfig
  clusterpass kubeconfig --kubeconfig ann.kubeconfig`,
		RunE: func(cmd *cobra.Command, _ []string) error {
			u, err := from.load()
			if err != nil {
				return err
			}
			clusters, _, err := u.reachable(cmd.Context())
			if err != nil {
				return fmt.Errorf("the gateway at %s: %s; clusterpass doctor finds the cause", u.url, plain(err))
			}
			data, err := clientcmd.Write(*u.contexts("", clusters))
			if err != nil {
				return err
			}
			_, err = cmd.OutOrStdout().Write(data)
			return err
		},
	}
	from.add(cmd)
	return cmd
}
