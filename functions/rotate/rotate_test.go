package rotate

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/secretsmanager"

	"github.com/clusterpass/clusterpass/shared/config"
	"github.com/clusterpass/clusterpass/shared/leaktest"
	"github.com/clusterpass/clusterpass/shared/secrets"
)

func TestMain(m *testing.M) { leaktest.Main(m) }

func withToken(m *fakeMember) string { return m.kubeconfig("token-0") }

func TestRotation(t *testing.T) {
	b, _ := onFake(t, withToken)
	for n := 1; n <= 3; n++ {
		b.begin(id(n))
		if err := b.rotate(t.Context(), b.manager, id(n)); err != nil {
			t.Fatal(err)
		}
		wantStages(t, b.manager, b.secret, current, id(n), "AWSPREVIOUS", id(n-1))
		if got, want := tokenOf(t, b.manager, b.secret, current), fmt.Sprintf("token-%d", n); got != want {
			t.Errorf("current token %s, want %s", got, want)
		}
		if got, want := tokenOf(t, b.manager, b.secret, "AWSPREVIOUS"), fmt.Sprintf("token-%d", n-1); got != want {
			t.Errorf("previous token %s, want %s", got, want)
		}
	}
	var asked tokenRequest
	if err := json.Unmarshal([]byte(b.asked[0]), &asked); err != nil || asked.Spec.ExpirationSeconds != 48*3600 ||
		asked.Kind != "TokenRequest" {
		t.Errorf("asked for %s", b.asked[0])
	}
	if strings.Contains(b.log.String(), "token-") {
		t.Errorf("the log shows a token:\n%s", b.log)
	}
}

// TestEveryStepTwice: a repeated step changes nothing.
func TestEveryStepTwice(t *testing.T) {
	b, _ := onFake(t, withToken)
	b.begin(id(1))
	for _, step := range steps {
		for range 2 {
			if err := b.handle(t.Context(), b.manager, step, id(1)); err != nil {
				t.Fatal(err)
			}
		}
	}
	for _, step := range steps { // repeat everything
		if err := b.handle(t.Context(), b.manager, step, id(1)); err != nil {
			t.Fatal(err)
		}
	}
	wantStages(t, b.manager, b.secret, current, id(1), "AWSPREVIOUS", id(0))
	if b.minted != 1 {
		t.Errorf("%d tokens minted, want 1", b.minted)
	}
}

// TestEveryStepAtOnce: concurrent calls of a step have the effect of one.
func TestEveryStepAtOnce(t *testing.T) {
	b, _ := onFake(t, withToken)
	b.log = nil
	for n := 1; n <= 20; n++ {
		b.begin(id(n))
		for _, step := range steps {
			var wg sync.WaitGroup
			for range 4 {
				wg.Go(func() {
					r := b.rotator(b.manager)
					r.Log = slog.New(slog.DiscardHandler)
					if err := r.Handle(t.Context(), Event{step, b.secret, id(n)}); err != nil {
						t.Errorf("%s: %v", step, err)
					}
				})
			}
			wg.Wait()
		}
		wantStages(t, b.manager, b.secret, current, id(n), "AWSPREVIOUS", id(n-1))
	}
}

// dieEverywhere rotates once for each call to Secrets Manager, and dies before or after that call. A new process then
// starts the rotation again. The current token must be valid at all times.
func dieEverywhere(t *testing.T, b *stand) {
	version := 0
	for calls := 1; ; calls++ {
		died := false
		for _, after := range []bool{false, true} {
			version++
			before := stagesOf(t, b.manager, b.secret)[current]
			b.begin(id(version))
			err := b.rotate(t.Context(), &mortal{b.manager, calls, after}, id(version))
			died = died || err != nil
			if err != nil && !errors.Is(err, errDied) {
				t.Fatalf("dead at call %d: %v", calls, err)
			}
			if !b.accepts(tokenOf(t, b.manager, b.secret, current)) {
				t.Fatalf("dead at call %d (after it: %v): the current token is not good", calls, after)
			}
			if err := b.rotate(t.Context(), b.manager, id(version)); err != nil {
				t.Fatalf("again after dying at call %d (after it: %v): %v", calls, after, err)
			}
			wantStages(t, b.manager, b.secret, current, id(version), "AWSPREVIOUS", before)
			if !b.accepts(tokenOf(t, b.manager, b.secret, current)) {
				t.Fatalf("after dying at call %d (after it: %v): the current token is not good", calls, after)
			}
		}
		if !died {
			if calls < 8 {
				t.Errorf("a rotation makes %d calls only: the test sees too little", calls)
			}
			return
		}
	}
}

func TestDyingAnywhere(t *testing.T) {
	b, _ := onFake(t, withToken)
	dieEverywhere(t, b)
}

func TestOnMoto(t *testing.T) {
	if testing.Short() {
		t.Skip("slow: make test runs it")
	}
	b, _ := onMoto(t)
	dieEverywhere(t, b)
}

// TestLostResponse: the SDK repeats a call whose response was lost, and Secrets Manager refuses the second one. If the
// process dies before it has read the result, its log must show both errors.
func TestLostResponse(t *testing.T) {
	if testing.Short() {
		t.Skip("slow: make test runs it")
	}
	b, front := onMoto(t)
	for n, tt := range []struct {
		name string
		dies int // the call with which a process dies before the lost response; 0 for none
		read int // the call that would have shown the result
		want string
	}{
		{"of the move of AWSCURRENT", 0, 4, "make the new token current: "},
		{"of the removal of AWSPENDING", 4, 3, "end the rotation: "},
	} {
		t.Run(tt.name, func(t *testing.T) {
			version := id(n + 1)
			b.begin(version)
			for _, step := range steps[:3] {
				if err := b.handle(t.Context(), b.manager, step, version); err != nil {
					t.Fatal(err)
				}
			}
			if tt.dies > 0 {
				err := b.handle(t.Context(), &mortal{b.manager, tt.dies, false}, "finishSecret", version)
				if !errors.Is(err, errDied) {
					t.Fatal(err)
				}
			}
			front.Lose("UpdateSecretVersionStage", 1)
			err := b.handle(t.Context(), &mortal{b.manager, tt.read, false}, "finishSecret", version)
			if !errors.Is(err, errDied) || !strings.Contains(err.Error(), tt.want) {
				t.Errorf("%v, want %q and %q", err, tt.want, errDied)
			}
			if err := b.handle(t.Context(), b.manager, "finishSecret", version); err != nil {
				t.Error(err)
			}
			wantStages(t, b.manager, b.secret, current, version, "AWSPREVIOUS", id(n))
		})
	}
}

func TestReplacedMeanwhile(t *testing.T) {
	for at := 1; at < len(steps); at++ {
		t.Run("before "+steps[at], func(t *testing.T) {
			b, f := onFake(t, withToken)
			b.begin(id(1))
			var err error
			for i, step := range steps {
				if i == at {
					f.replace(id(100), strings.ReplaceAll(f.kubeconfigOf(id(0)), "token-0", "registered"))
					b.users["registered"] = robot
				}
				if err = b.handle(t.Context(), b.manager, step, id(1)); err != nil && step != "finishSecret" {
					t.Fatalf("%s: %v", step, err)
				}
			}
			if err == nil || !strings.Contains(err.Error(), "replaced during its rotation") {
				t.Errorf("error %v", err)
			}
			wantStages(t, b.manager, b.secret, current, id(100), "AWSPREVIOUS", id(0))
			// Secrets Manager can begin anew.
			b.begin(id(2))
			if err := b.rotate(t.Context(), b.manager, id(2)); err != nil {
				t.Fatal(err)
			}
			wantStages(t, b.manager, b.secret, current, id(2), "AWSPREVIOUS", id(100))
		})
	}
}

func (f *fakeManager) kubeconfigOf(id string) string { return *f.values[id] }

// TestReplacedAtTheLastMoment: Secrets Manager refuses to move AWSCURRENT from a version that is not current.
func TestReplacedAtTheLastMoment(t *testing.T) {
	b, f := onFake(t, withToken)
	b.begin(id(1))
	for _, step := range steps[:3] {
		if err := b.handle(t.Context(), b.manager, step, id(1)); err != nil {
			t.Fatal(err)
		}
	}
	err := b.handle(t.Context(), &replacing{Manager: f, then: func() { f.replace(id(100), f.kubeconfigOf(id(0))) }},
		"finishSecret", id(1))
	if err == nil {
		t.Error("no error")
	}
	if got := stagesOf(t, f, b.secret)[current]; got != id(100) {
		t.Errorf("current is %s", got)
	}
}

// replacing calls then after reading a value.
type replacing struct {
	Manager
	then func()
}

func (r *replacing) GetSecretValue(ctx context.Context, in *secretsmanager.GetSecretValueInput,
	_ ...func(*secretsmanager.Options)) (*secretsmanager.GetSecretValueOutput, error) {
	out, err := r.Manager.GetSecretValue(ctx, in)
	r.then()
	return out, err
}

// TestConfigurationIsTested covers the call that Secrets Manager makes when rotation is enabled for a later time:
// testSecret alone, on a copy of the present value.
func TestConfigurationIsTested(t *testing.T) {
	b, f := onFake(t, withToken)
	for n := 1; n <= 2; n++ { // the second time, the present value comes from a rotation
		f.begin(id(n * 10))
		copied := f.kubeconfigOf(f.holder(current))
		f.values[id(n*10)] = &copied
		if err := b.handle(t.Context(), f, "testSecret", id(n*10)); err != nil {
			t.Fatal(err)
		}
		f.move(pending, "")
		f.begin(id(n))
		if err := b.rotate(t.Context(), f, id(n)); err != nil {
			t.Fatal(err)
		}
	}
}

func TestRefusals(t *testing.T) {
	certificate := func(m *fakeMember) string {
		return strings.ReplaceAll(withToken(m), "user: {token: token-0}", "user: {username: u, password: p}")
	}
	tests := []struct {
		name       string
		kubeconfig func(*fakeMember) string
		step, id   string
		change     func(*stand, *fakeManager)
		want       string
	}{
		{name: "another step", step: "deleteSecret", want: `step "deleteSecret"`},
		{name: "a version that is not there", id: id(7), want: "has no version"},
		{
			name:   "a version that is not pending",
			change: func(_ *stand, f *fakeManager) { f.move(pending, ""); f.move("CAND", id(1)) }, want: "is not AWSPENDING",
		},
		{name: "no token to renew", kubeconfig: certificate, want: "contains no token"},
		{
			name: "a person's token", change: func(b *stand, _ *fakeManager) { b.users["token-0"] = "alice" },
			want: `of the user "alice"`,
		},
		{
			name: "a token that expired", change: func(b *stand, _ *fakeManager) { delete(b.users, "token-0") },
			want: "must be registered again",
		},
		{
			name: "not allowed to", change: func(b *stand, _ *fakeManager) { b.forbid = true },
			want: "grant the account create on its own serviceaccounts/token",
		},
		{name: "member away", change: func(b *stand, _ *fakeManager) { b.Close() }, want: "connection refused"},
		{
			name: "another installation", change: func(_ *stand, f *fakeManager) { f.name = "other/clusters/member1" },
			want: `does not begin with "clusterpass/"`,
		},
		{
			name: "no cluster", change: func(_ *stand, f *fakeManager) { f.name = "clusterpass/clusters/nobody" },
			want: "no cluster names",
		},
		{name: "a bad kubeconfig", kubeconfig: func(*fakeMember) string { return "hidden: {" }, want: "kubeconfig: (file)"},
		{name: "a token that is not the account's", step: "testSecret", change: func(b *stand, _ *fakeManager) {
			if err := b.handle(context.Background(), b.manager, "createSecret", id(1)); err != nil {
				panic(err)
			}
			b.users["token-1"] = "system:serviceaccount:kube-system:root"
		}, want: "the one before was of"},
		{name: "a token that does not work", step: "testSecret", change: func(b *stand, _ *fakeManager) {
			if err := b.handle(context.Background(), b.manager, "createSecret", id(1)); err != nil {
				panic(err)
			}
			delete(b.users, "token-1")
		}, want: "refuses the credential"},
		{name: "nothing to test", step: "testSecret", want: "no value yet"},
		{name: "nothing to finish", step: "finishSecret", want: "no value yet"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			if tt.kubeconfig == nil {
				tt.kubeconfig = withToken
			}
			b, f := onFake(t, tt.kubeconfig)
			f.begin(id(1))
			if tt.change != nil {
				tt.change(b, f)
			}
			err := b.handle(t.Context(), f, orDefault(tt.step, "createSecret"), orDefault(tt.id, id(1)))
			if err == nil || !strings.Contains(err.Error(), tt.want) {
				t.Errorf("error %v, want one with %q", err, tt.want)
			}
			if f.holder(current) != id(0) {
				t.Error("the current version changed")
			}
			for _, shown := range []string{"token-0", "token-1", "hidden"} {
				if err != nil && strings.Contains(err.Error()+b.log.String(), shown) {
					t.Errorf("%q is shown: %v\n%s", shown, err, b.log)
				}
			}
		})
	}
}

func orDefault(s, def string) string {
	if s == "" {
		return def
	}
	return s
}

func TestShortTokenIsSaid(t *testing.T) {
	b, f := onFake(t, withToken)
	f.begin(id(1))
	if err := b.handle(t.Context(), &scheduled{f}, "createSecret", id(1)); err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(b.log.String(), "the token ends before the next rotation") {
		t.Errorf("log:\n%s", b.log)
	}
}

// scheduled rotates next in a month.
type scheduled struct{ *fakeManager }

func (s *scheduled) DescribeSecret(ctx context.Context, in *secretsmanager.DescribeSecretInput,
	_ ...func(*secretsmanager.Options)) (*secretsmanager.DescribeSecretOutput, error) {
	out, err := s.fakeManager.DescribeSecret(ctx, in)
	out.NextRotationDate = aws.Time(time.Now().AddDate(0, 1, 0))
	return out, err
}

func TestRenewKeepsTheRest(t *testing.T) {
	in := []byte(
		`{contexts: [{name: x, context: {cluster: c, user: u}}], clusters: [{name: c, cluster: {server: "https://x",
  proxy-url: "http://p", tls-server-name: name}}],
users: [{name: u, user: {token: old, extensions: [{name: other, extension: {a: 1}}]}}]}`)
	once, err := renew(in, "new", origin{"v1", "a"})
	if err != nil {
		t.Fatal(err)
	}
	twice, err := renew(once.Reveal(), "newer", origin{"v2", "a"})
	if err != nil {
		t.Fatal(err)
	}
	kc, user, err := currentUser(twice.Reveal())
	if err != nil {
		t.Fatal(err)
	}
	if c := kc.Clusters[0].Cluster; user.Token != "newer" || c.Server != "https://x" || c.ProxyURL != "http://p" ||
		c.TLSServerName != "name" {
		t.Errorf("%+v %+v", c, user.Extensions)
	}
	if len(user.Extensions) != 2 || user.Extensions[0].Name != "other" || originOf(twice) != (origin{"v2", "a"}) {
		t.Errorf("extensions %+v", user.Extensions)
	}
	if o := originOf(secrets.NewValue(in)); o != (origin{}) {
		t.Errorf("origin %+v of a kubeconfig that was not renewed", o)
	}
}

func TestConfig(t *testing.T) {
	tests := []struct {
		set  []string
		want string // part of the error
	}{
		{[]string{"STORE=dir:/x"}, "CLUSTERPASS_STORE: only AWS"},
		{[]string{"STORE=aws:x", "TOKEN_LIFETIME=1m"}, "CLUSTERPASS_TOKEN_LIFETIME: want 10m"},
		{[]string{"STORE=aws:x"}, ""},
	}
	for _, tt := range tests {
		t.Run(strings.Join(tt.set, " "), func(t *testing.T) {
			for _, kv := range tt.set {
				name, value, _ := strings.Cut(kv, "=")
				t.Setenv("CLUSTERPASS_"+name, value)
			}
			err := config.Load(&Config{})
			if (err == nil) != (tt.want == "") || err != nil && !strings.Contains(err.Error(), tt.want) {
				t.Errorf("error %v, want %q", err, tt.want)
			}
		})
	}
}
