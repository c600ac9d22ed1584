package s3store

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/kms"
	"github.com/aws/aws-sdk-go-v2/service/s3"
	"github.com/aws/aws-sdk-go-v2/service/s3/types"

	"github.com/clusterpass/clusterpass/shared/awsclient/mototest"
	"github.com/clusterpass/clusterpass/shared/recording"
	"github.com/clusterpass/clusterpass/shared/recording/storetest"
)

var moto *mototest.Server

func TestMain(m *testing.M) { mototest.Main(m, &moto) }

var newBucket = func() func() string {
	var mu sync.Mutex
	n := 0
	return func() string {
		mu.Lock()
		defer mu.Unlock()
		n++
		return fmt.Sprintf("recordings-%d", n)
	}
}()

// open returns a Store at url with a new bucket of moto.
func open(t *testing.T, url string, change func(*Config)) *Store {
	t.Helper()
	cfg := Config{AWS: mototest.Config(url), Bucket: newBucket()}
	if change != nil {
		change(&cfg)
	}
	s, err := New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	s.timeout = 2 * time.Minute // for a busy machine
	admin := s3.NewFromConfig(mototest.Config(moto.URL), func(o *s3.Options) { o.UsePathStyle = true })
	_, err = admin.CreateBucket(t.Context(), &s3.CreateBucketInput{
		Bucket: &cfg.Bucket,
		CreateBucketConfiguration: &types.CreateBucketConfiguration{
			LocationConstraint: types.BucketLocationConstraint(cfg.AWS.Region),
		},
	})
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func TestS3(t *testing.T) {
	if testing.Short() {
		t.Skip("slow: make test runs it")
	}
	for name, prefix := range map[string]string{"bucket": "", "bucket with a prefix": "clusterpass/prod"} {
		t.Run(name, func(t *testing.T) {
			storetest.Run(t, func(t *testing.T) recording.Store {
				return open(t, moto.URL, func(c *Config) { c.Prefix = prefix })
			})
		})
	}
}

// proxy is a proxy in front of moto whose behaviour a test sets.
type proxy struct {
	URL string

	mu    sync.Mutex
	lost  int // number of writes whose answers are discarded
	refer func(w http.ResponseWriter) bool
	puts  []http.Header
}

func newProxy(t *testing.T) *proxy {
	t.Helper()
	u, err := url.Parse(moto.URL)
	if err != nil {
		t.Fatal(err)
	}
	p := &proxy{}
	transport := &http.Transport{}
	to := &httputil.ReverseProxy{
		Transport: transport, Rewrite: func(r *httputil.ProxyRequest) { r.SetURL(u); r.Out.Host = r.In.Host },
	}
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		p.mu.Lock()
		refuse := p.refer
		isLost := r.Method == http.MethodPut && p.lost > 0
		if isLost {
			p.lost--
		}
		if r.Method == http.MethodPut {
			p.puts = append(p.puts, r.Header.Clone())
		}
		p.mu.Unlock()
		switch {
		case refuse != nil && refuse(w):
			_, _ = io.Copy(io.Discard, r.Body)
		case isLost:
			to.ServeHTTP(httptest.NewRecorder(), r)
			panic(http.ErrAbortHandler)
		default:
			to.ServeHTTP(w, r)
		}
	}))
	t.Cleanup(func() { srv.Close(); transport.CloseIdleConnections() })
	p.URL = srv.URL
	return p
}

// refuse answers the next n requests with an error.
func (p *proxy) refuse(status int, code string, n int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.refer = func(w http.ResponseWriter) bool {
		p.mu.Lock()
		defer p.mu.Unlock()
		if n == 0 {
			return false
		}
		n--
		w.Header().Set("Content-Type", "application/xml")
		w.WriteHeader(status)
		_, _ = io.WriteString(w, "<Error><Code>"+code+"</Code><Message>by the test</Message></Error>")
		return true
	}
}

// TestLostAnswersAreNoFailure fails if a session ends because the answer of a write that succeeded was lost.
func TestLostAnswersAreNoFailure(t *testing.T) {
	p := newProxy(t)
	s := open(t, p.URL, nil)
	id := recording.NewID(time.Now())
	p.mu.Lock()
	p.lost = 1
	p.mu.Unlock()
	if err := s.Put(t.Context(), id, 0, []byte("part")); err != nil {
		t.Fatal(err)
	}
	if got, err := s.Get(t.Context(), id, 0); err != nil || string(got) != "part" {
		t.Errorf("the part is %q, %v", got, err)
	}
	if len(p.puts) != 2 || p.puts[1].Get("If-None-Match") != "*" {
		t.Errorf("%d writes: %v", len(p.puts), p.puts)
	}
	if err := s.Put(t.Context(), id, 0, []byte("other")); !errors.Is(err, recording.ErrExists) {
		t.Errorf("a second write: %v, want ErrExists", err)
	}
}

// TestTransientFaultsAreRetried fails if a session ends because S3 was busy for a moment.
func TestTransientFaultsAreRetried(t *testing.T) {
	for _, tt := range []struct {
		status int
		code   string
	}{{503, "SlowDown"}, {500, "InternalError"}, {409, "ConditionalRequestConflict"}} {
		t.Run(tt.code, func(t *testing.T) {
			p := newProxy(t)
			s := open(t, p.URL, nil)
			p.refuse(tt.status, tt.code, 2)
			if err := s.Put(t.Context(), recording.NewID(time.Now()), 0, []byte("part")); err != nil {
				t.Error(err)
			}
		})
	}
}

// TestErrorsNameWhatToDo fails if an operator cannot find out which right or bucket is missing.
func TestErrorsNameWhatToDo(t *testing.T) {
	p := newProxy(t)
	s := open(t, p.URL, nil)
	id := recording.NewID(time.Now())
	p.refuse(403, "AccessDenied", 1)
	if err := s.Put(t.Context(), id, 0, []byte("x")); err == nil || !strings.Contains(err.Error(), "allow s3:PutObject") {
		t.Errorf("denied: %v", err)
	}
	p.refuse(404, "NoSuchBucket", 1)
	if _, err := s.List(t.Context(), ""); err == nil || !strings.Contains(err.Error(), "create the bucket") {
		t.Errorf("no bucket: %v", err)
	}
	for name, c := range map[string]Config{
		"no bucket":   {AWS: mototest.Config(p.URL)},
		"bad bucket":  {AWS: mototest.Config(p.URL), Bucket: "A/b"},
		"bad prefix":  {AWS: mototest.Config(p.URL), Bucket: "bucket", Prefix: "a//b"},
		"long prefix": {AWS: mototest.Config(p.URL), Bucket: "bucket", Prefix: strings.Repeat("a", 600)},
		"no region":   {Bucket: "bucket"},
	} {
		if _, err := New(c); err == nil {
			t.Errorf("%s is accepted", name)
		}
	}
}

// TestDeadline fails if a call to an S3 that hangs blocks for ever.
func TestDeadline(t *testing.T) {
	srv := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
		<-r.Context().Done()
	}))
	defer srv.Close()
	s, err := New(Config{AWS: mototest.Config(srv.URL), Bucket: "bucket"})
	if err != nil {
		t.Fatal(err)
	}
	s.timeout = 100 * time.Millisecond
	id := recording.NewID(time.Now())
	errs := map[string]error{"put": s.Put(t.Context(), id, 0, []byte("x"))}
	_, errs["get"] = s.Get(t.Context(), id, 0)
	_, errs["parts"] = s.Parts(t.Context(), id)
	_, errs["list"] = s.List(t.Context(), "")
	for call, err := range errs {
		if !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("%s: %v", call, err)
		}
	}
}

// TestKMSKeyEncrypts fails if recordings are encrypted with another key than the configured one.
func TestKMSKeyEncrypts(t *testing.T) {
	made, err := kms.NewFromConfig(mototest.Config(moto.URL)).CreateKey(t.Context(), &kms.CreateKeyInput{})
	if err != nil {
		t.Fatal(err)
	}
	key := aws.ToString(made.KeyMetadata.Arn)
	s := open(t, moto.URL, func(c *Config) { c.KMSKey = key })
	id := recording.NewID(time.Now())
	if err := s.Put(t.Context(), id, 0, []byte("part")); err != nil {
		t.Fatal(err)
	}
	name := s.key(id, 0)
	head, err := s.client.HeadObject(t.Context(), &s3.HeadObjectInput{Bucket: &s.cfg.Bucket, Key: &name})
	if err != nil {
		t.Fatal(err)
	}
	if head.ServerSideEncryption != types.ServerSideEncryptionAwsKms || aws.ToString(head.SSEKMSKeyId) != key ||
		aws.ToString(head.ContentType) != "application/x-asciicast" {
		t.Errorf("the object has %s, key %s, type %s", head.ServerSideEncryption, aws.ToString(head.SSEKMSKeyId),
			aws.ToString(head.ContentType))
	}
	if got, err := s.Get(t.Context(), id, 0); err != nil || string(got) != "part" {
		t.Errorf("the part is %q, %v", got, err)
	}
}
