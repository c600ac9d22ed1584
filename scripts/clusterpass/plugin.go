package main

import (
	"path/filepath"

	"github.com/spf13/cobra"
)

const (
	pluginName   = "kubectl-clusterpass"
	completeName = "kubectl_complete-clusterpass"
)

func named(cmd *cobra.Command, argv []string) *cobra.Command {
	switch filepath.Base(argv[0]) {
	case pluginName:
		cmd.Annotations = map[string]string{cobra.CommandDisplayNameAnnotation: "kubectl clusterpass"}
	case completeName:
		cmd.SetArgs(append([]string{cobra.ShellCompRequestCmd}, argv[1:]...))
	}
	return cmd
}

func storedNames(list func(cmd *cobra.Command) ([]string, error)) cobra.CompletionFunc {
	return func(cmd *cobra.Command, args []string, _ string) ([]string, cobra.ShellCompDirective) {
		if len(args) > 0 {
			return nil, cobra.ShellCompDirectiveNoFileComp
		}
		names, err := list(cmd)
		if err != nil {
			return nil, cobra.ShellCompDirectiveError
		}
		return names, cobra.ShellCompDirectiveNoFileComp
	}
}

func (a *app) clusterNames(cmd *cobra.Command) ([]string, error) {
	r, err := a.registrar(cmd.Context())
	if err != nil {
		return nil, err
	}
	all, err := r.Clusters(cmd.Context())
	names := make([]string, len(all))
	for i := range all {
		names[i] = all[i].Name
	}
	return names, err
}

func (a *app) passNames(cmd *cobra.Command) ([]string, error) {
	issuer, err := a.issuer(cmd.Context())
	if err != nil {
		return nil, err
	}
	var names []string
	all, err := issuer.List(cmd.Context(), func(name string, _ error) { names = append(names, name) })
	for i := range all {
		names = append(names, all[i].Name)
	}
	return names, err
}
