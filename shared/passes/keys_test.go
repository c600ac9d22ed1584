package passes

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/go-jose/go-jose/v4"
	"github.com/go-jose/go-jose/v4/jwt"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	clusterv1alpha1 "github.com/clusterpass/clusterpass/shared/api/cluster/v1alpha1"
	"github.com/clusterpass/clusterpass/shared/api/clusterpass/v1alpha1"
	"github.com/clusterpass/clusterpass/shared/objects"
	"github.com/clusterpass/clusterpass/shared/passes/possession"
	"github.com/clusterpass/clusterpass/shared/secrets"
	"github.com/clusterpass/clusterpass/shared/status"
)

// private registers a private cluster and returns a credential of its agents.
func (o *office) private(name string) string {
	o.t.Helper()
	c := &clusterv1alpha1.Cluster{
		ObjectMeta: metav1.ObjectMeta{Name: name, UID: "1"},
		Spec:       clusterv1alpha1.ClusterSpec{SyncMode: clusterv1alpha1.Pull},
	}
	value, err := json.Marshal(c)
	if err == nil {
		_, err = o.Objects.Create(o.t.Context(), clusterv1alpha1.Prefix+name, value)
	}
	if err != nil {
		o.t.Fatal(err)
	}
	token, err := o.EnrolAgent(o.t.Context(), c, time.Hour)
	if err != nil {
		o.t.Fatal(err)
	}
	return string(token.Reveal())
}

// tunnelToken is one for the tunnel port.
func (o *office) tunnelToken(cluster string) string {
	o.t.Helper()
	token, err := o.TunnelToken(o.t.Context(), cluster)
	if err != nil {
		o.t.Fatal(err)
	}
	return string(token.Reveal())
}

// keysOf returns the private keys of a set.
func (o *office) keysOf(set string) []signingKey {
	o.t.Helper()
	keys, _, err := readKeys(o.t.Context(), o.Secrets, set)
	if err != nil || len(keys.Keys) == 0 {
		o.t.Fatalf("%s: %+v, %v", set, keys, err)
	}
	return keys.Keys
}

// forge makes what a thief of a private key makes of it: a pass for root, with the uid of a pass that exists.
func (o *office) forge(key any, typ string, of *v1alpha1.Pass) string {
	o.t.Helper()
	options := (&jose.SignerOptions{}).WithType(jose.ContentType(typ))
	s, err := jose.NewSigner(jose.SigningKey{Algorithm: jose.ES256, Key: key}, options)
	if err != nil {
		o.t.Fatal(err)
	}
	now := o.clock.Now()
	token, err := jwt.Signed(s).Claims(map[string]any{
		"iss": gatewayURL, "aud": gatewayURL, "sub": of.Spec.User, "jti": string(of.UID),
		"iat": now.Unix(), "nbf": now.Unix(), "exp": now.Add(time.Hour).Unix(), "clusterpass.io/pass": of.Name,
	}).Serialize()
	if err != nil {
		o.t.Fatal(err)
	}
	return token
}

// recorder notes the names of the secrets that are read.
type recorder struct {
	secrets.Store
	mu   sync.Mutex
	read []string
}

func (r *recorder) Get(ctx context.Context, name string) (*secrets.Secret, error) {
	r.mu.Lock()
	r.read = append(r.read, name)
	r.mu.Unlock()
	return r.Store.Get(ctx, name)
}

// TestReadersMakeNoPass attacks as a function that only reads. With all secrets that it needs for its calls, it makes
// no pass. Otherwise an attacker in the function that every caller reaches is any user, as long as the keys live.
func TestReadersMakeNoPass(t *testing.T) {
	o := newOffice(t)
	made := o.give("ci", nil)
	agent := o.private("prod")
	o.clock.Step(keysFresh)
	read := &recorder{Store: o.Secrets}
	function := NewVerifier(Config{Objects: o.down, Secrets: read, URL: gatewayURL, Fresh: Fresh, Now: o.clock.Now})

	// All that a function does with keys.
	if u, err := function.AuthenticateToken(t.Context(), string(made.Token.Reveal())); err != nil || u.Name != "ann" {
		t.Fatalf("%+v, %v", u, err)
	}
	function.Prepare(t.Context())
	token, err := function.TunnelToken(t.Context(), "prod")
	if err != nil {
		t.Fatal(err)
	}
	if err := o.VerifyTunnelToken(t.Context(), string(token.Reveal()), "prod"); err != nil {
		t.Fatal(err)
	}
	if _, err := function.Agent(t.Context(), "prod", Presented{Token: agent, Use: possession.Renew}); err != nil {
		t.Fatal(err)
	}

	names := slices.Compact(slices.Sorted(slices.Values(read.read)))
	if !slices.Equal(names, []string{TunnelKeys}) {
		t.Errorf("a function that only reads has read the secrets %v", names)
	}
	for _, name := range names {
		for _, key := range o.keysOf(name) {
			u, err := o.AuthenticateToken(t.Context(), o.forge(key.Key, "JWT", made.Pass))
			o.wantRefused(u, err, "a key that the gateway does not have any more")
		}
	}
}

// TestKeysAreApart: a key makes credentials of its own kind alone, whatever they claim to be. Otherwise an agent of a
// private cluster, or a program that may connect to one, could be any caller.
func TestKeysAreApart(t *testing.T) {
	o := newOffice(t)
	made := o.give("ci", nil)
	agent := o.private("prod")
	pass, connect := string(made.Token.Reveal()), o.tunnelToken("prod")
	own := o.keysOf(PassKeys)[0].Key
	if u, err := o.AuthenticateToken(t.Context(), o.forge(own, "JWT", made.Pass)); err != nil || u.Name != "ann" {
		t.Fatalf("what is right is not taken: %+v, %v", u, err)
	}
	for _, set := range []string{TunnelKeys, AgentKeys} {
		key := o.keysOf(set)[0].Key
		posing := key
		posing.KeyID = own.KeyID
		for name, token := range map[string]string{
			"by its own name": o.forge(key, "JWT", made.Pass), "with its own type": o.forge(key, tunnelToken.typ, made.Pass),
			"by the name of a key of passes": o.forge(posing, "JWT", made.Pass),
		} {
			t.Run(set+" "+name, func(t *testing.T) {
				u, err := o.AuthenticateToken(t.Context(), token)
				o.wantRefused(u, err, "")
			})
		}
	}
	for name, token := range map[string]string{
		"a tunnel token": connect, "an agent's credential": agent, "another type": o.forge(own, tunnelToken.typ, made.Pass),
	} {
		if u, err := o.AuthenticateToken(t.Context(), token); u != nil || status.From(err).Reason != status.Unauthenticated {
			t.Errorf("%s is a pass: %+v, %v", name, u, err)
		}
	}
	for name, token := range map[string]string{"a pass": pass, "an agent's credential": agent} {
		if err := o.VerifyTunnelToken(t.Context(), token, "prod"); status.From(err).Reason != status.Unauthenticated {
			t.Errorf("%s is a tunnel token: %v", name, err)
		}
	}
	for name, token := range map[string]string{"a pass": pass, "a tunnel token": connect} {
		a, err := o.Agent(t.Context(), "prod", Presented{Token: token, Use: possession.Renew})
		if a != nil || status.From(err).Reason != status.Unauthenticated {
			t.Errorf("%s is an agent's credential: %+v, %v", name, a, err)
		}
	}
	// And each is valid for its own purpose.
	if err := o.VerifyTunnelToken(t.Context(), connect, "prod"); err != nil {
		t.Error(err)
	}
	if _, err := o.Agent(t.Context(), "prod", Presented{Token: agent, Use: possession.Renew}); err != nil {
		t.Error(err)
	}
}

// TestPublishedKeysOfEarlierVersions: passes of an earlier version are valid once a program has published its keys.
// Until then the answer is 503, so that no client removes its pass.
func TestPublishedKeysOfEarlierVersions(t *testing.T) {
	o := newOffice(t)
	made := o.give("ci", nil)
	old, err := o.Objects.Get(t.Context(), PassKeys)
	if err == nil {
		_, err = o.Objects.Delete(t.Context(), PassKeys, old.Revision)
	}
	if err != nil {
		t.Fatal(err)
	}
	u, err := o.show(made)
	o.want(u, err, status.StoreUnavailable, "are not published yet")
	if err := o.PublishAll(t.Context()); err != nil {
		t.Fatal(err)
	}
	o.clock.Step(retry)
	if _, err := o.show(made); err != nil {
		t.Error(err)
	}
	for _, set := range []string{AgentKeys, TunnelKeys} {
		if _, err := o.Secrets.Get(t.Context(), set); !errors.Is(err, secrets.ErrNotFound) {
			t.Errorf("without private clusters there is %s: %v", set, err)
		}
	}
}

// TestTunnelKeysAfterUpgrade: private clusters of an earlier version stay reachable, although no administrator makes
// their new keys.
func TestTunnelKeysAfterUpgrade(t *testing.T) {
	o := newOffice(t)
	o.private("prod")
	for _, set := range []string{AgentKeys, TunnelKeys} {
		old, err := o.Objects.Get(t.Context(), set)
		if err == nil {
			_, err = o.Objects.Delete(t.Context(), set, old.Revision)
		}
		if err = errors.Join(err, o.Secrets.Delete(t.Context(), set)); err != nil {
			t.Fatal(err)
		}
	}
	if err := o.PublishAll(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := o.VerifyTunnelToken(t.Context(), o.tunnelToken("prod"), "prod"); err != nil {
		t.Error(err)
	}
}

// TestWritersOfKeysMeet: writers at the same time do not remove each other's keys, which would end valid passes.
func TestWritersOfKeysMeet(t *testing.T) {
	o := newOffice(t)
	o.give("first", nil)
	var writers sync.WaitGroup
	for n := range 4 {
		writers.Go(func() {
			i := &Issuer{Objects: o.Objects, Secrets: o.Secrets, URL: gatewayURL, Now: o.clock.Now}
			var err error
			for range 10 { // more often than attempts allow where all write at once
				err = i.RotateKey(t.Context(), false)
				if !errors.Is(err, secrets.ErrConflict) && !errors.Is(err, objects.ErrConflict) {
					break
				}
			}
			if err != nil {
				t.Errorf("writer %d: %v", n, err)
			}
		})
	}
	writers.Wait()
	public, err := o.public(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	for _, k := range o.keysOf(PassKeys) {
		if len(public.Key(k.Key.KeyID)) != 1 {
			t.Errorf("the key %s does not verify", k.Key.KeyID)
		}
	}
}

// TestPublishedKeysAreLookedAt: an object with anything but public keys of ES256 verifies nothing, and is no 401.
func TestPublishedKeysAreLookedAt(t *testing.T) {
	p384, err := ecdsa.GenerateKey(elliptic.P384(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	for name, key := range map[string]func(own jose.JSONWebKey) any{
		"a private key": func(own jose.JSONWebKey) any { return own },
		"a shared key": func(jose.JSONWebKey) any {
			return jose.JSONWebKey{Key: []byte("0123456789abcdef0123456789abcdef"), KeyID: "x"}
		},
		"another curve": func(jose.JSONWebKey) any { return jose.JSONWebKey{Key: p384.Public(), KeyID: "x"} },
		"no id":         func(own jose.JSONWebKey) any { return jose.JSONWebKey{Key: own.Public().Key} },
		"no key":        func(jose.JSONWebKey) any { return "x" },
	} {
		t.Run(name, func(t *testing.T) {
			o := newOffice(t)
			made := o.give("ci", nil)
			old, err := o.Objects.Get(t.Context(), PassKeys)
			if err != nil {
				t.Fatal(err)
			}
			value, err := json.Marshal(map[string]any{"keys": []any{map[string]any{"key": key(o.keysOf(PassKeys)[0].Key)}}})
			if err == nil {
				_, err = o.Objects.Update(t.Context(), PassKeys, value, old.Revision)
			}
			if err != nil {
				t.Fatal(err)
			}
			u, err := o.show(made)
			o.want(u, err, status.StoreUnavailable, "")
			if strings.Contains(fmt.Sprint(status.From(err).Err), "0123456789") {
				t.Errorf("the error quotes the object: %v", err)
			}
		})
	}
}

// remote is a Signer with a key of its own.
type remote struct {
	name   string
	key    *ecdsa.PrivateKey
	refuse error
	signs  *ecdsa.PrivateKey // in place of key
}

func newRemote(t *testing.T, name string) *remote {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	return &remote{name: name, key: key, signs: key}
}

func (r *remote) Public(context.Context) (string, *ecdsa.PublicKey, error) {
	return r.name, &r.key.PublicKey, r.refuse
}

func (r *remote) Sign(_ context.Context, digest []byte) ([]byte, error) {
	if r.refuse != nil {
		return nil, r.refuse
	}
	return ecdsa.SignASN1(rand.Reader, r.signs, digest)
}

// TestSigner: with a key outside of the secret store, passes are valid as before, and those of the keys before until
// they end. Then nothing in the secret store makes a pass.
func TestSigner(t *testing.T) {
	o := newOffice(t)
	week := func(s *v1alpha1.PassSpec) { s.TTL.Duration = MaxTTL }
	before := o.give("before", week)
	local := o.keysOf(PassKeys)[0].Key
	o.Signer = newRemote(t, "one")
	// Many, as the numbers of a signature have leading zeros now and then.
	for n := range 50 {
		made := o.give(fmt.Sprintf("by-one-%d", n), week)
		if u, err := o.show(made); err != nil || u.Name != "ann" {
			t.Fatalf("%+v, %v", u, err)
		}
	}
	one := o.give("by-one", week)
	if _, err := o.show(before); err != nil {
		t.Errorf("a pass of the keys before: %v", err)
	}
	o.Signer = newRemote(t, "two")
	two := o.give("by-two", week)
	for name, made := range map[string]*Issued{"before": before, "one": one, "two": two} {
		if _, err := o.show(made); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
	// Now all that they signed has ended.
	o.clock.Step(useful + time.Second)
	last := o.give("last", week)
	if _, err := o.show(last); err != nil {
		t.Error(err)
	}
	for name, token := range map[string]string{
		"a forged pass of the keys before": o.forge(local, "JWT", last.Pass),
		"a pass of the Signer before":      string(one.Token.Reveal()),
	} {
		if u, err := o.AuthenticateToken(t.Context(), token); u != nil || status.From(err).Reason != status.Unauthenticated {
			t.Errorf("%s: %+v, %v", name, u, err)
		}
	}
}

// TestSignerIsNotGoneRound: where a Signer signs, a program without it makes no pass by a key in the secret store. An
// administrator can end that.
func TestSignerIsNotGoneRound(t *testing.T) {
	o := newOffice(t)
	before := o.give("before", nil)
	kms := newRemote(t, "kms")
	o.Signer = kms
	by := o.give("by-kms", nil)
	ask := func() error {
		_, err := o.Create(t.Context(), &v1alpha1.Pass{ObjectMeta: metav1.ObjectMeta{Name: "x"}, Spec: v1alpha1.PassSpec{
			User: "ann", Clusters: []string{"*"}, Verbs: []string{"*"},
		}})
		return err
	}
	for name, signer := range map[string]Signer{
		"none": nil, "one that it may not use": &remote{"kms", kms.key, ErrNotSigner, kms.key},
	} {
		o.Signer = signer
		if err := ask(); !errors.Is(err, ErrNotSigner) {
			t.Errorf("%s: %v", name, err)
		}
		if err := o.Publish(t.Context()); err != nil { // which removes nothing
			t.Errorf("%s: %v", name, err)
		}
	}
	other := newRemote(t, "kms")
	o.Signer = &remote{"kms", kms.key, nil, other.key}
	if err := ask(); err == nil {
		t.Error("a signature by another key is handed out")
	}

	o.Signer = kms
	if err := o.RotateKey(t.Context(), false); err == nil {
		t.Error("a key in KMS is rotated from here")
	}
	if err := o.RotateKey(t.Context(), true); err != nil {
		t.Fatal(err)
	}
	if _, err := o.Secrets.Get(t.Context(), PassKeys); !errors.Is(err, secrets.ErrNotFound) {
		t.Errorf("the keys before are still there: %v", err)
	}
	o.clock.Step(keysFresh)
	if _, err := o.show(by); err != nil {
		t.Error(err)
	}
	u, err := o.show(before)
	o.wantRefused(u, err, "a key that the gateway does not have any more")

	o.Signer = nil
	if err := o.RotateKey(t.Context(), false); err != nil {
		t.Fatal(err)
	}
	o.clock.Step(keysFresh)
	for name, made := range map[string]*Issued{"of the Signer": by, "of the new key": o.give("after", nil)} {
		if u, err := o.show(made); err != nil || u.Method != Method {
			t.Errorf("a pass %s: %+v, %v", name, u, err)
		}
	}
}

// renewing is a store in which an agent renews its credential before each of the first updates.
type renewing struct {
	objects.Store
	renewals int
}

func (r *renewing) Update(ctx context.Context, key string, value []byte, rev uint64) (objects.Object, error) {
	if r.renewals > 0 {
		r.renewals--
		old, err := r.Get(ctx, key)
		if err != nil {
			return objects.Object{}, err
		}
		if _, err := r.Store.Update(ctx, key, old.Value, old.Revision); err != nil {
			return objects.Object{}, err
		}
	}
	return r.Store.Update(ctx, key, value, rev)
}

// TestEnrolmentSurvivesRenewals would fail if `clusterpass cluster join --replace` failed by chance while the replaced
// agents renew their credentials.
func TestEnrolmentSurvivesRenewals(t *testing.T) {
	o := newOffice(t)
	o.private("m")
	o.Objects = &renewing{Store: o.Objects, renewals: attempts - 1}
	c := &clusterv1alpha1.Cluster{ObjectMeta: metav1.ObjectMeta{Name: "m", UID: "1"}}
	if _, err := o.EnrolAgent(t.Context(), c, time.Hour); err != nil {
		t.Error(err)
	}
}
