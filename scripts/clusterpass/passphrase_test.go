package main

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"io"
	"os"
	"strings"
	"testing"

	"github.com/creack/pty"
)

// TestPassphraseFromTerminal fails if a typing error encrypts a backup, or if a passphrase is shown in a message.
func TestPassphraseFromTerminal(t *testing.T) {
	t.Setenv(passphraseVariable, "")
	for name, tt := range map[string]struct {
		isNew bool
		lines []string
		want  string
	}{
		"restore": {false, []string{"correct horse battery"}, ""},
		"backup":  {true, []string{"correct horse battery", "correct horse battery"}, ""},
		"typo":    {true, []string{"correct horse battery", "correct horse batery"}, "differ"},
		"short":   {true, []string{"short", "short"}, "at least 12"},
		"umlauts": {true, []string{"ÄÖÜäöüß", "ÄÖÜäöüß"}, "has 7 characters; use at least 12"},
		"empty":   {false, []string{""}, "the passphrase is empty"},
	} {
		t.Run(name, func(t *testing.T) {
			user, terminal, err := pty.Open()
			if err != nil {
				t.Fatal(err)
			}
			defer func() { _, _ = user.Close(), terminal.Close() }()
			prompts, prompted := io.Pipe()
			cmd := root()
			cmd.SetContext(t.Context())
			cmd.SetIn(terminal)
			cmd.SetErr(prompted)
			var shown bytes.Buffer
			typed := make(chan error, 1)
			go func() {
				r := bufio.NewReader(io.TeeReader(prompts, &shown))
				for _, line := range tt.lines {
					if _, err := r.ReadString(':'); err != nil {
						typed <- err
						return
					}
					if _, err := io.WriteString(user, line+"\n"); err != nil {
						typed <- err
						return
					}
				}
				_, err := io.Copy(io.Discard, r)
				typed <- err
			}()
			_, err = (&backupKey{}).open(cmd, tt.isNew)
			if err != nil != (tt.want != "") || err != nil && !strings.Contains(err.Error(), tt.want) {
				t.Errorf("%v, want %q", err, tt.want)
			}
			_ = prompted.Close()
			if err := <-typed; err != nil {
				t.Error(err)
			}
			if strings.Contains(shown.String(), "horse") {
				t.Errorf("the passphrase is shown: %s", shown.String())
			}
		})
	}
}

// TestPassphraseFromVariable: a program that is started later must not get the passphrase.
func TestPassphraseFromVariable(t *testing.T) {
	t.Setenv(passphraseVariable, "correct horse battery")
	cmd := root()
	cmd.SetContext(t.Context())
	if _, err := (&backupKey{}).open(cmd, true); err != nil {
		t.Error(err)
	}
	if v, ok := os.LookupEnv(passphraseVariable); ok {
		t.Errorf("%s is still %q", passphraseVariable, v)
	}
}

// TestInterruptRestoresTerminal: after ctrl-C at the prompt, the shell must show what the user types.
func TestInterruptRestoresTerminal(t *testing.T) {
	user, terminal, err := pty.Open()
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _, _ = user.Close(), terminal.Close() }()
	ctx, cancel := context.WithCancel(t.Context())
	prompt := writerFunc(func(p []byte) (int, error) { cancel(); return len(p), nil })
	if _, err := ask(ctx, terminal, prompt, "Passphrase: "); !errors.Is(err, context.Canceled) {
		t.Error(err)
	}
}

type writerFunc func(p []byte) (int, error)

func (f writerFunc) Write(p []byte) (int, error) { return f(p) }

// TestNoPassphrase: a program without a terminal must learn what to set.
func TestNoPassphrase(t *testing.T) {
	t.Setenv(passphraseVariable, "")
	cmd := root()
	cmd.SetIn(strings.NewReader(""))
	cmd.SetContext(t.Context())
	_, end, err := openTerminal(cmd.InOrStdin())
	if err == nil {
		end() // the tester's own
		return
	}
	if _, err := (&backupKey{}).open(cmd, true); err == nil || !strings.Contains(err.Error(), "--passphrase-file") {
		t.Error(err)
	}
}
