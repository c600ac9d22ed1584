package eks

import (
	"bytes"
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"os/exec"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	awsconfig "github.com/aws/aws-sdk-go-v2/config"
	"github.com/google/go-cmp/cmp"
	testingclock "k8s.io/utils/clock/testing"

	"github.com/clusterpass/clusterpass/shared/leaktest"
	"github.com/clusterpass/clusterpass/shared/waittest"
)

func TestMain(m *testing.M) { leaktest.Main(m) }

var update = flag.Bool("update", false, "write testdata/get-token.json anew from what the AWS CLI prints")

const golden = "testdata/get-token.json"

func keys(more ...string) []string {
	return append([]string{
		"AWS_ACCESS_KEY_ID=AKIDEXAMPLE", "AWS_SECRET_ACCESS_KEY=wJalrXUtnFEMI/K7MDENG+bPxRfiCYEXAMPLEKEY",
		"AWS_CONFIG_FILE=/dev/null", "AWS_SHARED_CREDENTIALS_FILE=/dev/null", "AWS_EC2_METADATA_DISABLED=true",
	}, more...)
}

func isolate(t *testing.T, env []string) {
	t.Helper()
	for _, kv := range os.Environ() {
		name, value, _ := strings.Cut(kv, "=")
		if strings.HasPrefix(name, "AWS_") {
			t.Setenv(name, value) // restores the value after the test
			_ = os.Unsetenv(name)
		}
	}
	for _, kv := range env {
		name, value, _ := strings.Cut(kv, "=")
		t.Setenv(name, value)
	}
}

func cliURL(t *testing.T, args string, env []string) string {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Minute)
	defer cancel()
	cmd := exec.CommandContext(ctx, "aws", strings.Fields(args)...)
	cmd.Env = append(env, "PATH="+os.Getenv("PATH"), "HOME="+os.Getenv("HOME"))
	var errOut bytes.Buffer
	cmd.Stderr = &errOut
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("aws %s: %v: %s", args, err, errOut.Bytes())
	}
	var cred struct{ Status struct{ Token string } }
	if err := json.Unmarshal(out, &cred); err != nil {
		t.Fatal(err)
	}
	return decode(t, cred.Status.Token)
}

func decode(t *testing.T, token string) string {
	t.Helper()
	b64, ok := strings.CutPrefix(token, "k8s-aws-v1.")
	u, err := base64.RawURLEncoding.DecodeString(b64)
	if !ok || err != nil {
		t.Fatalf("token %q: %v", token, err)
	}
	return string(u)
}

func ourURL(t *testing.T, args string, another string) string {
	t.Helper()
	spec, err := ParseExec("aws", strings.Fields(args), nil)
	if err != nil {
		t.Fatal(err)
	}
	now, err := time.Parse("20060102T150405Z", query(t, another).Get("X-Amz-Date"))
	if err != nil {
		t.Fatal(err)
	}
	token, err := NewSource(Config{Now: func() time.Time { return now }}).Token(t.Context(), *spec)
	if err != nil {
		t.Fatal(err)
	}
	return decode(t, token)
}

func query(t *testing.T, u string) url.Values {
	t.Helper()
	parsed, err := url.Parse(u)
	if err != nil {
		t.Fatal(err)
	}
	q, err := url.ParseQuery(parsed.RawQuery)
	if err != nil {
		t.Fatal(err)
	}
	return q
}

func compare(t *testing.T, got, want string) {
	t.Helper()
	gotBase, _, _ := strings.Cut(got, "?")
	wantBase, _, _ := strings.Cut(want, "?")
	if gotBase != wantBase {
		t.Errorf("URL %s, want %s", gotBase, wantBase)
	}
	if diff := cmp.Diff(query(t, want), query(t, got)); diff != "" {
		t.Errorf("parameters differ (-AWS CLI, +ours):\n%s", diff)
	}
}

// The token must equal that of the AWS CLI, in a recorded output and in that of an installed CLI.
func TestTokenIsTheOneOfTheAWSCLI(t *testing.T) {
	if testing.Short() {
		t.Skip("slow: make test runs it")
	}
	tests := map[string]struct {
		args string
		env  []string
	}{
		"plain": {"--region eu-west-1 eks get-token --cluster-name demo --output json", keys()},
		"session token": {"--region us-east-1 eks get-token --cluster-name demo_2",
			keys("AWS_SESSION_TOKEN=FwoGZXIvYXdzE/b+c==")},
		"China":          {"eks get-token --cluster-name demo --region cn-north-1", keys()},
		"GovCloud, FIPS": {"eks get-token --cluster-name demo --region us-gov-west-1", keys("AWS_USE_FIPS_ENDPOINT=true")},
		"dual stack":     {"eks get-token --cluster-name demo --region us-east-2", keys("AWS_USE_DUALSTACK_ENDPOINT=true")},
		"own endpoint": {"eks get-token --cluster-name demo --region us-west-2",
			keys("AWS_ENDPOINT_URL=http://127.0.0.1:4566")},
		"cluster id": {"eks get-token --cluster-id 0d9b4e7f-8b6a-4d0c-9d57-6f1f2a1f0a11 --region eu-west-1", keys()},
		"default region": {"eks get-token --cluster-name demo",
			keys("AWS_DEFAULT_REGION=ap-southeast-2", "AWS_REGION=ap-southeast-2")},
		"a name to quote": {"eks get-token --cluster-name a.b_c-d --region eu-west-1", keys()},
	}
	printed := map[string]string{}
	data, err := os.ReadFile(golden)
	if err == nil {
		err = json.Unmarshal(data, &printed)
	}
	if err != nil && !*update {
		t.Fatal(err)
	}
	_, err = exec.LookPath("aws")
	live := err == nil
	if !live {
		t.Log("there is no aws in PATH: comparing with what it printed once")
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			isolate(t, tt.env)
			if live {
				now := cliURL(t, tt.args, tt.env)
				compare(t, ourURL(t, tt.args, now), now)
				if *update {
					printed[name] = now
				}
			}
			if printed[name] == "" {
				t.Fatalf("%s lacks this case; run the test with -update", golden)
			}
			compare(t, ourURL(t, tt.args, printed[name]), printed[name])
		})
	}
	if *update {
		var out bytes.Buffer
		enc := json.NewEncoder(&out)
		enc.SetEscapeHTML(false)
		enc.SetIndent("", "  ")
		err := enc.Encode(printed)
		if err == nil {
			err = os.WriteFile(golden, out.Bytes(), 0o644)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
}

func TestLegacyEndpoint(t *testing.T) {
	tests := map[string]string{"us-west-2": "sts.amazonaws.com us-east-1",
		"eu-south-1": "sts.eu-south-1.amazonaws.com eu-south-1"}
	isolate(t, keys())
	for region, want := range tests {
		token, err := NewSource(Config{}).Token(t.Context(), Spec{Cluster: "demo", Region: region, Legacy: true})
		if err != nil {
			t.Fatal(err)
		}
		u, err := url.Parse(decode(t, token))
		if err != nil {
			t.Fatal(err)
		}
		if got := u.Host + " " + strings.Split(u.Query().Get("X-Amz-Credential"), "/")[2]; got != want {
			t.Errorf("%s: host and signing region %s, want %s", region, got, want)
		}
	}
}

type fakeSTS struct {
	*httptest.Server
	calls  atomic.Int32
	form   atomic.Pointer[url.Values]
	refuse atomic.Int32 // responds with this code
	ends   time.Time
	hold   chan struct{} // if not nil, responses wait until it is closed
}

func newSTS(t *testing.T, ends time.Time) *fakeSTS {
	f := &fakeSTS{ends: ends}
	f.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_ = r.ParseForm()
		f.calls.Add(1)
		f.form.Store(&r.PostForm)
		if f.hold != nil {
			<-f.hold
		}
		if code := f.refuse.Load(); code != 0 {
			w.WriteHeader(int(code))
			_, _ = fmt.Fprint(w,
				`<ErrorResponse><Error><Type>Sender</Type><Code>AccessDenied</Code><Message>not you</Message></Error>`+
					`</ErrorResponse>`)
			return
		}
		_, _ = fmt.Fprintf(w,
			`<AssumeRoleResponse xmlns="https://sts.amazonaws.com/doc/2011-06-15/"><AssumeRoleResult><Credentials>
<AccessKeyId>ASIAASSUMED</AccessKeyId><SecretAccessKey>assumedsecret</SecretAccessKey>
<SessionToken>assumed+token=</SessionToken>
<Expiration>%s</Expiration></Credentials></AssumeRoleResult></AssumeRoleResponse>`, f.ends.UTC().Format(time.RFC3339))
	}))
	t.Cleanup(f.Close)
	return f
}

const role = "arn:aws:iam::111122223333:role/reader"

func TestRoleIsAssumed(t *testing.T) {
	f := newSTS(t, time.Now().Add(time.Hour))
	env := keys("AWS_ENDPOINT_URL_STS=" + f.URL)
	isolate(t, env)
	args := "--region eu-west-1 eks get-token --cluster-name demo --role-arn " + role
	spec, err := ParseExec("aws", strings.Fields(args), nil)
	if err != nil {
		t.Fatal(err)
	}
	token, err := NewSource(Config{}).Token(t.Context(), *spec)
	if err != nil {
		t.Fatal(err)
	}
	form := *f.form.Load()
	if form.Get("Action") != "AssumeRole" || form.Get("RoleArn") != role ||
		form.Get("RoleSessionName") != "EKSGetTokenAuth" {
		t.Errorf("STS was asked %v", form)
	}
	assumed := decode(t, token)
	// Any process with the role's credentials signs the same.
	t.Setenv("AWS_ACCESS_KEY_ID", "ASIAASSUMED")
	t.Setenv("AWS_SECRET_ACCESS_KEY", "assumedsecret")
	t.Setenv("AWS_SESSION_TOKEN", "assumed+token=")
	compare(t, assumed, ourURL(t, "--region eu-west-1 eks get-token --cluster-name demo", assumed))

	if _, err := exec.LookPath("aws"); err != nil {
		t.Log("there is no aws in PATH to compare with")
		return
	}
	isolate(t, env)
	now := cliURL(t, args, env)
	compare(t, ourURL(t, args, now), now)
}

func TestRoleWithExternalID(t *testing.T) {
	f := newSTS(t, time.Now().Add(time.Hour))
	isolate(t, keys("AWS_ENDPOINT_URL_STS="+f.URL))
	_, err := NewSource(Config{}).Token(t.Context(), Spec{Cluster: "demo", Region: "eu-west-1", RoleARN: role,
		ExternalID: "x/1", SessionName: "me"})
	if err != nil {
		t.Fatal(err)
	}
	if form := *f.form.Load(); form.Get("ExternalId") != "x/1" || form.Get("RoleSessionName") != "me" {
		t.Errorf("STS was asked %v", form)
	}
}

func TestTokensAreKept(t *testing.T) {
	tests := []struct {
		name          string
		credentials   time.Duration // lifetime of the role's credentials
		wait          time.Duration
		wantSameAs1st bool
	}{
		{"still good", time.Hour, 14*time.Minute - time.Second, true},
		{"about to expire", time.Hour, 14 * time.Minute, false},
		{"credentials still good", 10 * time.Minute, 9*time.Minute - time.Second, true},
		{"credentials about to expire", 10 * time.Minute, 9 * time.Minute, false},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			c := testingclock.NewFakeClock(time.Now().Truncate(time.Second))
			f := newSTS(t, c.Now().Add(tt.credentials))
			isolate(t, keys("AWS_ENDPOINT_URL_STS="+f.URL))
			s := NewSource(Config{Now: c.Now})
			spec := Spec{Cluster: "demo", Region: "eu-west-1", RoleARN: role}
			first, err := s.Token(t.Context(), spec)
			if err != nil {
				t.Fatal(err)
			}
			c.Step(tt.wait)
			second, err := s.Token(t.Context(), spec)
			if err != nil {
				t.Fatal(err)
			}
			wantCalls := int32(2)
			if tt.wantSameAs1st {
				wantCalls = 1
			}
			if (first == second) != tt.wantSameAs1st || f.calls.Load() != wantCalls {
				t.Errorf("same token %v after %d calls to STS, want %v after %d", first == second, f.calls.Load(),
					tt.wantSameAs1st, wantCalls)
			}
			spec.Cluster = "other"
			if other, err := s.Token(t.Context(), spec); err != nil || other == second {
				t.Errorf("another cluster got the same token (%v)", err)
			}
		})
	}
}

// A caller with a rejected token must get another, unless the token was just created.
func TestRefusedToken(t *testing.T) {
	c := testingclock.NewFakeClock(time.Now().Truncate(time.Second))
	f := newSTS(t, c.Now().Add(time.Hour))
	isolate(t, keys("AWS_ENDPOINT_URL_STS="+f.URL))
	s := NewSource(Config{Now: c.Now})
	spec := Spec{Cluster: "demo", Region: "eu-west-1", RoleARN: role}
	token := func(wantCalls int32) string {
		t.Helper()
		token, err := s.Token(t.Context(), spec)
		if err != nil {
			t.Fatal(err)
		}
		if n := f.calls.Load(); n != wantCalls {
			t.Errorf("%d calls to STS, want %d", n, wantCalls)
		}
		return token
	}
	refused := func(token string, wantAnother bool) {
		t.Helper()
		if another := s.Refused(spec, token); another != wantAnother {
			t.Errorf("another token: %v, want %v", another, wantAnother)
		}
	}
	refused("of another process", true) // the cache is empty
	first := token(1)
	refused(first, false) // too young
	token(1)
	c.Step(young)
	token(1)
	refused(first, true)
	refused(first, true) // the cache is empty
	second := token(2)
	refused(first, true) // a caller with the old token reports late
	refused(second, false)
	token(2)
}

func TestOneFlightForAll(t *testing.T) {
	f := newSTS(t, time.Now().Add(time.Hour))
	f.hold = make(chan struct{})
	isolate(t, keys("AWS_ENDPOINT_URL_STS="+f.URL))
	s := NewSource(Config{})
	spec := Spec{Cluster: "demo", Region: "eu-west-1", RoleARN: role}

	// The first caller leaves. The others still get the token.
	ctx, leave := context.WithCancel(t.Context())
	gone := make(chan error)
	go func() { _, err := s.Token(ctx, spec); gone <- err }()
	waittest.Until(t, "STS is called", func() bool { return f.calls.Load() > 0 })
	leave()
	if err := <-gone; !errors.Is(err, context.Canceled) {
		t.Errorf("the one who left got %v", err)
	}
	var wg sync.WaitGroup
	tokens := make([]string, 20)
	for i := range tokens {
		wg.Go(func() {
			var err error
			if tokens[i], err = s.Token(t.Context(), spec); err != nil {
				t.Error(err)
			}
		})
	}
	close(f.hold)
	wg.Wait()
	for _, token := range tokens {
		if token == "" || token != tokens[0] {
			t.Error("not all got the same token")
		}
	}
	if n := f.calls.Load(); n != 1 {
		t.Errorf("%d calls to STS, want 1", n)
	}
}

func TestFailureIsNotRemembered(t *testing.T) {
	f := newSTS(t, time.Now().Add(time.Hour))
	isolate(t, keys("AWS_ENDPOINT_URL_STS="+f.URL))
	s := NewSource(Config{})
	spec := Spec{Cluster: "demo", Region: "eu-west-1", RoleARN: role}
	f.refuse.Store(http.StatusForbidden)
	_, err := s.Token(t.Context(), spec)
	if err == nil || errors.Is(err, ErrUnavailable) || !strings.Contains(err.Error(), "AccessDenied") ||
		!strings.Contains(err.Error(), "demo") {
		t.Errorf("error %v", err)
	}
	for _, secret := range []string{"wJalrXUtnFEMI", "k8s-aws-v1", "X-Amz-Signature"} {
		if err != nil && strings.Contains(err.Error(), secret) {
			t.Errorf("the error shows %s: %v", secret, err)
		}
	}
	f.refuse.Store(http.StatusServiceUnavailable)
	if _, err := s.Token(t.Context(), spec); !errors.Is(err, ErrUnavailable) {
		t.Errorf("error %v, want ErrUnavailable", err)
	}
	f.refuse.Store(0)
	if _, err := s.Token(t.Context(), spec); err != nil {
		t.Error(err)
	}
}

func TestNothingIsLoadedBeforeTheFirstToken(t *testing.T) {
	isolate(t, keys())
	var loads atomic.Int32
	s := NewSource(Config{Load: func(ctx context.Context) (aws.Config, error) {
		if loads.Add(1) == 1 {
			return aws.Config{}, errors.New("not yet")
		}
		return awsconfig.LoadDefaultConfig(ctx)
	}})
	if loads.Load() != 0 {
		t.Error("loaded before use")
	}
	if _, err := s.Token(t.Context(), Spec{Cluster: "demo", Region: "eu-west-1"}); err == nil {
		t.Error("no error from a failing load")
	}
	for range 2 {
		if _, err := s.Token(t.Context(), Spec{Cluster: "demo", Region: "eu-west-1"}); err != nil {
			t.Error(err)
		}
	}
	if n := loads.Load(); n != 2 {
		t.Errorf("loaded %d times, want 2", n)
	}
	if _, err := s.Token(t.Context(), Spec{Cluster: "demo"}); err == nil || !strings.Contains(err.Error(), "--region") {
		t.Errorf("without a region: %v", err)
	}
}

func BenchmarkTokenKept(b *testing.B) {
	for _, kv := range keys() {
		name, value, _ := strings.Cut(kv, "=")
		b.Setenv(name, value)
	}
	s := NewSource(Config{})
	for b.Loop() {
		if _, err := s.Token(b.Context(), Spec{Cluster: "demo", Region: "eu-west-1"}); err != nil {
			b.Fatal(err)
		}
	}
}
