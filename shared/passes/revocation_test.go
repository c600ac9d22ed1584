package passes

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/clusterpass/clusterpass/shared/api/clusterpass/v1alpha1"
	"github.com/clusterpass/clusterpass/shared/objects"
)

// A revoked pass must stop working within RemoteFresh, also for open streams.
func TestRevocation(t *testing.T) {
	for name, form := range forms {
		t.Run(name, func(t *testing.T) {
			o := newTestGateway(t)
			issued := o.issue("ci", form)
			u, err := o.authenticate(issued)
			if err != nil {
				t.Fatal(err)
			}
			if err := o.Revoke(t.Context(), "ci"); err != nil {
				t.Fatal(err)
			}
			o.clock.Step(RemoteFresh)
			again, err := o.authenticate(issued)
			o.wantRefused(again, err, `the pass "ci" was revoked`)
			if err := u.Recheck(t.Context()); err == nil {
				t.Error("an open stream goes on")
			}
			if err := o.Revoke(t.Context(), "ci"); !errors.Is(err, objects.ErrNotFound) {
				t.Errorf("twice: %v", err)
			}
			// A new pass of the same name is a different pass.
			next := o.issue("ci", form)
			o.clock.Step(RemoteFresh)
			if _, err := o.authenticate(next); err != nil {
				t.Error(err)
			}
			again, err = o.authenticate(issued)
			o.wantRefused(again, err, "there is another one of that name")
		})
	}
}

// A revoked pass must stop working within RemoteFresh, also if the clock is set back.
func TestRevokedAfterTheClockIsSetBack(t *testing.T) {
	o := newTestGateway(t)
	issued := o.issue("ci", nil)
	o.clock.Step(10 * time.Minute)
	if _, err := o.authenticate(issued); err != nil {
		t.Fatal(err)
	}
	o.clock.SetTime(o.clock.Now().Add(-5 * time.Minute))
	if err := o.Revoke(t.Context(), "ci"); err != nil {
		t.Fatal(err)
	}
	o.clock.Step(RemoteFresh)
	if _, err := o.authenticate(issued); err == nil {
		t.Error("the pass works after its revocation")
	}
}

type interceptedStore struct {
	objects.Store
	beforeDelete func()
}

func (b *interceptedStore) Delete(ctx context.Context, key string, revision uint64) (objects.Object, error) {
	if do := b.beforeDelete; do != nil {
		b.beforeDelete = nil
		do()
	}
	return b.Store.Delete(ctx, key, revision)
}

// A revocation must succeed during updates of the pass, and must not delete a later pass of that name.
func TestRevokedWhileWritten(t *testing.T) {
	o := newTestGateway(t)
	store := o.Objects
	issued := o.issue("ci", nil)
	key := v1alpha1.PassPrefix + "ci"
	o.Objects = &interceptedStore{store, func() {
		old, err := store.Get(t.Context(), key)
		if err != nil {
			t.Fatal(err)
		}
		p := issued.Pass.DeepCopy()
		p.Labels = map[string]string{"a": "b"}
		value, err := json.Marshal(p)
		if err == nil {
			_, err = store.Update(t.Context(), key, value, old.Revision)
		}
		if err != nil {
			t.Fatal(err)
		}
	}}
	if err := o.Revoke(t.Context(), "ci"); err != nil {
		t.Errorf("labelled meanwhile: %v", err)
	}
	if _, err := store.Get(t.Context(), key); !errors.Is(err, objects.ErrNotFound) {
		t.Errorf("it is still there: %v", err)
	}

	o.issue("ci", nil)
	o.Objects = &interceptedStore{store, func() {
		o.Objects = store
		if err := o.Revoke(t.Context(), "ci"); err != nil {
			t.Fatal(err)
		}
		o.issue("ci", nil)
	}}
	if err := o.Revoke(t.Context(), "ci"); !errors.Is(err, objects.ErrConflict) {
		t.Errorf("replaced meanwhile: %v", err)
	}
	if _, err := store.Get(t.Context(), key); err != nil {
		t.Errorf("another one is revoked: %v", err)
	}
}

// A client certificate without a pass needs no object, and must stop working when it is revoked.
func TestPlainCertificates(t *testing.T) {
	o := newTestGateway(t)
	leaf := func() *x509.Certificate {
		cert, key, err := o.CA.Client("bob", []string{"dev"})
		if err != nil {
			t.Fatal(err)
		}
		pair, err := tls.X509KeyPair(cert, key)
		if err != nil {
			t.Fatal(err)
		}
		return pair.Leaf
	}
	lost, other := leaf(), leaf()
	u, err := o.authenticateLeaf(lost)
	if err != nil || u.Method != "x509" || u.Scope != nil {
		t.Fatalf("%+v, %v", u, err)
	}
	colons := strings.ToUpper(fmt.Sprintf("% X", lost.SerialNumber.Bytes()))
	serial, err := o.RevokeCertificate(t.Context(), Revocation{Serial: strings.ReplaceAll(colons, " ", ":"), User: "bob",
		Reason: "lost"})
	if err != nil || serial != Serial(lost) {
		t.Fatalf("%s, %v", serial, err)
	}
	if _, err := o.RevokeCertificate(t.Context(), Revocation{Serial: serial}); err != nil {
		t.Errorf("twice: %v", err)
	}
	o.clock.Step(RemoteFresh)
	again, err := o.authenticateLeaf(lost)
	o.wantRefused(again, err, "the client certificate was revoked")
	o.wantRefused(nil, u.Recheck(t.Context()), "the client certificate was revoked")
	if _, err := o.authenticateLeaf(other); err != nil {
		t.Errorf("another of the same user: %v", err)
	}
	all, err := o.Revocations(t.Context(), func(serial string, err error) { t.Errorf("%s: %v", serial, err) })
	if err != nil || len(all) != 1 || all[0].Name != serial || all[0].Spec.Reason != "lost" || all[0].Spec.User != "bob" {
		t.Errorf("%+v, %v", all, err)
	}
	issued := o.issue("ci", certificate)
	if _, err := o.authenticate(issued); err != nil {
		t.Fatal(err)
	}
	pair, err := tls.X509KeyPair(issued.Certificate, issued.Key.Reveal())
	if err != nil {
		t.Fatal(err)
	}
	if _, err := o.RevokeCertificate(t.Context(), Revocation{Serial: Serial(pair.Leaf)}); err != nil {
		t.Fatal(err)
	}
	o.clock.Step(RemoteFresh)
	again, err = o.authenticate(issued)
	o.wantRefused(again, err, "the client certificate was revoked")
	for _, bad := range []string{"", "xyz", "-1", "0", strings.Repeat("f", 41)} {
		if _, err := o.RevokeCertificate(t.Context(), Revocation{Serial: bad}); err == nil {
			t.Errorf("serial %q is taken", bad)
		}
	}
}

// TestSerialNumbersOfOpenSSL: users revoke a lost certificate by pasting what openssl printed.
func TestSerialNumbersOfOpenSSL(t *testing.T) {
	for text, want := range map[string]string{
		"0A1B2C": "a1b2c", "0a1b2c": "a1b2c", "0x0A1B2C": "a1b2c", "a1b2c": "a1b2c", // digits alone
		"serial=0A1B2C": "a1b2c", "serial=0A1B2C\n": "a1b2c", // openssl x509 -serial
		"serial=0x0A1B2C": "a1b2c", "Serial = 0A1B2C": "a1b2c",
		"0a:1b:2c": "a1b2c", "Serial Number:\n            0a:1b:2c\n": "a1b2c", // openssl x509 -text
		"        Serial Number: 2587 (0xa1b)": "a1b", "2587 (0xa1b)": "a1b",
		"": "", "serial=": "", "serial=xyz": "", "serial=-0A": "", "-0A": "", "0": "", ":": "", "serial=0A1B 2C": "",
		"issuer=0A1B": "", strings.Repeat("f", 41): "",
	} {
		got, err := parseSerial(text)
		if got != want || (err == nil) != (want != "") ||
			err != nil && !strings.Contains(err.Error(), "openssl x509 -serial") {
			t.Errorf("%q is read as %q, %v; want %q", text, got, err, want)
		}
	}
}
