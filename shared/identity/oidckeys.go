package identity

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"net/http"
	"sync"
	"time"

	"github.com/coreos/go-oidc/v3/oidc"

	"github.com/clusterpass/clusterpass/shared/cache"
	"github.com/clusterpass/clusterpass/shared/version"
)

const (
	keyTime = 5 * time.Second
	// keyAge is how long keys are used at most before the provider is asked again. It ends a key that the provider has
	// revoked.
	keyAge = 15 * time.Minute
	// keyPause is the minimum interval between two requests for a document, so that invented key ids cause no load.
	keyPause    = 5 * time.Second
	keyOutage   = 24 * time.Hour
	maxDocument = 1 << 20
)

// errProvider is wrapped by the errors of a provider that does not respond correctly.
var errProvider = errors.New("identity provider unavailable")

// keys reads the key set of a provider. It is safe for concurrent use.
type keys struct {
	url    string
	client *http.Client
	sets   *cache.Cache[oidc.KeySet] // by the provider's URL
}

func newKeys(url string, ca *x509.CertPool, now func() time.Time) *keys {
	transport := http.DefaultTransport.(*http.Transport).Clone()
	transport.TLSClientConfig = &tls.Config{RootCAs: ca, MinVersion: tls.VersionTLS12}
	transport.DisableKeepAlives = true // requests are rare, and a process that was frozen would reuse dead connections
	transport.ResponseHeaderTimeout = keyTime
	k := &keys{url: url, client: &http.Client{
		Timeout:       keyTime,
		Transport:     &documents{base: transport, now: now, known: map[string]*document{}},
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}}
	never := func(error) bool { return false } // documents decides what is used while the provider is down
	k.sets = cache.New(cache.Config{
		Name: "oidc", Max: 1, TTL: keyAge, Timeout: keyTime, Missing: never, Down: never, Now: now,
	}, k.read)
	return k
}

func (k *keys) get(ctx context.Context) (oidc.KeySet, error) { return k.sets.Get(ctx, k.url) }

func (k *keys) read(ctx context.Context, url string) (oidc.KeySet, error) {
	// The set reads keys with this context later, too. The client's timeout bounds that.
	ctx = oidc.ClientContext(context.WithoutCancel(ctx), k.client)
	p, err := oidc.NewProvider(ctx, url)
	if err != nil {
		return nil, err
	}
	var found struct {
		Keys string `json:"jwks_uri"`
	}
	if err := p.Claims(&found); err != nil {
		return nil, err
	}
	return oidc.NewRemoteKeySet(ctx, found.Keys), nil
}

// documents caches a provider's few documents for keyPause and, while the provider is down, for keyOutage. It is no
// cache.Cache, which does not remember a failed fetch unless the key is missing or the store hangs.
type documents struct {
	base http.RoundTripper
	now  func() time.Time

	mu    sync.Mutex
	known map[string]*document
}

type document struct {
	header     http.Header
	body       []byte
	at, asked  time.Time
	lastFailed error
}

// maxDocuments is two, and a reserve for a provider that changes its jwks_uri.
const maxDocuments = 8

func (d *documents) RoundTrip(r *http.Request) (*http.Response, error) {
	if r.URL.Scheme != "https" {
		return nil, fmt.Errorf("%w: %s is not https", errProvider, r.URL.Redacted())
	}
	now := d.now().Round(0)
	url := r.URL.String()
	d.mu.Lock()
	doc := d.known[url]
	if doc == nil {
		if len(d.known) >= maxDocuments {
			clear(d.known)
		}
		doc = &document{}
		d.known[url] = doc
	}
	if since := now.Sub(doc.asked); since >= 0 && since < keyPause {
		defer d.mu.Unlock()
		return doc.answer(r, now)
	}
	doc.asked = now
	d.mu.Unlock()

	header, body, err := d.fetch(r)

	d.mu.Lock()
	defer d.mu.Unlock()
	if doc.lastFailed = err; err == nil {
		doc.header, doc.body, doc.at = header, body, now
	}
	return doc.answer(r, now)
}

func (d *documents) fetch(r *http.Request) (http.Header, []byte, error) {
	r = r.Clone(r.Context()) // a RoundTripper may not change its request
	r.Header.Set("User-Agent", version.UserAgent())
	resp, err := d.base.RoundTrip(r)
	if err != nil {
		return nil, nil, err
	}
	defer func() { _ = resp.Body.Close() }()
	if resp.StatusCode != http.StatusOK {
		return nil, nil, fmt.Errorf("%s answers %d", r.URL.Redacted(), resp.StatusCode)
	}
	body, err := io.ReadAll(io.LimitReader(resp.Body, maxDocument+1))
	if err == nil && len(body) > maxDocument {
		err = fmt.Errorf("%s has more than %d bytes", r.URL.Redacted(), maxDocument)
	}
	return resp.Header, body, err
}

func (doc *document) answer(r *http.Request, now time.Time) (*http.Response, error) {
	if age := now.Sub(doc.at); doc.body == nil || age < 0 || age >= keyOutage {
		return nil, fmt.Errorf("%w: %w", errProvider, errors.Join(doc.lastFailed, errNothing))
	}
	return &http.Response{
		StatusCode: http.StatusOK, Status: "200 OK", Proto: "HTTP/1.1", ProtoMajor: 1, ProtoMinor: 1,
		Header: doc.header.Clone(), Body: io.NopCloser(bytes.NewReader(doc.body)), ContentLength: int64(len(doc.body)),
		Request: r,
	}, nil
}

var errNothing = errors.New("it is not cached")
