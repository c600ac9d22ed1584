package passes

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/clusterpass/clusterpass/shared/api/clusterpass/v1alpha1"
	"github.com/clusterpass/clusterpass/shared/identity"
	"github.com/clusterpass/clusterpass/shared/objects"
)

// Members must see exactly the user and the groups of a pass, and its limits must apply.
func TestPasses(t *testing.T) {
	for name, form := range forms {
		t.Run(name, func(t *testing.T) {
			o := newTestGateway(t)
			issued := o.issue("ci", form)
			u, err := o.authenticate(issued)
			if err != nil {
				t.Fatal(err)
			}
			if err := u.Recheck(t.Context()); err != nil {
				t.Error(err)
			}
			u.Recheck = nil
			want := &identity.User{
				Name: "ann", Groups: []string{"ops", "dev"}, Method: "pass",
				Extra:   map[string][]string{"clusterpass.io/pass": {"ci"}},
				Expires: issued.Pass.Status.ExpirationTimestamp.Time,
				Scope:   &identity.Scope{Clusters: []string{"member1"}, Verbs: []string{"get"}},
			}
			if diff := cmp.Diff(want, u, cmp.Comparer(time.Time.Equal)); diff != "" {
				t.Error(diff)
			}
			if end := o.clock.Now().Add(DefaultTTL); issued.Pass.Status.ExpirationTimestamp.Sub(end).Abs() > time.Second {
				t.Errorf("it ends at %s, want %s", issued.Pass.Status.ExpirationTimestamp, end)
			}
			if whole, err := o.authenticate(o.issue("all", func(s *v1alpha1.PassSpec) {
				if form != nil {
					form(s)
				}
				s.Clusters, s.Verbs = []string{"x", "*"}, []string{"*"}
			})); err != nil || whole.Scope != nil {
				t.Errorf("without limits: %+v, %v", whole, err)
			}
		})
	}
}

// An expired pass must stop working, also for open streams.
func TestExpiry(t *testing.T) {
	for name, form := range forms {
		t.Run(name, func(t *testing.T) {
			o := newTestGateway(t)
			issued := o.issue("ci", form)
			u, err := o.authenticate(issued)
			if err != nil {
				t.Fatal(err)
			}
			o.clock.Step(DefaultTTL + clockSkew + time.Second)
			again, err := o.authenticate(issued)
			o.wantRefused(again, err, "has expired")
			if err := u.Recheck(t.Context()); err == nil {
				t.Error("an open stream goes on")
			}
		})
	}
}

// An edit of a pass's object must end its credential, never change its user or rights.
func TestChanged(t *testing.T) {
	change := func(o *testGateway, edit func(*v1alpha1.Pass)) {
		t.Helper()
		old, err := o.Objects.Get(t.Context(), "passes/ci")
		if err != nil {
			t.Fatal(err)
		}
		var p v1alpha1.Pass
		if err := json.Unmarshal(old.Value, &p); err != nil {
			t.Fatal(err)
		}
		edit(&p)
		value, err := json.Marshal(p)
		if err == nil {
			_, err = o.Objects.Update(t.Context(), old.Key, value, old.Revision)
		}
		if err != nil {
			t.Fatal(err)
		}
		o.clock.Step(RemoteFresh)
	}
	for name, form := range forms {
		t.Run(name, func(t *testing.T) {
			o := newTestGateway(t)
			u, err := o.authenticate(o.issue("ci", form))
			if err != nil {
				t.Fatal(err)
			}
			change(o, func(p *v1alpha1.Pass) { p.Labels = map[string]string{"a": "b"} })
			if err := u.Recheck(t.Context()); err != nil {
				t.Errorf("a label: %v", err)
			}
			change(o, func(p *v1alpha1.Pass) { p.Spec.Clusters = []string{"member2"} })
			o.wantRefused(nil, u.Recheck(t.Context()), `the pass "ci" was changed`)
		})
	}
	o := newTestGateway(t)
	issued := o.issue("ci", certificate)
	change(o, func(p *v1alpha1.Pass) { p.Spec.User = "root" })
	u, err := o.authenticate(issued)
	o.wantRefused(u, err, `the pass "ci" was changed`)
}

// Users revoke passes by name, so a name must identify one pass.
func TestNamesAreUnique(t *testing.T) {
	o := newTestGateway(t)
	issued := o.issue("ci", nil)
	if _, err := o.Create(t.Context(), issued.Pass); !errors.Is(err, objects.ErrExists) {
		t.Errorf("twice: %v", err)
	}
}

// An invalid pass must be refused with an error that names the field.
func TestValidate(t *testing.T) {
	for want, change := range map[string]func(*v1alpha1.Pass){
		`metadata.name "A": `:                           func(p *v1alpha1.Pass) { p.Name = "A" },
		`metadata.name "": `:                            func(p *v1alpha1.Pass) { p.Name = "" },
		`spec.user "": `:                                func(p *v1alpha1.Pass) { p.Spec.User = "" },
		`spec.user " ann": `:                            func(p *v1alpha1.Pass) { p.Spec.User = " ann" },
		`spec.groups "a\nb": `:                          func(p *v1alpha1.Pass) { p.Spec.Groups = []string{"a\nb"} },
		`spec.clusters: name the clusters`:              func(p *v1alpha1.Pass) { p.Spec.Clusters = nil },
		`spec.clusters "a/b": `:                         func(p *v1alpha1.Pass) { p.Spec.Clusters = []string{"a/b"} },
		`spec.verbs: name the verbs`:                    func(p *v1alpha1.Pass) { p.Spec.Verbs = nil },
		`spec.verbs "list": want one of *, get, create`: func(p *v1alpha1.Pass) { p.Spec.Verbs = []string{"list"} },
		`spec.ttl 59s: want 1m0s to 168h0m0s`:           func(p *v1alpha1.Pass) { p.Spec.TTL.Duration = 59 * time.Second },
		`spec.ttl 168h0m1s: `: func(p *v1alpha1.Pass) {
			p.Spec.TTL.Duration = MaxTTL +
				time.Second
		},
		`spec.form "jwt": want token or certificate`: func(p *v1alpha1.Pass) { p.Spec.Form = "jwt" },
		`spec.ttl 24h0m1s: want 1m0s to 24h0m0s`: func(p *v1alpha1.Pass) {
			p.Spec.Form, p.Spec.TTL.Duration = v1alpha1.Certificate, MaxCertificateTTL+time.Second
		},
	} {
		p := &v1alpha1.Pass{ObjectMeta: metav1.ObjectMeta{Name: "ci"},
			Spec: v1alpha1.PassSpec{User: "ann", Clusters: []string{"m"}, Verbs: []string{"get"}}}
		change(p)
		SetDefaults(&p.Spec, MaxTTL)
		if err := Validate(p, MaxTTL); err == nil || !strings.HasPrefix(err.Error(), want) {
			t.Errorf("got  %v\nwant %s", err, want)
		}
	}
}

// The error of a pass with several invalid fields must not change from call to call.
func TestValidateNamesTheFirstField(t *testing.T) {
	p := &v1alpha1.Pass{ObjectMeta: metav1.ObjectMeta{Name: "ci"}, Spec: v1alpha1.PassSpec{Groups: []string{""}}}
	for range 50 {
		if err := Validate(p, MaxTTL); err == nil || !strings.HasPrefix(err.Error(), "spec.user ") {
			t.Fatal(err)
		}
	}
}

// An object that a program damaged must not hide the other passes and revocations. It must never allow more than
// before.
func TestUndecodableObjectsAreReported(t *testing.T) {
	o := newTestGateway(t)
	damaged, intact := o.issue("damaged", certificate), o.issue("intact", certificate)
	for _, key := range []string{v1alpha1.PassPrefix + "damaged", v1alpha1.RevocationPrefix + "abc"} {
		if err := o.replace(t.Context(), key, []byte(`{"spec":{"user":7}}`)); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := o.RevokeCertificate(t.Context(), Revocation{Serial: "def"}); err != nil {
		t.Fatal(err)
	}
	var reported []string
	report := func(name string, err error) {
		if err == nil {
			t.Errorf("%s has no error", name)
		}
		reported = append(reported, name)
	}
	all, err := o.List(t.Context(), report)
	if err != nil || len(all) != 1 || all[0].Name != "intact" || !slices.Equal(reported, []string{"damaged"}) {
		t.Errorf("passes %+v, reported %q, %v", all, reported, err)
	}
	reported = nil
	revoked, err := o.Revocations(t.Context(), report)
	if err != nil || len(revoked) != 1 || revoked[0].Name != "def" || !slices.Equal(reported, []string{"abc"}) {
		t.Errorf("revocations %+v, reported %q, %v", revoked, reported, err)
	}
	u, err := o.authenticate(damaged)
	o.wantRefused(u, err, "its object cannot be decoded")
	if _, err := o.authenticate(intact); err != nil {
		t.Error(err)
	}
	o.wantRefused(nil, o.checkRevocation(t.Context(), "abc"), "was revoked")
	if err := o.Prune(t.Context()); err != nil {
		t.Error(err)
	}
	if err := o.Revoke(t.Context(), "damaged"); err != nil {
		t.Error(err)
	}
}

// Expired passes must not fill the store, and valid ones must stay.
func TestPrune(t *testing.T) {
	o := newTestGateway(t)
	for n := range prunePage + 2 { // more than a page
		if _, err := o.Objects.Create(t.Context(), fmt.Sprintf("%sold-%d", v1alpha1.PassPrefix, n), []byte(fmt.Sprintf(
			`{"status":{"expirationTimestamp":%q}}`, o.clock.Now().Add(time.Minute).UTC().Format(time.RFC3339)))); err != nil {
			t.Fatal(err)
		}
	}
	o.clock.Step(pruneAfter)
	expectRemaining := func(want ...string) {
		t.Helper()
		if err := o.Prune(t.Context()); err != nil {
			t.Fatal(err)
		}
		all, err := o.List(t.Context(), func(name string, err error) { t.Errorf("%s: %v", name, err) })
		if err != nil || want == nil && len(all) != prunePage+2 || want != nil &&
			!slices.EqualFunc(all, want, func(p v1alpha1.Pass, name string) bool { return p.Name == name }) {
			t.Errorf("%d passes are left, %v", len(all), err)
		}
	}
	expectRemaining()
	o.clock.Step(2 * time.Minute)
	o.issue("next", nil)
	expectRemaining("next")
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	o.Maintain(ctx, func(err error) { t.Errorf("its end is no failure: %v", err) })
}
