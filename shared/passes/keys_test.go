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

func (o *testGateway) private(name string) string {
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

func (o *testGateway) tunnelToken(cluster string) string {
	o.t.Helper()
	token, err := o.TunnelToken(o.t.Context(), cluster)
	if err != nil {
		o.t.Fatal(err)
	}
	return string(token.Reveal())
}

func (o *testGateway) keysOf(set string) []signingKey {
	o.t.Helper()
	keys, _, err := readKeys(o.t.Context(), o.Secrets, set)
	if err != nil || len(keys.Keys) == 0 {
		o.t.Fatalf("%s: %+v, %v", set, keys, err)
	}
	return keys.Keys
}

// forge signs a pass for root with a stolen private key, and with the uid of an existing pass.
func (o *testGateway) forge(key any, typ string, of *v1alpha1.Pass) string {
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

// TestReadersMakeNoPass attacks with the secrets of a function. If they sufficed to sign a pass, an attacker there
// could be any user.
func TestReadersMakeNoPass(t *testing.T) {
	o := newTestGateway(t)
	issued := o.issue("ci", nil)
	agent := o.private("prod")
	o.clock.Step(keysFresh)
	read := &recorder{Store: o.Secrets}
	function := NewVerifier(Config{Objects: o.store, Secrets: read, URL: gatewayURL, Fresh: RemoteFresh, Now: o.clock.Now})

	if u, err := function.AuthenticateToken(t.Context(), string(issued.Token.Reveal())); err != nil || u.Name != "ann" {
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
	auth := AgentAuth{Token: agent, Use: possession.Renew}
	if _, err := function.AuthenticateAgent(t.Context(), "prod", auth); err != nil {
		t.Fatal(err)
	}

	names := slices.Compact(slices.Sorted(slices.Values(read.read)))
	if !slices.Equal(names, []string{TunnelKeys}) {
		t.Errorf("a function that only reads has read the secrets %v", names)
	}
	for _, name := range names {
		for _, key := range o.keysOf(name) {
			u, err := o.AuthenticateToken(t.Context(), o.forge(key.Key, "JWT", issued.Pass))
			o.wantRefused(u, err, "a key that the gateway does not have")
		}
	}
}

// If keys signed other kinds, an agent of a private cluster, or a program that connects to one, could be any caller.
func TestKeysAreApart(t *testing.T) {
	o := newTestGateway(t)
	issued := o.issue("ci", nil)
	agent := o.private("prod")
	pass, connect := string(issued.Token.Reveal()), o.tunnelToken("prod")
	own := o.keysOf(PassKeys)[0].Key
	if u, err := o.AuthenticateToken(t.Context(), o.forge(own, "JWT", issued.Pass)); err != nil || u.Name != "ann" {
		t.Fatalf("what is right is not taken: %+v, %v", u, err)
	}
	for _, set := range []string{TunnelKeys, AgentKeys} {
		key := o.keysOf(set)[0].Key
		renamed := key
		renamed.KeyID = own.KeyID
		for name, token := range map[string]string{
			"by its own name": o.forge(key, "JWT", issued.Pass), "with its own type": o.forge(key, tunnelToken.typ, issued.Pass),
			"by the name of a key of passes": o.forge(renamed, "JWT", issued.Pass),
		} {
			t.Run(set+" "+name, func(t *testing.T) {
				u, err := o.AuthenticateToken(t.Context(), token)
				o.wantRefused(u, err, "")
			})
		}
	}
	for name, token := range map[string]string{
		"a tunnel token": connect, "an agent's credential": agent, "another type": o.forge(own, tunnelToken.typ, issued.Pass),
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
		a, err := o.AuthenticateAgent(t.Context(), "prod", AgentAuth{Token: token, Use: possession.Renew})
		if a != nil || status.From(err).Reason != status.Unauthenticated {
			t.Errorf("%s is an agent's credential: %+v, %v", name, a, err)
		}
	}
	if err := o.VerifyTunnelToken(t.Context(), connect, "prod"); err != nil {
		t.Error(err)
	}
	if _, err := o.AuthenticateAgent(t.Context(), "prod", AgentAuth{Token: agent, Use: possession.Renew}); err != nil {
		t.Error(err)
	}
}

// Until a program has published its keys, the response is 503, so that no client deletes its pass.
func TestPublishedKeysOfEarlierVersions(t *testing.T) {
	o := newTestGateway(t)
	issued := o.issue("ci", nil)
	old, err := o.Objects.Get(t.Context(), PassKeys)
	if err == nil {
		_, err = o.Objects.Delete(t.Context(), PassKeys, old.Revision)
	}
	if err != nil {
		t.Fatal(err)
	}
	u, err := o.authenticate(issued)
	o.want(u, err, status.StoreUnavailable, "are not published yet")
	if err := o.PublishAll(t.Context()); err != nil {
		t.Fatal(err)
	}
	o.clock.Step(retry)
	if _, err := o.authenticate(issued); err != nil {
		t.Error(err)
	}
	for _, set := range []string{AgentKeys, TunnelKeys} {
		if _, err := o.Secrets.Get(t.Context(), set); !errors.Is(err, secrets.ErrNotFound) {
			t.Errorf("without private clusters there is %s: %v", set, err)
		}
	}
}

// Private clusters of an earlier version must stay reachable without an administrator.
func TestTunnelKeysAfterUpgrade(t *testing.T) {
	o := newTestGateway(t)
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

// A writer that removes another's key would end valid passes.
func TestConcurrentKeyWriters(t *testing.T) {
	o := newTestGateway(t)
	o.issue("first", nil)
	var writers sync.WaitGroup
	for n := range 4 {
		writers.Go(func() {
			i := &Issuer{Objects: o.Objects, Secrets: o.Secrets, URL: gatewayURL, Now: o.clock.Now}
			var err error
			for range 10 { // more than attempts allow if all write at once
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

// An object with other than public ES256 keys must verify nothing, and yield no 401.
func TestPublishedKeysAreValidated(t *testing.T) {
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
			o := newTestGateway(t)
			issued := o.issue("ci", nil)
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
			u, err := o.authenticate(issued)
			o.want(u, err, status.StoreUnavailable, "")
			if strings.Contains(fmt.Sprint(status.From(err).Err), "0123456789") {
				t.Errorf("the error quotes the object: %v", err)
			}
		})
	}
}

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

// Earlier passes must stay valid until they expire. After that, no key in the secret store may sign a pass.
func TestSigner(t *testing.T) {
	o := newTestGateway(t)
	week := func(s *v1alpha1.PassSpec) { s.TTL.Duration = MaxTTL }
	before := o.issue("before", week)
	local := o.keysOf(PassKeys)[0].Key
	o.Signer = newRemote(t, "one")
	// Many signatures, because their numbers sometimes have leading zeros.
	for n := range 50 {
		issued := o.issue(fmt.Sprintf("by-one-%d", n), week)
		if u, err := o.authenticate(issued); err != nil || u.Name != "ann" {
			t.Fatalf("%+v, %v", u, err)
		}
	}
	one := o.issue("by-one", week)
	if _, err := o.authenticate(before); err != nil {
		t.Errorf("a pass of the keys before: %v", err)
	}
	o.Signer = newRemote(t, "two")
	two := o.issue("by-two", week)
	for name, issued := range map[string]*Issued{"before": before, "one": one, "two": two} {
		if _, err := o.authenticate(issued); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
	// By now all tokens of the earlier keys have expired.
	o.clock.Step(verifyPeriod + time.Second)
	last := o.issue("last", week)
	if _, err := o.authenticate(last); err != nil {
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

// While a Signer signs, a program without it must issue no pass, until an administrator ends that.
func TestSignerIsNotBypassed(t *testing.T) {
	o := newTestGateway(t)
	before := o.issue("before", nil)
	kms := newRemote(t, "kms")
	o.Signer = kms
	bySigner := o.issue("by-kms", nil)
	tryIssue := func() error {
		_, err := o.Create(t.Context(), &v1alpha1.Pass{ObjectMeta: metav1.ObjectMeta{Name: "x"}, Spec: v1alpha1.PassSpec{
			User: "ann", Clusters: []string{"*"}, Verbs: []string{"*"},
		}})
		return err
	}
	for name, signer := range map[string]Signer{
		"none": nil, "one that it may not use": &remote{"kms", kms.key, ErrNotSigner, kms.key},
	} {
		o.Signer = signer
		if err := tryIssue(); !errors.Is(err, ErrNotSigner) {
			t.Errorf("%s: %v", name, err)
		}
		if err := o.Publish(t.Context()); err != nil { // removes nothing
			t.Errorf("%s: %v", name, err)
		}
	}
	other := newRemote(t, "kms")
	o.Signer = &remote{"kms", kms.key, nil, other.key}
	if err := tryIssue(); err == nil {
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
	if _, err := o.authenticate(bySigner); err != nil {
		t.Error(err)
	}
	u, err := o.authenticate(before)
	o.wantRefused(u, err, "a key that the gateway does not have")

	o.Signer = nil
	if err := o.RotateKey(t.Context(), false); err != nil {
		t.Fatal(err)
	}
	o.clock.Step(keysFresh)
	for name, issued := range map[string]*Issued{"of the Signer": bySigner, "of the new key": o.issue("after", nil)} {
		if u, err := o.authenticate(issued); err != nil || u.Method != Method {
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

// clusterpass cluster join --replace must not fail because the replaced agents renew their credentials.
func TestEnrolmentSurvivesRenewals(t *testing.T) {
	o := newTestGateway(t)
	o.private("m")
	o.Objects = &renewing{Store: o.Objects, renewals: attempts - 1}
	c := &clusterv1alpha1.Cluster{ObjectMeta: metav1.ObjectMeta{Name: "m", UID: "1"}}
	if _, err := o.EnrolAgent(t.Context(), c, time.Hour); err != nil {
		t.Error(err)
	}
}
