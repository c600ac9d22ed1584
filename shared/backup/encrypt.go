package backup

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"slices"

	"filippo.io/age"

	"github.com/clusterpass/clusterpass/shared/secrets"
)

// Key encrypts and decrypts backups. [Passphrase] and package kmskey make keys.
type Key interface {
	age.Recipient
	age.Identity
}

const (
	intro = "age-encryption.org/v1\n"
	// maxHeader limits the part of a file that is read before it is authenticated.
	maxHeader = 64 << 10
	// workFactor is the cost of each guess of a passphrase: 2^18 rounds of scrypt, and 256 MiB. Files with a higher one
	// are refused.
	workFactor = 18
	scryptType = "scrypt" // the type of a stanza for a passphrase in the header
)

// Passphrase returns the Key of a passphrase, which must not be empty.
func Passphrase(passphrase secrets.Value) (Key, error) {
	recipient, err := age.NewScryptRecipient(string(passphrase.Reveal()))
	if err != nil {
		return nil, err
	}
	identity, err := age.NewScryptIdentity(string(passphrase.Reveal()))
	if err != nil {
		return nil, err
	}
	recipient.SetWorkFactor(workFactor)
	identity.SetMaxWorkFactor(workFactor)
	return passphraseKey{recipient, identity}, nil
}

type passphraseKey struct {
	*age.ScryptRecipient
	*age.ScryptIdentity
}

// Encrypt returns a writer that encrypts to out. Without its Close, the file cannot be decrypted.
func Encrypt(out io.Writer, key Key) (io.WriteCloser, error) {
	w, err := age.Encrypt(out, key)
	if err != nil {
		return nil, fmt.Errorf("encrypt the backup: %w", err)
	}
	return w, nil
}

// Decrypt returns the content of an encrypted file of size bytes. Every read authenticates what it returns, and Decrypt
// that the file is not cut. The content is authentic as a whole only after all of it was read.
func Decrypt(file io.ReaderAt, size int64, key Key) (*io.SectionReader, error) {
	if err := checkHeader(file, size); err != nil {
		return nil, err
	}
	observed := &observedIdentity{Identity: key}
	content, length, err := age.DecryptReaderAt(file, size, observed)
	switch {
	case observed.err != nil:
		return nil, fmt.Errorf("decrypt the backup: %w", observed.err)
	case err != nil:
		return nil, explain(err, key)
	}
	return io.NewSectionReader(content, 0, length), nil
}

// observedIdentity distinguishes an error of the key from that of a damaged file.
type observedIdentity struct {
	age.Identity

	err error
}

func (o *observedIdentity) Unwrap(stanzas []*age.Stanza) ([]byte, error) {
	fileKey, err := o.Identity.Unwrap(stanzas)
	if err != nil && !errors.Is(err, age.ErrIncorrectIdentity) {
		o.err = err
	}
	return fileKey, err
}

// checkHeader bounds what the parser of the header reads. The header ends with the line of its checksum.
func checkHeader(file io.ReaderAt, size int64) error {
	head := make([]byte, min(size, maxHeader))
	if _, err := file.ReadAt(head, 0); err != nil && !errors.Is(err, io.EOF) {
		return fmt.Errorf("read the backup: %w", err)
	}
	if !bytes.HasPrefix(head, []byte(intro)) || !bytes.Contains(head, []byte("\n---")) {
		return errors.New("read the backup: the file is no backup of clusterpass, or its beginning is damaged; name the " +
			"file that clusterpass backup wrote")
	}
	return nil
}

func explain(err error, key Key) error {
	var other *age.NoIdentityMatchError
	if !errors.As(err, &other) {
		return damaged(err)
	}
	_, hasPassphrase := key.(passphraseKey)
	needsPassphrase := slices.Contains(other.StanzaTypes, scryptType)
	problem := "it is not encrypted to a passphrase; name its key in AWS KMS with --kms-key"
	switch {
	case needsPassphrase && hasPassphrase:
		problem = "the passphrase is wrong; use the one with which the backup was made"
	case needsPassphrase:
		problem = "it is encrypted to a passphrase; call without --kms-key"
	}
	return errors.New("decrypt the backup: " + problem)
}

func damaged(err error) error {
	return fmt.Errorf("read the backup: %w; the file is damaged or incomplete: copy it again, or use another backup", err)
}
