package identity

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/credentials"
	"github.com/google/go-cmp/cmp"

	"github.com/clusterpass/clusterpass/shared/eks"
	"github.com/clusterpass/clusterpass/shared/eks/ststest"
	"github.com/clusterpass/clusterpass/shared/status"
	"github.com/clusterpass/clusterpass/shared/waittest"
)

func awsToken(t testing.TB, clusterName string, at time.Time) string {
	t.Helper()
	token, err := eks.NewSource(eks.Config{
		Load: func(context.Context) (aws.Config, error) {
			return aws.Config{Region: ststest.Region,
				Credentials: credentials.StaticCredentialsProvider{Value: ststest.Key}}, nil
		},
		Now: func() time.Time { return at },
	}).Token(context.Background(), eks.Spec{Cluster: clusterName})
	if err != nil {
		t.Fatal(err)
	}
	return token
}

func eksOf(t *testing.T, s *ststest.STS, c *clock) *EKS {
	t.Helper()
	e, err := NewEKS(EKSConfig{GatewayID: "gateway-1", Transport: s.Transport, Now: c.now,
		Mapping: &ARNMapping{Rules: []ARNRule{{ARN: "arn:aws:iam::111122223333:role/dev", Username: "dev:{{SessionName}}",
			Groups: []string{"dev"}}}}})
	if err != nil {
		t.Fatal(err)
	}
	e.timeout = patience
	return e
}

func TestEKS(t *testing.T) {
	s, c := ststest.New(t), newClock()
	e := eksOf(t, s, c)
	token := awsToken(t, "gateway-1", c.now())
	want := &User{Name: "dev:ann", Groups: []string{"dev"}, Method: "aws-iam",
		Extra:   map[string][]string{"arn": {ststest.Role}},
		Expires: c.now().Add(eksLifetime).UTC()}
	for range 3 {
		u, err := e.AuthenticateToken(t.Context(), token)
		if diff := cmp.Diff(want, u); diff != "" || err != nil {
			t.Fatalf("%v\n%s", err, diff)
		}
		u.Extra["arn"][0], u.Groups[0] = "changed", "changed" // by the caller, which must not change the cached user
	}
	if n := s.Asked.Load(); n != 1 {
		t.Errorf("STS was asked %d times", n)
	}
	c.pass(eksCached)
	if _, err := e.AuthenticateToken(t.Context(), token); err != nil || s.Asked.Load() != 2 {
		t.Errorf("after a while: %v, asked %d times", err, s.Asked.Load())
	}
	if u, err := e.AuthenticateToken(t.Context(), "abc"); u != nil || err != nil {
		t.Errorf("another token: %+v, %v", u, err)
	}
	c.pass(eksLifetime - eksCached - time.Second)
	if _, err := e.AuthenticateToken(t.Context(), token); err != nil {
		t.Error(err)
	}
	c.pass(time.Second) // expired, although the cached answer is fresh
	u, err := e.AuthenticateToken(t.Context(), token)
	wantRefused(t, u, err, "the AWS token has expired; get a new one")

	u, err = e.AuthenticateToken(t.Context(), awsToken(t, "gateway-1", c.now().Add(eksSkew+time.Second)))
	wantRefused(t, u, err, "the AWS token is not valid yet; is the clock right?")
	if _, err := e.AuthenticateToken(t.Context(), awsToken(t, "gateway-1", c.now().Add(eksSkew))); err != nil {
		t.Error(err)
	}
	wrong := "AWS does not accept the token, or it is not for this gateway: get one with --cluster-name gateway-1"
	u, err = e.AuthenticateToken(t.Context(), awsToken(t, "production", c.now()))
	wantRefused(t, u, err, wrong)
	s.ARN.Store("arn:aws:sts::999922223333:assumed-role/dev/ann")
	u, err = e.AuthenticateToken(t.Context(), awsToken(t, "gateway-1", c.now().Add(time.Second)))
	wantRefused(t, u, err,
		`AWS identity "arn:aws:sts::999922223333:assumed-role/dev/ann" has no user here: `+
			`the gateway's administrator may map it`)
}

func TestEKSFaultsOfSTS(t *testing.T) {
	s, c := ststest.New(t), newClock()
	later := "AWS cannot check the token now; try again"
	wrong := "AWS does not accept the token, or it is not for this gateway: get one with --cluster-name gateway-1"
	code := func(code int, body string) http.HandlerFunc {
		return func(w http.ResponseWriter, _ *http.Request) {
			w.WriteHeader(code)
			_, _ = w.Write([]byte(body))
		}
	}
	e := eksOf(t, s, c)
	token := awsToken(t, "gateway-1", c.now())
	for name, tt := range map[string]struct {
		answer http.HandlerFunc
		want   string
	}{
		"forbidden": {code(403, "{}"), wrong},
		"forbidden, and broken off": {func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Length", "100")
			w.WriteHeader(403)
			_ = http.NewResponseController(w).Flush()
			panic(http.ErrAbortHandler)
		}, wrong},
		"throttled": {code(429, "{}"), later},
		"broken":    {code(500, "{}"), later},
		"a redirect": {func(w http.ResponseWriter, r *http.Request) {
			http.Redirect(w, r, "https://localhost/", http.StatusTemporaryRedirect)
		}, wrong},
		"no JSON":     {code(200, "<xml>"), later},
		"no identity": {code(200, "{}"), later},
		"too long": {code(200, `{"GetCallerIdentityResponse":`+strings.Repeat(" ", maxSTSAnswer)+
			`{"GetCallerIdentityResult":{"Arn":"`+ststest.Role+`"}}}`), later},
		"broken off": {func(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) }, later},
		"an odd ARN": {code(200, `{"GetCallerIdentityResponse":{"GetCallerIdentityResult":{"Arn":"admin"}}}`),
			`AWS identity "admin" has no user here: its ARN cannot be read`},
		"another kind": {code(200, `{"GetCallerIdentityResponse":{"GetCallerIdentityResult":{"Arn":["`+ststest.Role+`"]}}}`),
			later},
	} {
		t.Run(name, func(t *testing.T) {
			s.Instead(tt.answer)
			before := s.Asked.Load()
			u, err := e.AuthenticateToken(t.Context(), token)
			if tt.want == later {
				wantDown(t, u, err, later)
			} else {
				wantRefused(t, u, err, tt.want)
			}
			if n := s.Asked.Load() - before; n != 1 {
				t.Errorf("STS was called %d times", n)
			}
			if cause := fmt.Sprint(status.From(err).Err); strings.Contains(cause, "X-Amz") ||
				strings.Contains(cause, "session") {
				t.Errorf("the log would have the token: %s", cause)
			}
			c.pass(eksRefused) // refusals are cached for that long
		})
	}
	// No refusal is cached for longer.
	s.Instead(nil)
	if _, err := e.AuthenticateToken(t.Context(), token); err != nil {
		t.Error(err)
	}
}

func TestEKSAsksOnce(t *testing.T) {
	s, c := ststest.New(t), newClock()
	release := make(chan struct{})
	s.Instead(func(w http.ResponseWriter, _ *http.Request) { <-release; s.Identity(w) })
	e := eksOf(t, s, c)
	token := awsToken(t, "gateway-1", c.now())
	var wg sync.WaitGroup
	for range 20 {
		wg.Go(func() {
			if _, err := e.AuthenticateToken(t.Context(), token); err != nil {
				t.Error(err)
			}
		})
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	// a caller that leaves does not wait, and does not end the flight for the others
	u, err := e.AuthenticateToken(ctx, token)
	wantDown(t, u, err, "AWS cannot check the token now; try again")
	waittest.Until(t, "STS is asked", func() bool { return s.Asked.Load() > 0 })
	close(release)
	wg.Wait()
	if n := s.Asked.Load(); n != 1 {
		t.Errorf("STS was asked %d times", n)
	}
}

func eksToken(u string) string { return eksPrefix + base64.RawURLEncoding.EncodeToString([]byte(u)) }

const goodURL = "https://" + ststest.Host +
	"/?Action=GetCallerIdentity&Version=2011-06-15&X-Amz-Algorithm=AWS4-HMAC-SHA256" +
	"&X-Amz-Credential=AKIDEXAMPLE%2F20260102%2Feu-west-1%2Fsts%2Faws4_request&X-Amz-Date=20260102T030405Z" +
	"&X-Amz-Expires=60" +
	"&X-Amz-Security-Token=abc&X-Amz-SignedHeaders=host%3Bx-k8s-aws-id&X-Amz-Signature=00"

func TestParseEKSToken(t *testing.T) {
	swap := func(from, to string) string {
		out := strings.Replace(goodURL, from, to, 1)
		if out == goodURL {
			t.Fatalf("%q is not in the URL", from)
		}
		return eksToken(out)
	}
	tests := map[string]struct{ token, want string }{
		"good":             {eksToken(goodURL), ""},
		"the longest time": {swap("Expires=60", "Expires=900"), ""},
		"the global host":  {swap(ststest.Host, "sts.amazonaws.com"), ""},
		"China":            {swap(ststest.Host, "sts.cn-north-1.amazonaws.com.cn"), ""},
		"FIPS":             {swap(ststest.Host, "sts-fips.us-gov-west-1.amazonaws.com"), ""},
		"dual stack":       {swap(ststest.Host, "sts.us-east-2.api.aws"), ""},
		"too long":         {swap("=abc", "="+strings.Repeat("a", maxEKSToken)), "it has more than 4096 bytes"},
		"padded":           {eksToken(goodURL) + "=", "it is not base64url without padding"},
		"not a URL":        {eksToken("https://%zz"), "it contains no URL"},
		"a line break":     {swap("=abc", "=a\r\nb"), "it contains no URL"},
		"a space":          {swap("=abc", "=a b"), "it contains no URL"},
		"http":             {swap("https", "http"), "its URL is not plain https"},
		"no scheme":        {swap("https:", ""), "its URL is not plain https"},
		"a user":           {swap("https://", "https://x@"), "its URL is not plain https"},
		"a fragment":       {eksToken(goodURL + "#x"), "its URL is not plain https"},
		"another host":     {swap(ststest.Host, "sts.example.com"), "its host is not an STS endpoint of AWS"},
		"a longer host": {swap(ststest.Host, ststest.Host+".example.com"),
			"its host is not an STS endpoint of AWS"},
		"a host before": {swap(ststest.Host, "x"+ststest.Host), "its host is not an STS endpoint of AWS"},
		"another service": {swap(ststest.Host, "s3.eu-west-1.amazonaws.com"),
			"its host is not an STS endpoint of AWS"},
		"a bucket": {swap(ststest.Host, "sts.s3.eu-west-1.amazonaws.com"),
			"its host is not an STS endpoint of AWS"},
		"a bucket's website": {swap(ststest.Host, "sts.s3-website-eu-west-1.amazonaws.com"),
			"its host is not an STS endpoint of AWS"},
		"dots that are none": {swap(ststest.Host, "stsxeu-west-1xamazonawsxcom"),
			"its host is not an STS endpoint of AWS"},
		"a port":                    {swap(ststest.Host, ststest.Host+":8443"), "its host is not an STS endpoint of AWS"},
		"an address":                {swap(ststest.Host, "169.254.169.254"), "its host is not an STS endpoint of AWS"},
		"a path":                    {swap("/?", "/x?"), "its path is not /"},
		"no path":                   {swap("/?", "?"), "its path is not /"},
		"two slashes":               {swap("/?", "//?"), "its path is not /"},
		"an escaped path":           {swap("/?", "/%2F?"), "its path is not /"},
		"another action":            {swap("GetCallerIdentity", "AssumeRole"), "it is not for GetCallerIdentity"},
		"another version":           {swap("2011", "2010"), "it is not for GetCallerIdentity"},
		"another parameter":         {eksToken(goodURL + "&X=1"), "it has an unknown parameter"},
		"an action twice":           {eksToken(goodURL + "&Action=GetCallerIdentity"), "it has action twice"},
		"an action in another case": {eksToken(goodURL + "&action=AssumeRole"), "it has action twice"},
		"headers in another case":   {eksToken(goodURL + "&x-amz-signedheaders=host"), "it has x-amz-signedheaders twice"},
		"a semicolon":               {eksToken(goodURL + ";x=1"), "its query cannot be read"},
		"an escape that is none":    {swap("=abc", "=%zz"), "its query cannot be read"},
		"not the cluster's name":    {swap("%3Bx-k8s-aws-id", ""), "it does not sign x-k8s-aws-id"},
		"another header":            {swap("x-k8s-aws-id", "x-k8s-aws-id2"), "it does not sign x-k8s-aws-id"},
		"not the host":              {swap("host%3B", ""), "it does not sign x-k8s-aws-id"},
		"another algorithm":         {swap("AWS4-HMAC-SHA256", "none"), "it is not signed"},
		"no signature":              {swap("X-Amz-Signature=00", "X-Amz-Signature="), "it is not signed"},
		"too long a time":           {swap("Expires=60", "Expires=901"), "want x-amz-expires of at most 900"},
		"a negative time":           {swap("Expires=60", "Expires=-1"), "want x-amz-expires of at most 900"},
		"no time":                   {swap("&X-Amz-Expires=60", ""), "want x-amz-expires of at most 900"},
		"no date":                   {swap("&X-Amz-Date=20260102T030405Z", ""), "it has no date"},
		"another zone":              {swap("030405Z", "030405"), "it has no date"},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			call, err := parseEKSToken(tt.token)
			got := ""
			if err != nil {
				got = err.Error()
			} else if call.url.String() == "" || call.date.Year() != 2026 || call.region == "" {
				t.Errorf("%+v", call)
			}
			if got != tt.want {
				t.Errorf("got %q, want %q", got, tt.want)
			}
		})
	}
}

func TestParseEKSTokenOfTheCLI(t *testing.T) {
	data, err := os.ReadFile("../eks/testdata/get-token.json")
	if err != nil {
		t.Fatal(err)
	}
	var all map[string]string
	if err := json.Unmarshal(data, &all); err != nil {
		t.Fatal(err)
	}
	for name, u := range all {
		_, err := parseEKSToken(eksToken(u))
		if foreign := strings.HasPrefix(u, "http:"); (err != nil) != foreign {
			t.Errorf("%s: %v\n%s", name, err, u)
		}
	}
}

func TestNewEKS(t *testing.T) {
	for name, cfg := range map[string]EKSConfig{
		"no id": {Mapping: &ARNMapping{}}, "no mapping": {GatewayID: "x"},
		"a bad mapping": {GatewayID: "x", Mapping: &ARNMapping{Accounts: []string{"1"}}},
		"a bad region":  {GatewayID: "x", Mapping: &ARNMapping{}, Regions: []string{"eu-west-1.example.com"}},
		"a bad limit":   {GatewayID: "x", Mapping: &ARNMapping{}, UnknownPerMinute: -1},
	} {
		if _, err := NewEKS(cfg); err == nil {
			t.Errorf("%s: no error", name)
		}
	}
}

func FuzzEKSToken(f *testing.F) {
	f.Add(goodURL)
	f.Add("https://sts.amazonaws.com@example.com/?x")
	f.Fuzz(func(t *testing.T, raw string) {
		call, err := parseEKSToken(eksToken(raw))
		if err != nil {
			return
		}
		u := call.url
		again, err := url.Parse(u.String())
		if err != nil || again.Scheme != "https" || !stsHosts().MatchString(again.Host) || again.Path != "/" ||
			again.User != nil || again.Port() != "" {
			t.Errorf("%q becomes %s (%v)", raw, u, err)
		}
		if _, err := http.NewRequestWithContext(t.Context(), http.MethodGet, u.String(), nil); err != nil {
			t.Errorf("%q: %v", raw, err)
		}
	})
}
