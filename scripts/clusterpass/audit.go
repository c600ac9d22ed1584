package main

import (
	"errors"
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"github.com/clusterpass/clusterpass/shared/audit/override"
)

const maxOverride = 7 * 24 * time.Hour

func (a *app) audit() *cobra.Command {
	cmd := &cobra.Command{Use: "audit", Short: "Operate the audit log", Args: cobra.NoArgs, RunE: help}
	cmd.AddCommand(a.auditOverride())
	return cmd
}

func (a *app) auditOverride() *cobra.Command {
	var (
		length time.Duration
		end    bool
		o      override.Override
	)
	cmd := &cobra.Command{
		Use: "override {--for DURATION --reason TEXT | --end}", Args: cobra.NoArgs,
		Short: "Allow requests while audit events cannot be recorded",
		Long: `Allow requests while audit events cannot be recorded, although CLUSTERPASS_AUDIT_FAIL_CLOSED would refuse them.
Gateways apply this within three seconds. The events of these requests are lost and counted.`,
		Example: `  clusterpass audit override --for 1h --reason "the webhook moves"
  clusterpass audit override --end`,
		RunE: func(cmd *cobra.Command, _ []string) error {
			switch {
			case end == (length != 0):
				return errors.New("want either --for or --end")
			case !end && (length < 0 || length > maxOverride):
				return fmt.Errorf("--for %s: want at most %s", length, maxOverride)
			case !end && o.Reason == "":
				return errors.New("want --reason, which explains the override to other operators")
			}
			r, err := a.registrar(cmd.Context())
			if err != nil {
				return err
			}
			o.Until = time.Now().Add(length).UTC().Truncate(time.Second)
			if err := override.Set(cmd.Context(), r.Objects, o); err != nil {
				return err
			}
			done := "requests continue without audit events until " + o.Until.Format(time.RFC3339)
			if end {
				done = "the override has ended"
			}
			_, err = fmt.Fprintln(cmd.OutOrStdout(), done)
			return err
		},
	}
	cmd.Flags().DurationVar(&length, "for", 0, "duration, such as 1h")
	cmd.Flags().StringVar(&o.Reason, "reason", "", "reason")
	cmd.Flags().BoolVar(&end, "end", false, "end the override")
	return cmd
}
