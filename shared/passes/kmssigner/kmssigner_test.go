package kmssigner_test

import (
	"crypto/sha256"
	"errors"
	"strings"
	"sync"
	"testing"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/kms"
	"github.com/aws/aws-sdk-go-v2/service/kms/types"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/clusterpass/clusterpass/shared/api/clusterpass/v1alpha1"
	"github.com/clusterpass/clusterpass/shared/awsclient/mototest"
	"github.com/clusterpass/clusterpass/shared/clustertest"
	"github.com/clusterpass/clusterpass/shared/passes"
	"github.com/clusterpass/clusterpass/shared/passes/kmssigner"
	"github.com/clusterpass/clusterpass/shared/secrets"
)

const gatewayURL = "https://gateway.example.com"

// startMoto starts the moto of all tests, which ends with this process. In TestMain, go test would not record that the
// tests depend on the patch.
var startMoto = sync.OnceValues(func() (*mototest.Server, error) { return mototest.Start("testdata/digest.py") })

func motoURL(t *testing.T) string {
	t.Helper()
	moto, err := startMoto()
	if err != nil {
		t.Fatal(err)
	}
	return moto.URL
}

func newKey(t *testing.T, spec types.KeySpec, usage types.KeyUsageType) string {
	t.Helper()
	client := kms.NewFromConfig(mototest.Config(motoURL(t)))
	out, err := client.CreateKey(t.Context(), &kms.CreateKeyInput{KeySpec: spec, KeyUsage: usage})
	if err != nil {
		t.Fatal(err)
	}
	return aws.ToString(out.KeyMetadata.Arn)
}

func request(name string) *v1alpha1.Pass {
	return &v1alpha1.Pass{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: v1alpha1.PassSpec{
		User: "ann", Clusters: []string{v1alpha1.Any}, Verbs: []string{v1alpha1.Any},
	}}
}

// All programs must accept the passes. The stores must contain no key that could sign one.
func TestPassesByKMS(t *testing.T) {
	arn := newKey(t, types.KeySpecEccNistP256, types.KeyUsageTypeSignVerify)
	i := clustertest.NewInstallation(t)
	signer := kmssigner.New(mototest.Config(motoURL(t)), arn)
	issuer := &passes.Issuer{Objects: i.Objects, Secrets: i.Secrets, URL: gatewayURL, Signer: signer}
	verifier := passes.NewVerifier(passes.Config{Objects: i.Objects, Secrets: i.Secrets, URL: gatewayURL})
	for _, name := range []string{"first", "second"} {
		made, err := issuer.Create(t.Context(), request(name))
		if err != nil {
			t.Fatal(err)
		}
		if u, err := verifier.AuthenticateToken(t.Context(), string(made.Token.Reveal())); err != nil || u.Name != "ann" {
			t.Errorf("%+v, %v", u, err)
		}
	}
	if _, err := i.Secrets.Get(t.Context(), passes.PassKeys); !errors.Is(err, secrets.ErrNotFound) {
		t.Errorf("there is a secret with keys of passes: %v", err)
	}
}

// A key that cannot sign passes must be rejected with a remedy, before any pass is issued.
func TestKeysThatDoNotFit(t *testing.T) {
	for name, tt := range map[string]struct {
		key, want string
	}{
		"RSA":           {newKey(t, types.KeySpecRsa2048, types.KeyUsageTypeSignVerify), "ECC_NIST_P256"},
		"another curve": {newKey(t, types.KeySpecEccNistP384, types.KeyUsageTypeSignVerify), "ECC_NIST_P256"},
		"none":          {"00000000-0000-0000-0000-000000000000", "kms:GetPublicKey"},
	} {
		t.Run(name, func(t *testing.T) {
			s := kmssigner.New(mototest.Config(motoURL(t)), tt.key)
			if _, _, err := s.Public(t.Context()); err == nil || !strings.Contains(err.Error(), tt.want) {
				t.Errorf("%v, want %s", err, tt.want)
			}
			if _, err := s.Sign(t.Context(), make([]byte, sha256.Size)); err == nil {
				t.Error("it signs")
			}
		})
	}
}

// A program that may not use the key must not report an outage, since callers would wait for its end.
func TestWithoutRights(t *testing.T) {
	front := mototest.NewFront(t, motoURL(t))
	s := kmssigner.New(mototest.Config(front.URL), newKey(t, types.KeySpecEccNistP256, types.KeyUsageTypeSignVerify))
	if _, _, err := s.Public(t.Context()); err != nil {
		t.Fatal(err)
	}
	front.Deny()
	if _, err := s.Sign(t.Context(), make([]byte, sha256.Size)); !errors.Is(err, passes.ErrNotSigner) {
		t.Errorf("%v", err)
	}
	s = kmssigner.New(mototest.Config(front.URL), "alias/x")
	if _, _, err := s.Public(t.Context()); !errors.Is(err, passes.ErrNotSigner) {
		t.Errorf("%v", err)
	}
}
