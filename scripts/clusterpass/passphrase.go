package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"runtime"
	"strings"
	"unicode/utf8"

	"github.com/spf13/cobra"
	"golang.org/x/term"

	"github.com/clusterpass/clusterpass/shared/backup"
	"github.com/clusterpass/clusterpass/shared/backup/kmskey"
	"github.com/clusterpass/clusterpass/shared/secrets"
)

const (
	passphraseVariable  = "CLUSTERPASS_BACKUP_PASSPHRASE"
	minPassphraseLength = 12
	maxPassphraseFile   = 64 << 10
)

// backupKey are the flags for the key of a backup. A passphrase is no flag, because other users of the machine can list
// arguments.
type backupKey struct{ passphraseFile, kmsKey string }

func (k *backupKey) add(cmd *cobra.Command) {
	cmd.Flags().StringVar(&k.passphraseFile, "passphrase-file", "",
		"file with the passphrase in its first line; default: "+passphraseVariable+", or the terminal")
	cmd.Flags().StringVar(&k.kmsKey, "kms-key", "",
		"symmetric key in AWS KMS instead of a passphrase: ARN, ID or alias; needs kms:Encrypt or kms:Decrypt")
	cmd.MarkFlagsMutuallyExclusive("passphrase-file", "kms-key")
}

// open returns the key. A passphrase for a new file must be long enough, and is asked twice.
func (k *backupKey) open(cmd *cobra.Command, isNew bool) (backup.Key, error) {
	if k.kmsKey != "" {
		return kmskey.Open(cmd.Context(), k.kmsKey)
	}
	passphrase, err := k.passphrase(cmd, isNew)
	if err != nil {
		return nil, fmt.Errorf("read the passphrase: %w", err)
	}
	switch n := utf8.RuneCount(passphrase.Reveal()); {
	case isNew && n < minPassphraseLength:
		return nil, fmt.Errorf("the passphrase has %d characters; use at least %d", n, minPassphraseLength)
	case n == 0:
		return nil, errors.New("the passphrase is empty; use that of the backup")
	}
	return backup.Passphrase(passphrase)
}

func (k *backupKey) passphrase(cmd *cobra.Command, isNew bool) (secrets.Value, error) {
	if k.passphraseFile != "" {
		return passphraseIn(k.passphraseFile)
	}
	if v := os.Getenv(passphraseVariable); v != "" {
		// Credential plugins and other programs that start later do not need it.
		if err := os.Unsetenv(passphraseVariable); err != nil {
			return secrets.Value{}, err
		}
		return secrets.NewValue([]byte(v)), nil
	}
	terminal, end, err := openTerminal(cmd.InOrStdin())
	if err != nil {
		return secrets.Value{}, fmt.Errorf("there is no terminal to ask for it: %w; use --passphrase-file, %s or --kms-key",
			err, passphraseVariable)
	}
	defer end()
	first, err := ask(cmd.Context(), terminal, cmd.ErrOrStderr(), "Passphrase of the backup: ")
	if err != nil || !isNew {
		return first, err
	}
	second, err := ask(cmd.Context(), terminal, cmd.ErrOrStderr(), "The same again: ")
	if err == nil && !first.Equal(second) {
		err = errors.New("the two passphrases differ; call again")
	}
	return first, err
}

func passphraseIn(path string) (secrets.Value, error) {
	file, err := os.Open(path)
	if err != nil {
		return secrets.Value{}, err
	}
	defer func() { _ = file.Close() }()
	text, err := io.ReadAll(io.LimitReader(file, maxPassphraseFile))
	if err != nil {
		return secrets.Value{}, err
	}
	first, _, _ := strings.Cut(string(text), "\n")
	return secrets.NewValue([]byte(strings.TrimSuffix(first, "\r"))), nil
}

// openTerminal returns standard input if it is a terminal, or the terminal of the process.
func openTerminal(stdin io.Reader) (file *os.File, end func(), err error) {
	if f, ok := stdin.(*os.File); ok && term.IsTerminal(int(f.Fd())) {
		return f, func() {}, nil
	}
	name := "/dev/tty"
	if runtime.GOOS == "windows" {
		name = "CONIN$"
	}
	if file, err = os.OpenFile(name, os.O_RDWR, 0); err != nil {
		return nil, nil, err
	}
	return file, func() { _ = file.Close() }, nil
}

// ask prints a prompt and reads a line without echo. When ctx ends, it restores the terminal. Its goroutine then ends
// with the program.
func ask(ctx context.Context, terminal *os.File, w io.Writer, prompt string) (secrets.Value, error) {
	fd := int(terminal.Fd())
	before, err := term.GetState(fd)
	if err != nil {
		return secrets.Value{}, err
	}
	_, _ = fmt.Fprint(w, prompt)
	defer func() { _, _ = fmt.Fprintln(w) }()
	type answer struct {
		line []byte
		err  error
	}
	answers := make(chan answer, 1)
	go func() {
		line, err := term.ReadPassword(fd)
		answers <- answer{line, err}
	}()
	select {
	case a := <-answers:
		return secrets.NewValue(a.line), a.err
	case <-ctx.Done():
		return secrets.Value{}, errors.Join(ctx.Err(), term.Restore(fd, before))
	}
}
