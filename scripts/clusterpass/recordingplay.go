package main

import (
	"context"
	"fmt"
	"io"
	"os"

	"github.com/spf13/cobra"
	"golang.org/x/term"

	"github.com/clusterpass/clusterpass/shared/recording"
	"github.com/clusterpass/clusterpass/shared/recording/replay"
)

func (r *recordings) play() *cobra.Command {
	var (
		p          replay.Player
		unverified bool
	)
	cmd := &cobra.Command{
		Use: "play ID", Short: "Play a recording in the terminal", Args: oneArg, ValidArgsFunction: r.firstID,
		Long: `Play the output of a recording with its pauses. In a terminal, these keys control it:

  space        pause, or go on
  right, left  seek 10 seconds
  + and -      double or halve the speed
  q            quit

Sequences that would make your terminal answer, or change more than its screen, are removed. Playing stops before a
part that was changed.`,
		Example: "  clusterpass recording play 20261124T132430Z-3qmzq5sbpbhv6b2ovs2u2wmm7e --speed 2 --max-pause 2s",
		RunE: func(cmd *cobra.Command, args []string) error {
			if p.Speed < 0 || p.MaxPause < 0 || p.From < 0 {
				return fmt.Errorf("play recording %s: --speed, --max-pause and --from must not be negative", args[0])
			}
			return r.runPlay(cmd, args[0], &p, unverified)
		},
	}
	cmd.Flags().Float64Var(&p.Speed, "speed", 1, "factor of the speed; 0 for no pauses")
	cmd.Flags().DurationVar(&p.MaxPause, "max-pause", 0, "maximum pause of the recording, such as 2s; 0 for no limit")
	cmd.Flags().DurationVar(&p.From, "from", 0, "time from the start, such as 1m30s, until which output is shown at once")
	cmd.Flags().BoolVar(&unverified, "unverified", false, "play without verifying, also what was changed")
	return cmd
}

func (r *recordings) runPlay(cmd *cobra.Command, id string, p *replay.Player, unverified bool) error {
	ctx := cmd.Context()
	store, err := r.open(ctx)
	if err != nil {
		return err
	}
	defer func() { _ = store.Close() }()
	if unverified {
		p.Open = func(ctx context.Context) (*recording.Reader, error) {
			return recording.OpenUnverified(ctx, store, id)
		}
	} else {
		public, err := r.keys(ctx)
		if err != nil {
			return err
		}
		p.Open = func(ctx context.Context) (*recording.Reader, error) {
			return recording.Open(ctx, store, id, recording.NewKeys(public...))
		}
	}
	p.Out = cmd.OutOrStdout()
	restore, err := attachTerminal(cmd, p)
	if err != nil {
		return err
	}
	err = p.Play(ctx)
	restore()
	return warnIfCut(cmd.ErrOrStderr(), err)
}

// attachTerminal lets keys control the player if it runs in a terminal. The caller calls restore afterwards.
func attachTerminal(cmd *cobra.Command, p *replay.Player) (restore func(), err error) {
	in, isFile := cmd.InOrStdin().(*os.File)
	out, isOutFile := p.Out.(*os.File)
	if !isOutFile || !term.IsTerminal(int(out.Fd())) {
		return func() {}, nil
	}
	reset := func() { _, _ = io.WriteString(out, replay.Reset) }
	if !isFile || !term.IsTerminal(int(in.Fd())) {
		return reset, nil
	}
	before, err := term.MakeRaw(int(in.Fd()))
	if err != nil {
		return nil, err
	}
	keys := make(chan replay.Key)
	done := make(chan struct{})
	p.Keys, p.NewLines = keys, true
	go readKeys(in, keys, done) // ends with the next byte after done, or with the process
	return func() {
		close(done)
		reset()
		_ = term.Restore(int(in.Fd()), before)
	}, nil
}

// readKeys sends the keys in a terminal's input until it ends or done is closed.
func readKeys(in io.Reader, keys chan<- replay.Key, done <-chan struct{}) {
	buf := make([]byte, 64)
	for {
		n, err := in.Read(buf)
		if err != nil {
			return
		}
		for _, k := range replay.ParseKeys(buf[:n]) {
			select {
			case keys <- k:
			case <-done:
				return
			}
		}
		select {
		case <-done:
			return
		default:
		}
	}
}
