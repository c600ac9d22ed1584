package main

import (
	"cmp"
	"context"
	"crypto/ed25519"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
	"text/tabwriter"
	"time"
	"unicode"

	"github.com/spf13/cobra"
	"golang.org/x/sync/errgroup"

	"github.com/clusterpass/clusterpass/shared/config"
	"github.com/clusterpass/clusterpass/shared/recording"
	"github.com/clusterpass/clusterpass/shared/recording/keys"
	"github.com/clusterpass/clusterpass/shared/recording/location"
	"github.com/clusterpass/clusterpass/shared/recording/replay"
)

// recordings has the flags of all commands of recording.
type recordings struct {
	app      *app
	location string
	keyFile  string
}

func (a *app) recording() *cobra.Command {
	r := &recordings{app: a}
	cmd := &cobra.Command{
		Use: "recording", Short: "List, play, verify and export recorded sessions", Args: cobra.NoArgs, RunE: help,
		Long: `Read the recordings of sessions, which RecordingPolicies choose. A recording is a chain of signed parts. The
commands play, verify and export verify each part before they use it.

The public keys that verify recordings are read from the installation's object store, or from a file in --key that
"clusterpass recording key" has written. With --key, no access to the stores is necessary.`,
	}
	cmd.PersistentFlags().StringVar(&r.location, "recordings", os.Getenv("CLUSTERPASS_RECORDINGS"),
		"location of the recordings: dir:PATH or s3:BUCKET[/PREFIX] (default: with dir:PATH as the store, PATH/recordings)")
	cmd.PersistentFlags().StringVar(&r.keyFile, "key", "", "PEM file with the public keys that verify recordings")
	cmd.AddCommand(r.list(), r.play(), r.verify(), r.export(), r.key())
	return cmd
}

func (r *recordings) open(ctx context.Context) (location.Store, error) {
	var l location.Location
	if err := l.Decode(r.location); err != nil {
		return nil, &config.Error{Variable: "CLUSTERPASS_RECORDINGS", Problem: err.Error(), Example: "s3:recordings"}
	}
	if l.Kind == "" {
		addr, err := r.app.address()
		if err != nil {
			return nil, err
		}
		if addr.Kind != location.Dir {
			return nil, errors.New("find the recordings: their location is not known; set --recordings, or " +
				"CLUSTERPASS_RECORDINGS, as in the bridge's configuration")
		}
		l = location.In(addr.Where)
	}
	return location.OpenExisting(ctx, l)
}

func (r *recordings) keys(ctx context.Context) ([]ed25519.PublicKey, error) {
	if r.keyFile != "" {
		return readPublicKeys(r.keyFile)
	}
	st, addr, err := r.app.openStores(ctx)
	if err != nil {
		return nil, err
	}
	public, err := keys.Published(ctx, st.Objects)
	if err == nil && len(public) == 0 {
		err = fmt.Errorf("verify recordings: %s has no public key of recordings; name the store of the gateway that "+
			"recorded with --store, or a file with its keys with --key", addr)
	}
	return public, err
}

func readPublicKeys(file string) ([]ed25519.PublicKey, error) {
	data, err := os.ReadFile(file)
	if err != nil {
		return nil, err
	}
	var public []ed25519.PublicKey
	for block, rest := pem.Decode(data); block != nil; block, rest = pem.Decode(rest) {
		parsed, err := x509.ParsePKIXPublicKey(block.Bytes)
		key, ok := parsed.(ed25519.PublicKey)
		if block.Type != publicKeyBlock || err != nil || !ok {
			return nil, fmt.Errorf("--key %s: want only public keys of Ed25519, as clusterpass recording key prints them", file)
		}
		public = append(public, key)
	}
	if len(public) == 0 {
		return nil, fmt.Errorf("--key %s: it contains no public key in PEM", file)
	}
	return public, nil
}

const publicKeyBlock = "PUBLIC KEY"

func (r *recordings) key() *cobra.Command {
	cmd := &cobra.Command{
		Use: "key", Short: "Print the public keys that verify recordings", Args: cobra.NoArgs,
		Long: `Print the public keys that verify recordings, in PEM. Keep a copy where administrators of the gateway cannot
change it: with --key it proves recordings even if the object store was changed.`,
		Example: "  clusterpass recording key > recordings.pem",
		RunE: func(cmd *cobra.Command, _ []string) error {
			public, err := r.keys(cmd.Context())
			if err != nil {
				return err
			}
			for _, k := range public {
				der, err := x509.MarshalPKIXPublicKey(k)
				if err != nil {
					return err
				}
				block := &pem.Block{Type: publicKeyBlock, Bytes: der}
				if err := pem.Encode(cmd.OutOrStdout(), block); err != nil {
					return err
				}
			}
			return nil
		},
	}
	cmd.AddCommand(r.rotateKey())
	return cmd
}

func (r *recordings) rotateKey() *cobra.Command {
	return &cobra.Command{
		Use: "rotate", Short: "Replace the private key that signs recordings", Args: cobra.NoArgs,
		Long: `Replace the private key that signs recordings. Each bridge signs with the new key after it was restarted. The
public keys of the older keys stay published, so that earlier recordings can still be verified. Copies of the
output of "clusterpass recording key" need the new key, too.`,
		Example: `  clusterpass recording key rotate
  clusterpass recording key > recordings.pem`,
		RunE: func(cmd *cobra.Command, _ []string) error {
			st, _, err := r.app.openStores(cmd.Context())
			if err != nil {
				return err
			}
			id, err := keys.Rotate(cmd.Context(), st.Secrets, st.Objects)
			if err != nil {
				return err
			}
			_, err = fmt.Fprintf(cmd.OutOrStdout(), "key %s signs recordings after the bridges were restarted\n", id)
			return err
		},
	}
}

// listFilter selects recordings by their headers.
type listFilter struct {
	user, cluster, namespace, day string
	limit                         int
}

func (f *listFilter) matches(i *recording.Info) bool {
	return (f.user == "" || f.user == i.User) && (f.cluster == "" || f.cluster == i.Cluster) &&
		(f.namespace == "" || f.namespace == i.Namespace)
}

func (r *recordings) list() *cobra.Command {
	var f listFilter
	cmd := &cobra.Command{
		Use: "list", Aliases: []string{"ls"}, Short: "List the newest recordings", Args: cobra.NoArgs,
		Long: `List the newest recordings, from their first and last parts. STATE is "complete" if there is an end, and
otherwise "no end": the session still runs, or the recording was cut. Only verify checks signatures.`,
		Example: `  clusterpass recording list
  clusterpass recording list --day 2026-11-24 --user ann`,
		RunE: func(cmd *cobra.Command, _ []string) error { return r.runList(cmd, &f) },
	}
	cmd.Flags().StringVar(&f.user, "user", "", "user whose sessions are listed")
	cmd.Flags().StringVar(&f.cluster, "cluster", "", "cluster of the sessions")
	cmd.Flags().StringVar(&f.namespace, "namespace", "", "namespace of the sessions")
	cmd.Flags().StringVar(&f.day, "day", "", "day of the start in UTC, such as 2026-11-24, or its month: 2026-11")
	cmd.Flags().IntVar(&f.limit, "limit", 50, "maximum number of recordings; 0 for all")
	return cmd
}

func (r *recordings) runList(cmd *cobra.Command, f *listFilter) error {
	store, err := r.open(cmd.Context())
	if err != nil {
		return err
	}
	defer func() { _ = store.Close() }()
	tw := tabwriter.NewWriter(cmd.OutOrStdout(), 0, 0, 3, ' ', 0)
	_, _ = fmt.Fprintln(tw, "ID\tSTART\tUSER\tKIND\tCLUSTER\tNAMESPACE\tPOD\tCOMMAND\tSTATE")
	printed := 0
	for ids, err := range recording.Newest(cmd.Context(), store, strings.ReplaceAll(f.day, "-", "")) {
		if err != nil {
			return err
		}
		for batch := range slices.Chunk(ids, listBatch) {
			for i, s := range summaries(cmd.Context(), store, batch) {
				if s.err != nil {
					_, _ = fmt.Fprintf(cmd.ErrOrStderr(), "warning: %s: %v\n", batch[i], s.err)
				} else if f.matches(&s.Info) {
					printSummary(tw, batch[i], s.Summary)
					if printed++; printed == f.limit {
						return tw.Flush()
					}
				}
			}
		}
	}
	return tw.Flush()
}

const (
	listBatch       = 64
	listConcurrency = 16
)

type summary struct {
	*recording.Summary
	err error
}

// summaries reads the summaries of recordings at the same time.
func summaries(ctx context.Context, store recording.Store, ids []string) []summary {
	out := make([]summary, len(ids))
	var g errgroup.Group
	g.SetLimit(listConcurrency)
	for i, id := range ids {
		g.Go(func() error {
			out[i].Summary, out[i].err = recording.Summarize(ctx, store, id)
			if out[i].err == nil && out[i].ID != id {
				out[i].err = fmt.Errorf("its header is of recording %.64q", out[i].ID)
			}
			return nil
		})
	}
	_ = g.Wait() // the errors are in the results
	return out
}

func printSummary(w io.Writer, id string, s *recording.Summary) {
	state := "complete"
	if !s.Complete {
		state = "no end"
	}
	_, _ = fmt.Fprintf(w, "%s\t%s\t%s\t%s\t%s\t%s\t%s\t%s\t%s\n", id, s.Start.UTC().Format(time.RFC3339), cell(s.Caller()),
		cell(s.Kind), cell(s.Cluster), cell(s.Namespace), cell(s.Pod), cell(strings.Join(s.Command, " ")), state)
}

// cell returns text for a table: without control characters, and not too long. Users choose commands.
func cell(s string) string {
	const maxCell = 40
	s = strings.Map(func(r rune) rune {
		if !unicode.IsPrint(r) {
			return '\uFFFD'
		}
		return r
	}, s)
	if r := []rune(s); len(r) > maxCell {
		s = string(r[:maxCell-1]) + "…"
	}
	return cmp.Or(s, "-")
}

func (r *recordings) verify() *cobra.Command {
	var wantEnd bool
	cmd := &cobra.Command{
		Use: "verify ID...", Short: "Verify that recordings are complete and unchanged",
		Long: `Verify that recordings have all their parts, unchanged and in their order, and an end. Each fault is printed.
The command goes on after a recording that it cannot read, and fails unless all are complete. The
recording of a session that still runs has no end. With --end=false, a recording that only lacks its end
does not fail.`,
		Example: `  clusterpass recording verify 20261124T132430Z-3qmzq5sbpbhv6b2ovs2u2wmm7e
  clusterpass recording verify --recordings dir:copy --key recordings.pem 20261124T132430Z-3qmzq5sbpbhv6b2ovs2u2wmm7e`,
		Args: cobra.MinimumNArgs(1), ValidArgsFunction: r.ids,
		RunE: func(cmd *cobra.Command, args []string) error {
			store, public, err := r.openVerified(cmd.Context())
			if err != nil {
				return err
			}
			defer func() { _ = store.Close() }()
			bad := 0
			for _, id := range args {
				report, err := recording.Verify(cmd.Context(), store, id, recording.NewKeys(public...))
				if cmd.Context().Err() != nil {
					return err
				}
				if err != nil {
					bad++
					_, _ = fmt.Fprintf(cmd.OutOrStdout(), "%s: not readable: %v\n", id, err)
					continue
				}
				if !report.Complete() && (wantEnd || !report.IsCut()) {
					bad++
				}
				printReport(cmd.OutOrStdout(), id, report)
			}
			if bad > 0 {
				return fmt.Errorf("verify recordings: %d of %d are not complete", bad, len(args))
			}
			return nil
		},
	}
	cmd.Flags().BoolVar(&wantEnd, "end", true, "fail if a recording has no end; its session may still run")
	return cmd
}

func (r *recordings) openVerified(ctx context.Context) (location.Store, []ed25519.PublicKey, error) {
	public, err := r.keys(ctx)
	if err != nil {
		return nil, nil, err
	}
	store, err := r.open(ctx)
	return store, public, err
}

func printReport(w io.Writer, id string, r *recording.Report) {
	state := "complete and unchanged"
	switch {
	case r.IsCut():
		state = "not complete"
	case !r.Complete():
		state = "damaged"
	}
	_, _ = fmt.Fprintf(w, "%s: %s: %d parts, %d bytes, %s\n", id, state, r.Parts, r.Size,
		r.Duration.Round(time.Millisecond))
	if i := r.Info; i != nil {
		_, _ = fmt.Fprintf(w, "  %s by %s at %s, request %s\n", cell(i.Title()), cell(i.Caller()),
			i.Start.UTC().Format(time.RFC3339), cell(i.RequestID))
	}
	for _, f := range r.Faults {
		_, _ = fmt.Fprintf(w, "  %v\n", &f)
	}
}

func (r *recordings) ids(cmd *cobra.Command, _ []string, toComplete string) ([]string, cobra.ShellCompDirective) {
	store, err := r.open(cmd.Context())
	if err != nil {
		return nil, cobra.ShellCompDirectiveError
	}
	defer func() { _ = store.Close() }()
	ids, err := store.List(cmd.Context(), toComplete)
	if err != nil {
		return nil, cobra.ShellCompDirectiveError
	}
	return ids, cobra.ShellCompDirectiveNoFileComp
}

func (r *recordings) export() *cobra.Command {
	var options replay.ExportOptions
	cmd := &cobra.Command{
		Use: "export ID FILE", Short: "Write a recording as one file for players of asciicast",
		Long: `Write a recording as one file in asciicast v2, which asciinema and other players show. FILE is replaced when
it is complete, and only you can read it. With -, the file goes to standard output.

The file is for viewing: it has no signatures. Standard error is part of its output, bytes that are no UTF-8 are
replaced, and the exit status is a marker. A recording without an end is written with a warning.

The output has all that the session printed. A terminal in which the file is played obeys it: a recorded user can set
its title and its clipboard, and make it answer. With --filter, the output has only what "play" shows.`,
		Example: `  clusterpass recording export 20261124T132430Z-3qmzq5sbpbhv6b2ovs2u2wmm7e session.cast
  clusterpass recording export --filter 20261124T132430Z-3qmzq5sbpbhv6b2ovs2u2wmm7e safe.cast`,
		Args: cobra.ExactArgs(2), ValidArgsFunction: r.firstID,
		RunE: func(cmd *cobra.Command, args []string) error {
			store, public, err := r.openVerified(cmd.Context())
			if err != nil {
				return err
			}
			defer func() { _ = store.Close() }()
			reader, err := recording.Open(cmd.Context(), store, args[0], recording.NewKeys(public...))
			if err != nil {
				return err
			}
			write := func(w io.Writer) error {
				return warnIfCut(cmd.ErrOrStderr(), replay.Export(cmd.Context(), w, reader, options))
			}
			if args[1] == standardStream {
				return write(cmd.OutOrStdout())
			}
			return replaceFile(args[1], write)
		},
	}
	cmd.Flags().BoolVar(&options.Filter, "filter", false,
		"remove from the output what would make a terminal answer, or change more than its screen, as play does")
	return cmd
}

func (r *recordings) firstID(
	cmd *cobra.Command, args []string, toComplete string,
) ([]string, cobra.ShellCompDirective) {
	if len(args) > 0 {
		return nil, cobra.ShellCompDirectiveDefault
	}
	return r.ids(cmd, args, toComplete)
}

// warnIfCut prints a warning instead of the error that a recording has no end.
func warnIfCut(w io.Writer, err error) error {
	var fault *recording.Fault
	if errors.As(err, &fault) && fault.Kind == recording.Cut {
		_, err = fmt.Fprintf(w, "warning: %v\n", fault)
	}
	return err
}
