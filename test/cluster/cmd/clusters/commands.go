package main

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"

	"github.com/clusterpass/clusterpass/test/cluster"
	"github.com/clusterpass/clusterpass/test/cluster/build"
	"github.com/clusterpass/clusterpass/test/cluster/keeper"
	"github.com/clusterpass/clusterpass/test/cluster/load"
	"github.com/clusterpass/clusterpass/test/cluster/ownership"
)

// program is how a person types this command.
const program = "go run ./test/cluster/cmd/clusters"

const callTimeout = 30 * time.Second

func newCommand() *cobra.Command {
	root := &cobra.Command{
		Use:   "clusters",
		Short: "Start and stop real Kubernetes clusters on this machine",
		Long: `Start and stop real Kubernetes clusters on this machine, for trying things out.

Each cluster is a real etcd, kube-apiserver, kube-controller-manager, kube-scheduler and kwok, and one process kubelet,
which runs the containers of pods as local processes. Everything listens on loopback. The programs are built once
from the Go module proxy into the user's cache (about 6 minutes on two cores), or taken from the directory that
` + build.EnvBinaries + ` names. Linux only; run it inside the Clusterpass checkout.`,
		Example: `  ` + program + ` up --clusters member1,member2
  export KUBECONFIG=$(` + program + ` kubeconfig --path)
  kubectl --context member2 get nodes
  ` + program + ` load member1 --pods 10000
  ` + program + ` down`,
		SilenceUsage:  true,
		SilenceErrors: true,
	}
	root.SetOut(os.Stdout) // else Printf means standard error
	set := root.PersistentFlags().String("set", "dev", "name of the set of clusters; sets run side by side")
	root.AddCommand(newUpCommand(set), newDownCommand(set), newKubeconfigCommand(set), newListCommand(),
		newLoadCommand(set), newBuildCommand(), newKeepCommand())
	return root
}

func newUpCommand(set *string) *cobra.Command {
	var o cluster.Options
	var foreground bool
	c := &cobra.Command{
		Use:   "up",
		Short: "Start a set of clusters and return when they are ready",
		Long: `Start a set of clusters and return when they are ready. They run on in the background until down; with
--foreground they stop, and leave nothing behind, when this command does, however it ends.`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			o.Run, o.Progress = *set, cmd.ErrOrStderr()
			s, err := cluster.New(cmd.Context(), o)
			if err != nil {
				return err
			}
			next(cmd, *set, s, foreground)
			if !foreground {
				return s.Detach()
			}
			<-cmd.Context().Done()
			return s.Stop()
		},
	}
	c.Flags().StringSliceVar(&o.Clusters, "clusters", []string{"member1", "member2"}, "names of the clusters, DNS labels")
	c.Flags().StringArrayVar(&o.APIServerArgs, "apiserver-arg", nil,
		"one more flag for each kube-apiserver, such as --v=4 (repeatable)")
	c.Flags().BoolVar(&o.NoKubelet, "no-kubelet", false, "run no process kubelet; pods stay pending")
	c.Flags().StringVar(&o.LogDir, "log-dir", "",
		"keep the components' logs below this directory (default: deleted with the clusters)")
	c.Flags().BoolVar(&foreground, "foreground", false, "stay, and stop the clusters on ctrl-C")
	return c
}

func next(cmd *cobra.Command, set string, s *cluster.Set, foreground bool) {
	flag := ""
	if set != "dev" {
		flag = " --set " + set
	}
	cmd.Printf("\n  export KUBECONFIG=%s\n", s.KubeconfigFile())
	for _, c := range s.Clusters() {
		cmd.Printf("  kubectl --context %s get nodes\n", c.Name())
	}
	if foreground {
		cmd.Printf("\nStop with ctrl-C.\n")
		return
	}
	cmd.Printf("\nStop with: %s down%s\n", program, flag)
}

func newDownCommand(set *string) *cobra.Command {
	return &cobra.Command{
		Use:   "down",
		Short: "Stop a set of clusters and remove every trace of it",
		Args:  cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			// Remove the remains of a crash, too. A crashed set has nothing else.
			if err := ownership.Sweep(); err != nil {
				return err
			}
			dir := filepath.Join(ownership.Root(), *set)
			if _, err := os.Stat(dir); os.IsNotExist(err) {
				cmd.Printf("no clusters of the set %q run\n", *set)
				return nil
			}
			ctx, cancel := context.WithTimeout(cmd.Context(), 3*time.Minute)
			defer cancel()
			if err := keeper.NewClient(dir).Stop(ctx); err != nil {
				return err
			}
			cmd.Printf("the clusters of the set %q are gone\n", *set)
			return nil
		},
	}
}

func newKubeconfigCommand(set *string) *cobra.Command {
	var path bool
	c := &cobra.Command{
		Use:   "kubeconfig [NAME]",
		Short: "Print the kubeconfig of a cluster, or of all clusters of the set",
		Long: `Print the administrator's kubeconfig of the cluster NAME; without NAME, one with a context for each cluster of
the set, named as the cluster. It holds inline data only, so it works wherever it is copied to.`,
		Args: cobra.MaximumNArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			state, err := stateOf(cmd.Context(), *set)
			if err != nil {
				return err
			}
			file := filepath.Join(state.Dir, "kubeconfig")
			if len(args) == 1 {
				one, err := find(state, args[0])
				if err != nil {
					return err
				}
				file = one.Kubeconfig
			}
			if path {
				cmd.Println(file)
				return nil
			}
			text, err := os.ReadFile(file)
			if err != nil {
				return fmt.Errorf("read the kubeconfig: %w", err)
			}
			_, err = cmd.OutOrStdout().Write(text)
			return err
		},
	}
	c.Flags().BoolVar(&path, "path", false, "print the path of the file instead; it lives as long as the clusters do")
	return c
}

func newListCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "list",
		Short: "List all clusters that run on this machine for this user, those of tests too",
		Args:  cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			runs, err := ownership.Runs()
			if err != nil {
				return err
			}
			rows := []string{"SET\tCLUSTER\tSERVER\tCOMPONENTS"}
			for _, dir := range runs {
				ctx, cancel := context.WithTimeout(cmd.Context(), callTimeout)
				state, err := keeper.NewClient(dir).State(ctx)
				cancel()
				if err != nil {
					rows = append(rows, filepath.Base(dir)+"\t-\t-\tno answer (starting, ending or dead)")
					continue
				}
				for _, c := range state.Clusters {
					rows = append(rows, strings.Join([]string{state.Run, c.Name, c.Server, components(c)}, "\t"))
				}
			}
			table := tabwriter.NewWriter(cmd.OutOrStdout(), 0, 0, 2, ' ', 0)
			if _, err := table.Write([]byte(strings.Join(rows, "\n") + "\n")); err != nil {
				return err
			}
			return table.Flush()
		},
	}
}

func components(c keeper.ClusterState) string {
	var not []string
	for _, one := range c.Components {
		if one.State != "running" {
			not = append(not, one.Name+": "+one.State)
		}
	}
	if len(not) == 0 {
		return "all running"
	}
	return strings.Join(not, "; ")
}

func newLoadCommand(set *string) *cobra.Command {
	var o load.Options
	c := &cobra.Command{
		Use:   "load NAME",
		Short: "Fill a cluster with running pods on fake nodes",
		Long: `Fill the cluster NAME with running pods on fake nodes. They execute nothing and have no logs. Another run
creates only missing pods. "kubectl delete namespace load" removes the pods.`,
		Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			state, err := stateOf(cmd.Context(), *set)
			if err != nil {
				return err
			}
			if _, err := find(state, args[0]); err != nil {
				return err
			}
			s, err := cluster.Open(cmd.Context(), *set)
			if err != nil {
				return err
			}
			o.Progress = cmd.ErrOrStderr()
			return load.Run(cmd.Context(), s.Cluster(args[0]).RESTConfig(), o)
		},
	}
	c.Flags().IntVar(&o.Pods, "pods", 1000, "how many pods")
	c.Flags().IntVar(&o.Nodes, "nodes", 0, "how many fake nodes (default: one for each 100 pods)")
	c.Flags().StringVar(&o.Namespace, "namespace", "load", "namespace of the pods; made where there is none")
	return c
}

func newBuildCommand() *cobra.Command {
	var e2e bool
	cmd := &cobra.Command{
		Use:   "build",
		Short: "Build the programs of the clusters into the user's cache, and print where they are",
		Args:  cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			b, err := build.Ensure(cmd.Context(), cmd.ErrOrStderr())
			if err != nil {
				return err
			}
			if e2e {
				if _, err := build.EnsureE2E(cmd.Context(), cmd.ErrOrStderr()); err != nil {
					return err
				}
			}
			cmd.Println(b.Dir)
			return nil
		},
	}
	cmd.Flags().BoolVar(&e2e, "e2e", false,
		"also build "+build.E2E+", Kubernetes' end-to-end tests, for make test-conformance")
	return cmd
}

func stateOf(ctx context.Context, set string) (*keeper.State, error) {
	dir := filepath.Join(ownership.Root(), set)
	if _, err := os.Stat(dir); os.IsNotExist(err) {
		return nil, fmt.Errorf("no clusters of the set %q run: start them with %s up", set, program)
	}
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	return keeper.NewClient(dir).State(ctx)
}

func find(state *keeper.State, name string) (*keeper.ClusterState, error) {
	var names []string
	for i, c := range state.Clusters {
		if c.Name == name {
			return &state.Clusters[i], nil
		}
		names = append(names, c.Name)
	}
	return nil, fmt.Errorf("the set %q has no cluster %q, only %s", state.Run, name, strings.Join(names, ", "))
}
