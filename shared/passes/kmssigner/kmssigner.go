// Package kmssigner signs passes with a key that never leaves AWS KMS. Functions that issue no passes do not link it.
package kmssigner

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/x509"
	"fmt"
	"sync/atomic"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/kms"
	"github.com/aws/aws-sdk-go-v2/service/kms/types"

	"github.com/clusterpass/clusterpass/shared/awsclient"
	"github.com/clusterpass/clusterpass/shared/passes"
)

// Signer implements passes.Signer. It is safe for concurrent use.
type Signer struct {
	client *kms.Client
	key    string
	public atomic.Pointer[publicKey] // nil before the first response
}

type publicKey struct {
	arn string
	key *ecdsa.PublicKey
}

// Open returns a Signer for a key's ID, ARN or alias, or nil if key is empty. It reads the AWS SDK's standard
// environment, and does not call KMS.
func Open(ctx context.Context, key string) (passes.Signer, error) {
	if key == "" {
		return nil, nil //nolint:nilnil // as documented
	}
	cfg, err := awsclient.Load(ctx)
	if err != nil {
		return nil, err
	}
	return New(cfg, key), nil
}

// New returns a Signer for a key's ID, ARN or alias.
func New(cfg aws.Config, key string) *Signer {
	return &Signer{client: kms.NewFromConfig(awsclient.Configure(cfg)), key: key}
}

// Public returns the key's ARN, even if Open got an alias.
func (s *Signer) Public(ctx context.Context) (arn string, key *ecdsa.PublicKey, err error) {
	if p := s.public.Load(); p != nil {
		return p.arn, p.key, nil
	}
	ctx, cancel := context.WithTimeout(ctx, awsclient.CallTimeout)
	defer cancel()
	out, err := s.client.GetPublicKey(ctx, &kms.GetPublicKeyInput{KeyId: &s.key})
	if err != nil {
		return "", nil, s.explain("kms:GetPublicKey", err)
	}
	parsed, err := x509.ParsePKIXPublicKey(out.PublicKey)
	public, ok := parsed.(*ecdsa.PublicKey)
	if err != nil || !ok || public.Curve != elliptic.P256() || out.KeyUsage != types.KeyUsageTypeSignVerify {
		const todo = "create one with the spec ECC_NIST_P256 and the usage SIGN_VERIFY"
		return "", nil, fmt.Errorf("KMS key %s: it cannot sign ES256; %s", s.key, todo)
	}
	p := &publicKey{aws.ToString(out.KeyId), public}
	s.public.Store(p)
	return p.arn, p.key, nil
}

// Sign implements passes.Signer.
func (s *Signer) Sign(ctx context.Context, digest []byte) ([]byte, error) {
	arn, _, err := s.Public(ctx)
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(ctx, awsclient.CallTimeout)
	defer cancel()
	out, err := s.client.Sign(ctx, &kms.SignInput{
		KeyId: &arn, Message: digest, MessageType: types.MessageTypeDigest,
		SigningAlgorithm: types.SigningAlgorithmSpecEcdsaSha256,
	})
	if err != nil {
		return nil, s.explain("kms:Sign", err)
	}
	return out.Signature, nil
}

// explain wraps ErrNotSigner if the action is not allowed.
func (s *Signer) explain(action string, err error) error {
	if awsclient.FaultOf(err) == awsclient.Forbidden {
		return fmt.Errorf("%w: KMS key %s: %s is not allowed: %w", passes.ErrNotSigner, s.key, action, err)
	}
	return fmt.Errorf("KMS key %s: %s: %w", s.key, action, err)
}
