package possession_test

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/base64"
	"strings"
	"testing"
	"time"

	"github.com/clusterpass/clusterpass/shared/passes/possession"
	"github.com/clusterpass/clusterpass/shared/secrets"
)

func newKey(t *testing.T) *possession.Key {
	t.Helper()
	key, err := possession.NewKey()
	if err != nil {
		t.Fatal(err)
	}
	return key
}

func request(t *testing.T, key *possession.Key, cluster string) string {
	t.Helper()
	r, err := key.Request(cluster)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

func TestStoredKeyIsTheSame(t *testing.T) {
	key := newKey(t)
	pem, err := key.PEM()
	if err != nil {
		t.Fatal(err)
	}
	read, err := possession.ParseKey(pem)
	if err != nil {
		t.Fatal(err)
	}
	var thumbprints []string
	for _, k := range []*possession.Key{key, read, newKey(t)} {
		public, err := possession.ParseRequest(request(t, k, "prod"), "prod")
		if err != nil {
			t.Fatal(err)
		}
		thumbprint, err := possession.Thumbprint(public)
		if err != nil {
			t.Fatal(err)
		}
		thumbprints = append(thumbprints, thumbprint)
	}
	if thumbprints[0] != thumbprints[1] || thumbprints[0] == thumbprints[2] {
		t.Errorf("thumbprints %v", thumbprints)
	}
	for _, bad := range []string{"", "x", strings.Replace(string(pem.Reveal()), "EC PRIVATE", "PRIVATE", 2)} {
		if _, err := possession.ParseKey(secrets.NewValue([]byte(bad))); err == nil {
			t.Errorf("%.20q is a key", bad)
		}
	}
}

// A request that its sender did not sign would bind a credential to another key.
func TestParseRequestRefusesOthers(t *testing.T) {
	good := request(t, newKey(t), "prod")
	der, err := base64.StdEncoding.DecodeString(good)
	if err != nil {
		t.Fatal(err)
	}
	forged := append([]byte{}, der...)
	forged[len(forged)-1] ^= 1
	large, err := ecdsa.GenerateKey(elliptic.P384(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.CertificateRequest{Subject: pkix.Name{CommonName: "prod"}}
	other, err := x509.CreateCertificateRequest(rand.Reader, template, large)
	if err != nil {
		t.Fatal(err)
	}
	for name, tt := range map[string]struct {
		request string
		isGood  bool
	}{
		"good":                 {good, true},
		"none":                 {"", false},
		"no base64":            {"%", false},
		"no PKCS#10":           {base64.StdEncoding.EncodeToString([]byte("x")), false},
		"another cluster's":    {request(t, newKey(t), "other"), false},
		"a changed signature":  {base64.StdEncoding.EncodeToString(forged), false},
		"a key on P-384":       {base64.StdEncoding.EncodeToString(other), false},
		"more than is allowed": {strings.Repeat("A", 5<<10), false},
	} {
		t.Run(name, func(t *testing.T) {
			if _, err := possession.ParseRequest(tt.request, "prod"); (err == nil) != tt.isGood {
				t.Errorf("error %v", err)
			}
		})
	}
}

// A proof of another key, token, use, request or time would make its owner an agent.
func TestVerify(t *testing.T) {
	key, now := newKey(t), time.Now()
	public, err := possession.ParseRequest(request(t, key, "prod"), "prod")
	if err != nil {
		t.Fatal(err)
	}
	prove := func(k *possession.Key, token string) string {
		t.Helper()
		text, err := possession.Credential{Token: secrets.NewValue([]byte(token)), Key: k}.Prove(possession.Renew, "r", now)
		if err != nil {
			t.Fatal(err)
		}
		return text
	}
	good := prove(key, "t")
	for name, tt := range map[string]struct {
		proof, token, request string
		use                   possession.Use
		now                   time.Time
		isGood                bool
	}{
		"good":            {good, "t", "r", possession.Renew, now, true},
		"clock behind":    {good, "t", "r", possession.Renew, now.Add(-50 * time.Second), true},
		"too early":       {good, "t", "r", possession.Renew, now.Add(-2 * time.Minute), false},
		"too late":        {good, "t", "r", possession.Renew, now.Add(2 * time.Minute), false},
		"another use":     {good, "t", "r", possession.Connect, now, false},
		"another request": {good, "t", "", possession.Renew, now, false},
		"another token":   {prove(key, "u"), "t", "r", possession.Renew, now, false},
		"another key":     {prove(newKey(t), "t"), "t", "r", possession.Renew, now, false},
		"none":            {"", "t", "r", possession.Renew, now, false},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := possession.Verify(public, tt.proof, tt.token, tt.use, tt.request, tt.now)
			if (err == nil) != tt.isGood {
				t.Errorf("error %v", err)
			}
		})
	}
}
