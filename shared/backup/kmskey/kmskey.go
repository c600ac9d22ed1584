// Package kmskey encrypts backups to a key in AWS KMS. The key of the file is encrypted by KMS, and decrypted only by
// callers who may use the same KMS key.
package kmskey

import (
	"context"
	"fmt"

	"filippo.io/age"
	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/kms"

	"github.com/clusterpass/clusterpass/shared/awsclient"
)

// stanzaType marks the part of a file's header with the encrypted key.
const stanzaType = "clusterpass.io/kms"

// purpose is the encryption context: KMS decrypts nothing else as the key of a backup, and CloudTrail has it.
var purpose = map[string]string{"clusterpass.io/purpose": "backup"}

// Key is a symmetric key in KMS. It implements backup.Key.
type Key struct {
	ctx    context.Context //nolint:containedctx // age's interfaces have none
	client *kms.Client
	id     string
}

// Open returns the key with an ARN, ID or alias. It reads the AWS SDK's standard environment, and does not call KMS.
// The Key is usable until ctx ends.
func Open(ctx context.Context, id string) (*Key, error) {
	cfg, err := awsclient.Load(ctx)
	if err != nil {
		return nil, err
	}
	return New(ctx, cfg, id), nil
}

// New returns the key with an ARN, ID or alias. The Key is usable until ctx ends.
func New(ctx context.Context, cfg aws.Config, id string) *Key {
	return &Key{ctx, kms.NewFromConfig(awsclient.Configure(cfg)), id}
}

// Wrap implements age.Recipient.
func (k *Key) Wrap(fileKey []byte) ([]*age.Stanza, error) {
	ctx, cancel := context.WithTimeout(k.ctx, awsclient.CallTimeout)
	defer cancel()
	out, err := k.client.Encrypt(ctx, &kms.EncryptInput{KeyId: &k.id, Plaintext: fileKey, EncryptionContext: purpose})
	if err != nil {
		return nil, fmt.Errorf("KMS key %s: kms:Encrypt: %w; it must be a symmetric key that you may use", k.id, err)
	}
	return []*age.Stanza{{Type: stanzaType, Args: []string{aws.ToString(out.KeyId)}, Body: out.CiphertextBlob}}, nil
}

// Unwrap implements age.Identity. It names the key to KMS: a file that was encrypted to another key is refused, as
// anyone could have made it.
func (k *Key) Unwrap(stanzas []*age.Stanza) ([]byte, error) {
	for _, s := range stanzas {
		if s.Type != stanzaType {
			continue
		}
		ctx, cancel := context.WithTimeout(k.ctx, awsclient.CallTimeout)
		defer cancel()
		out, err := k.client.Decrypt(ctx, &kms.DecryptInput{
			KeyId: &k.id, CiphertextBlob: s.Body, EncryptionContext: purpose,
		})
		if err != nil {
			return nil, fmt.Errorf("KMS key %s: kms:Decrypt: %w; name the key to which the backup was encrypted: %q", k.id, err,
				s.Args)
		}
		return out.Plaintext, nil
	}
	return nil, fmt.Errorf("%w: the file is not encrypted to a key in KMS", age.ErrIncorrectIdentity)
}

var (
	_ age.Recipient = (*Key)(nil)
	_ age.Identity  = (*Key)(nil)
)
