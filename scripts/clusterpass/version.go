package main

import (
	"context"
	"encoding/json"
	"fmt"
	"io"

	"github.com/spf13/cobra"
	apimachineryversion "k8s.io/apimachinery/pkg/version"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"github.com/clusterpass/clusterpass/shared/version"
)

const bridgeVersionPath = "/bridge/version"

func versionCommand() *cobra.Command {
	from, clientOnly := &userFlags{}, false
	cmd := &cobra.Command{
		Use: "version", Short: "Print the versions of this program, the gateway and its bridge", Args: cobra.NoArgs,
		Long: `Print the versions of this program, the gateway and its bridge. Without a kubeconfig for a gateway, or if
the gateway does not answer, only this program's version is printed. The exit code is 0 in each case.`,
		RunE: func(cmd *cobra.Command, _ []string) error {
			out := cmd.OutOrStdout()
			printVersion(out, "clusterpass", version.Get().String())
			if clientOnly {
				return nil
			}
			if err := printServerVersions(cmd.Context(), out, from); err != nil {
				_, _ = fmt.Fprintf(cmd.ErrOrStderr(), "no version of a gateway: %s\n", plain(err))
			}
			return nil
		},
	}
	from.add(cmd)
	cmd.Flags().BoolVar(&clientOnly, "client", false, "print only the version of this program")
	return cmd
}

func printVersion(w io.Writer, program, text string) {
	_, _ = fmt.Fprintf(w, "%-12s %s\n", program, text)
}

func printServerVersions(ctx context.Context, out io.Writer, from *userFlags) error {
	u, err := from.load()
	if err != nil {
		return err
	}
	cfg, err := u.config()
	if err != nil {
		return err
	}
	gateway, err := serverVersion(ctx, cfg, "/version")
	if err != nil {
		return err
	}
	printVersion(out, "gateway", describe(gateway))
	bridge, err := serverVersion(ctx, cfg, bridgeVersionPath)
	if err != nil {
		return err
	}
	printVersion(out, "bridge", describe(bridge))
	return nil
}

// serverVersion returns the version of the part of the gateway that answers at path.
func serverVersion(ctx context.Context, cfg *rest.Config, path string) (*apimachineryversion.Info, error) {
	ctx, cancel := context.WithTimeout(ctx, memberTimeout)
	defer cancel()
	client, err := kubernetes.NewForConfig(cfg)
	if err != nil {
		return nil, err
	}
	info := &apimachineryversion.Info{}
	data, err := client.RESTClient().Get().AbsPath(path).DoRaw(ctx)
	if err == nil {
		err = json.Unmarshal(data, info)
	}
	return info, err
}

func describe(info *apimachineryversion.Info) string {
	b := version.Build{
		Version: version.OfGateway(info.GitVersion), Revision: info.GitCommit, Date: info.BuildDate,
		GoVersion: info.GoVersion, Platform: info.Platform,
	}
	if b.Version == "" {
		return fmt.Sprintf("unknown, since the server reports only %q", info.GitVersion)
	}
	return b.String()
}
