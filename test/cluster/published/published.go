// Package published downloads the programs that the Kubernetes project publishes for tests: etcd, kube-apiserver and
// kubectl of one release, in one archive for each platform.
//
// [Source] finds a release in an index, and keeps its programs in a cache. The wanted version is a release, such as
// v1.36.2, or a minor version, such as v1.36, for its newest release. Invariants:
//
//   - A directory of the cache has all programs or does not exist. It gets its name after the SHA-512 of the whole
//     archive has matched that of the index.
//   - A download whose context has ended fails.
//   - Index, archive and programs have a maximum size, and each transfer has a deadline.
//   - Only regular files at the expected paths are read from an archive.
//   - Only one process downloads at a time. The others wait and use its result.
package published

import (
	"cmp"
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"time"

	"github.com/clusterpass/clusterpass/shared/filelock"
)

// IndexURL is the address of the index of the project controller-tools.
const IndexURL = "https://raw.githubusercontent.com/kubernetes-sigs/controller-tools/HEAD/envtest-releases.yaml"

// programs are the file names of the programs in an archive.
var programs = []string{"etcd", "kube-apiserver", "kubectl"}

// A Source is an index of releases with a cache. It is safe for concurrent use, also by several processes.
type Source struct {
	Index    string    // https URL of the index
	Cache    string    // directory of the downloaded programs; it is created
	Progress io.Writer // progress of a download, for people

	limits limits
	roots  *x509.CertPool // nil means those of the system
}

// limits bound a download. The zero value of a field is its default.
type limits struct {
	index, archive, program int64         // bytes
	connect                 time.Duration // maximum time to look up and connect to a host
	indexTime               time.Duration // maximum time to read the index
	stall                   time.Duration // maximum time without a byte of the archive
	total                   time.Duration // maximum time of a download
	attempts                int           // maximum number of requests for the archive
	pause                   time.Duration // pause between two of them
}

func (l limits) orDefaults() limits {
	return limits{
		index:     cmp.Or(l.index, 4<<20),
		archive:   cmp.Or(l.archive, 512<<20),
		program:   cmp.Or(l.program, 512<<20),
		connect:   cmp.Or(l.connect, 3*time.Second),
		indexTime: cmp.Or(l.indexTime, 10*time.Second),
		stall:     cmp.Or(l.stall, 20*time.Second),
		total:     cmp.Or(l.total, 10*time.Minute), // a build is faster
		attempts:  cmp.Or(l.attempts, 5),
		pause:     cmp.Or(l.pause, time.Second),
	}
}

// Cached returns the directory of the wanted release, if it was downloaded. Otherwise, it returns "".
func (s *Source) Cached(wanted string) string {
	entries, err := os.ReadDir(s.Cache)
	if err != nil {
		return ""
	}
	newest, found := 0, ""
	for _, entry := range entries {
		version, isPlatform := strings.CutSuffix(entry.Name(), platform())
		if patch, ok := patchOf(version, wanted); isPlatform && ok && patch >= newest && hasPrograms(s.dir(version)) {
			newest, found = patch, s.dir(version)
		}
	}
	return found
}

// dir returns the directory of a release's programs.
func (s *Source) dir(version string) string { return filepath.Join(s.Cache, version+platform()) }

func platform() string { return "-" + runtime.GOOS + "-" + runtime.GOARCH }

func hasPrograms(dir string) bool {
	for _, name := range programs {
		info, err := os.Lstat(filepath.Join(dir, name))
		if err != nil || !info.Mode().IsRegular() || info.Mode()&0o100 == 0 {
			return false
		}
	}
	return true
}

// Download returns the directory of the wanted release. It downloads a release that the cache lacks, and continues an
// interrupted download.
func (s *Source) Download(ctx context.Context, wanted string) (dir string, err error) {
	limits := s.limits.orDefaults()
	ctx, cancel := context.WithTimeoutCause(ctx, limits.total, fmt.Errorf("not complete after %v", limits.total))
	defer cancel()
	client := s.client(limits.connect)
	defer client.CloseIdleConnections()
	archive, err := findArchive(ctx, client, s.Index, wanted, limits)
	if err != nil {
		return "", err
	}
	if err := os.MkdirAll(s.Cache, 0o755); err != nil {
		return "", fmt.Errorf("make the cache of programs: %w", err)
	}
	cache, err := os.OpenRoot(s.Cache)
	if err != nil {
		return "", fmt.Errorf("open the cache of programs: %w", err)
	}
	defer func() { _ = cache.Close() }()
	explained := make(chan struct{})
	waiting := time.AfterFunc(time.Second, func() {
		defer close(explained)
		_, _ = fmt.Fprintln(s.Progress, "another run is downloading these programs; waiting for it")
	})
	lock, err := filelock.Lock(ctx, cache, ".lock", filelock.Exclusive)
	if !waiting.Stop() {
		<-explained // the bar writes to the same place
	}
	if err != nil {
		return "", err
	}
	defer func() { _ = lock.Close() }()
	dir = s.dir(archive.version)
	if hasPrograms(dir) { // another run may have downloaded them meanwhile
		return dir, nil
	}
	d := &download{archive: archive, client: client, cache: cache, limits: limits,
		bar: newBar(s.Progress, "downloading Kubernetes "+archive.version)}
	if err := d.fetch(ctx); err != nil {
		return "", fmt.Errorf("download %s: %w", archive.url, err)
	}
	if err := d.install(ctx, filepath.Base(dir)); err != nil {
		return "", fmt.Errorf("unpack %s: %w", archive.url, err)
	}
	return dir, nil
}

// client returns a client that gives up a host early, so that an offline machine does not wait. It follows only
// redirects to https, and never asks for compressed responses: positions count bytes of the file.
func (s *Source) client(connect time.Duration) *http.Client {
	transport := http.DefaultTransport.(*http.Transport).Clone()
	transport.DialContext = (&net.Dialer{Timeout: connect}).DialContext
	transport.TLSHandshakeTimeout = connect
	transport.TLSClientConfig = &tls.Config{RootCAs: s.roots}
	transport.DisableCompression = true
	return &http.Client{Transport: transport, CheckRedirect: func(r *http.Request, before []*http.Request) error {
		if r.URL.Scheme != "https" {
			return fmt.Errorf("the redirect to %s is not https", r.URL.Redacted())
		}
		if len(before) >= 5 {
			return errors.New("too many redirects")
		}
		return nil
	}}
}

// get sends a GET request. offset is the number of bytes at the beginning that the response may omit. Its error omits
// the URL, which callers add.
func get(ctx context.Context, client *http.Client, from string, offset int64) (*http.Response, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, from, nil)
	if err != nil {
		return nil, err
	}
	if offset > 0 {
		req.Header.Set("Range", fmt.Sprintf("bytes=%d-", offset))
	}
	resp, err := client.Do(req)
	var failed *url.Error
	if errors.As(err, &failed) {
		err = failed.Err
	}
	return resp, err
}

// cause replaces the error of a canceled context by the reason for the cancellation.
func cause(ctx context.Context, err error) error {
	if err != nil && ctx.Err() != nil {
		return context.Cause(ctx)
	}
	return err
}
