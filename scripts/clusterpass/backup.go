package main

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"time"

	"github.com/google/uuid"
	"github.com/spf13/cobra"
	"golang.org/x/term"

	"github.com/clusterpass/clusterpass/shared/backup"
	"github.com/clusterpass/clusterpass/shared/filelock"
	"github.com/clusterpass/clusterpass/shared/version"
)

// standardStream is the argument for standard input or output instead of a file.
const standardStream = "-"

func (a *app) backup() *cobra.Command {
	key := &backupKey{}
	cmd := &cobra.Command{
		Use: "backup FILE", Short: "Write everything in the stores into one encrypted file", Args: oneArg,
		Long: `Write all objects and secrets of the stores into one encrypted file. clusterpass restore writes them into other
stores, also of another kind. So an installation can move between directories, Kubernetes and AWS.

The gateway may run. The objects in the file are those of one revision of the store. FILE is replaced when it is
complete, and only you can read it. With -, the file goes to standard output.

The file is encrypted to a passphrase of at least 12 characters, or with --kms-key to a key in AWS KMS. The passphrase
comes from the file in --passphrase-file, from ` + passphraseVariable + `, or from the terminal. Anyone who has the
file and its key can act as the gateway in every cluster.

The file does not contain keys in AWS KMS, the keys of the tunnel port, overrides of the audit log, and passes that have
expired. It also lacks what is in no store, such as the configuration and the certificates of servers.`,
		Example: `  clusterpass backup clusterpass.backup
  set -o pipefail
  clusterpass backup --store aws:clusterpass --kms-key alias/backups - |
    aws s3 cp - s3://backups/clusterpass-$(date +%F)`,
		RunE: func(cmd *cobra.Command, args []string) error {
			return a.runBackup(cmd, args[0], key)
		},
	}
	key.add(cmd)
	return cmd
}

func (a *app) runBackup(cmd *cobra.Command, file string, key *backupKey) error {
	ctx := cmd.Context()
	st, addr, err := a.openStores(ctx)
	if err != nil {
		return err
	}
	out := cmd.OutOrStdout()
	if f, ok := out.(*os.File); ok && file == standardStream && term.IsTerminal(int(f.Fd())) {
		return errors.New("write the backup: standard output is a terminal; name a file, or redirect the output")
	}
	with, err := key.open(cmd, true)
	if err != nil {
		return err
	}
	var (
		notes  backup.Notes
		counts backup.Counts
	)
	write := func(to io.Writer) error {
		encrypted, err := backup.Encrypt(to, with)
		if err != nil {
			return err
		}
		buffered := bufio.NewWriter(encrypted)
		w, err := backup.NewWriter(buffered, backup.Header{
			ID: uuid.NewString(), Created: time.Now().UTC().Truncate(time.Second), Program: version.Get().Version,
			Store: addr.String(),
		})
		if err != nil {
			return err
		}
		notes, err = backup.Save(ctx, st, w, backup.Options{Progress: progress(cmd.ErrOrStderr())})
		if err != nil {
			return err
		}
		counts = w.Counts
		return errors.Join(buffered.Flush(), encrypted.Close())
	}
	if file == standardStream {
		err = write(out)
	} else {
		err = replaceFile(file, write)
	}
	if err != nil {
		return fmt.Errorf("back up %s: %w", addr, err)
	}
	printNotes(cmd.ErrOrStderr(), notes)
	_, err = fmt.Fprintf(cmd.ErrOrStderr(), "%s is backed up: %d objects, %d secrets\n", addr, counts.Objects,
		counts.Secrets)
	return err
}

// replaceFile writes a file that only its owner can read. An existing file is replaced after write has succeeded. When
// replaceFile returns, the file survives a crash of the machine.
func replaceFile(path string, write func(io.Writer) error) (err error) {
	tmp, err := os.CreateTemp(filepath.Dir(path), ".clusterpass-backup-*") // mode 0600
	if err != nil {
		return err
	}
	defer func() {
		if err != nil {
			_ = tmp.Close()
			_ = os.Remove(tmp.Name())
		}
	}()
	if err = write(tmp); err != nil {
		return err
	}
	if err = errors.Join(tmp.Sync(), tmp.Close()); err != nil {
		return err
	}
	if err = os.Rename(tmp.Name(), path); err != nil {
		return err
	}
	dir, err := os.OpenRoot(filepath.Dir(path))
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, dir.Close()) }()
	return filelock.SyncDir(dir, ".")
}

// progress returns a backup.Progress that prints a line at most every other second.
func progress(w io.Writer) backup.Progress {
	printed := time.Now()
	return func(objects, secrets int) {
		if time.Since(printed) < 2*time.Second {
			return
		}
		printed = time.Now()
		_, _ = fmt.Fprintf(w, "%d objects and %d secrets so far\n", objects, secrets)
	}
}

func printNotes(w io.Writer, notes backup.Notes) {
	for _, text := range notes.Text() {
		_, _ = fmt.Fprintf(w, "note: %s\n", text)
	}
}
