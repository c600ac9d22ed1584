package storetest

import (
	"crypto/ed25519"
	"testing"

	"github.com/clusterpass/clusterpass/shared/recording"
)

// NewSigner returns a Signer with a new key, and the Keys that verify its parts.
func NewSigner(tb testing.TB) (*recording.Signer, recording.Keys) {
	tb.Helper()
	public, private, err := ed25519.GenerateKey(nil)
	if err != nil {
		tb.Fatal(err)
	}
	signer, err := recording.NewSigner(private)
	if err != nil {
		tb.Fatal(err)
	}
	return signer, recording.NewKeys(public)
}
