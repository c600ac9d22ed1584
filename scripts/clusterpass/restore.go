package main

import (
	"fmt"
	"io"
	"os"

	"github.com/spf13/cobra"

	"github.com/clusterpass/clusterpass/shared/backup"
)

func (a *app) restore() *cobra.Command {
	key := &backupKey{}
	cmd := &cobra.Command{
		Use: "restore FILE", Short: "Write a file of clusterpass backup into new stores", Args: oneArg,
		Long: `Write a file of clusterpass backup into the stores in --store. With -, the file comes from standard input.

The stores must be new: with nothing, or with only what clusterpass init and a gateway write when they start. On AWS,
deploy the template first; for an emulator of AWS, run clusterpass init first. Let no gateway use the stores before the
restore has ended.

The whole file is decrypted and checked before anything is written. If the command is interrupted, run it again: it
continues. Objects get new revisions. Everything else stays as it was, byte for byte.

Credentials continue to work if the gateway keeps its URL and its CA of client certificates.`,
		Example: `  clusterpass restore --store dir:/var/lib/clusterpass clusterpass.backup
  aws s3 cp s3://backups/clusterpass-2026-11-24 - |
    clusterpass restore --store aws:clusterpass --kms-key alias/backups -`,
		RunE: func(cmd *cobra.Command, args []string) error {
			return a.runRestore(cmd, args[0], key)
		},
	}
	key.add(cmd)
	return cmd
}

func (a *app) runRestore(cmd *cobra.Command, name string, key *backupKey) error {
	addr, err := a.address()
	if err != nil {
		return err
	}
	file, size, end, err := openBackup(cmd.InOrStdin(), name)
	if err != nil {
		return err
	}
	defer end()
	with, err := key.open(cmd, false)
	if err != nil {
		return err
	}
	content, err := backup.Decrypt(file, size, with)
	if err != nil {
		return err
	}
	verified, err := backup.Verify(content)
	if err != nil {
		return err
	}
	st, _, err := a.openStores(cmd.Context())
	if err != nil {
		return err
	}
	res, err := verified.Restore(cmd.Context(), st, backup.Options{Progress: progress(cmd.ErrOrStderr())})
	if err != nil {
		return fmt.Errorf("restore into %s: %w", addr, err)
	}
	if res.Resumed {
		_, _ = fmt.Fprintln(cmd.ErrOrStderr(), "an interrupted restore of the same backup was continued")
	}
	printNotes(cmd.ErrOrStderr(), verified.Notes)
	_, err = fmt.Fprintf(cmd.OutOrStdout(), "%s is restored: %d objects, %d secrets, from the backup of %s of %s\n", addr,
		res.Counts.Objects, res.Counts.Secrets, verified.Header.Store, verified.Header.Created.Format("2006-01-02 15:04:05Z"))
	return err
}

// openBackup opens the file with that name. It copies standard input into a temporary file, because a restore reads the
// file twice. The copy is encrypted, too. The caller must call end, which closes the file and removes the copy.
func openBackup(stdin io.Reader, name string) (file *os.File, size int64, end func(), err error) {
	if name != standardStream {
		if file, err = os.Open(name); err != nil {
			return nil, 0, nil, err
		}
		info, err := file.Stat()
		if err != nil {
			_ = file.Close()
			return nil, 0, nil, err
		}
		return file, info.Size(), func() { _ = file.Close() }, nil
	}
	if file, err = os.CreateTemp("", "clusterpass-restore-*"); err != nil { // mode 0600
		return nil, 0, nil, err
	}
	end = func() { _, _ = file.Close(), os.Remove(file.Name()) }
	if size, err = io.Copy(file, stdin); err != nil {
		end()
		return nil, 0, nil, fmt.Errorf("read the backup from standard input: %w", err)
	}
	return file, size, end, nil
}
