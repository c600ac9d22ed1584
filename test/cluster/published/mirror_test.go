package published

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"crypto/sha512"
	"crypto/x509"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"
)

const (
	minor       = "v1.36"
	release     = "v1.36.2"
	archivePath = "/archive.tar.gz"
)

// mirror is a TLS server with an index and an archive.
type mirror struct {
	*httptest.Server
	archive []byte
	index   http.HandlerFunc // nil means an index with the archive as release
	serve   http.HandlerFunc // nil serves the archive, also in parts

	mu     sync.Mutex
	ranges []string // header Range of each request for the archive
}

func newMirror(t *testing.T, archive []byte) *mirror {
	t.Helper()
	m := &mirror{archive: archive}
	m.Server = httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch {
		case r.URL.Path == archivePath:
			m.mu.Lock()
			m.ranges = append(m.ranges, r.Header.Get("Range"))
			m.mu.Unlock()
			if m.serve != nil {
				m.serve(w, r)
				return
			}
			m.serveArchive(w, r)
		case m.index != nil:
			m.index(w, r)
		default:
			_, _ = io.WriteString(w, m.indexOf(release))
		}
	}))
	t.Cleanup(m.Close)
	return m
}

func (m *mirror) serveArchive(w http.ResponseWriter, r *http.Request) {
	http.ServeContent(w, r, "", time.Time{}, bytes.NewReader(m.archive))
}

// indexOf returns an index in which all versions have the archive of m.
func (m *mirror) indexOf(versions ...string) string {
	text := "releases:\n"
	for _, version := range versions {
		text += fmt.Sprintf("  %[1]s:\n    envtest-%[1]s%[2]s.tar.gz:\n      hash: %[3]x\n      selfLink: %[4]s\n",
			version, platform(), sha512.Sum512(m.archive), m.URL+archivePath)
	}
	return text
}

func (m *mirror) requests() []string {
	m.mu.Lock()
	defer m.mu.Unlock()
	return append([]string(nil), m.ranges...)
}

// source returns a Source for m with an empty cache. Its times are long enough for a busy machine.
func (m *mirror) source(t *testing.T) *Source {
	t.Helper()
	roots := x509.NewCertPool()
	roots.AddCert(m.Certificate())
	return &Source{
		Index: m.URL, Cache: filepath.Join(t.TempDir(), "cache"), Progress: io.Discard, roots: roots,
		limits: limits{connect: time.Minute, indexTime: time.Minute, stall: time.Minute, pause: time.Nanosecond},
	}
}

// entry is a file of an archive. A zero typeflag means a regular file.
type entry struct {
	name, link string
	typeflag   byte
	content    []byte
}

// program returns the content of a program, which does not compress.
func program(name string) []byte {
	content := make([]byte, 40_000)
	seed := [32]byte{}
	copy(seed[:], name)
	_, _ = rand.NewChaCha8(seed).Read(content)
	return content
}

func release3() []entry {
	var files []entry
	for _, name := range programs {
		files = append(files, entry{name: folder + name, content: program(name)})
	}
	return files
}

func pack(t *testing.T, files ...entry) []byte {
	t.Helper()
	var b bytes.Buffer
	compressed := gzip.NewWriter(&b)
	archive := tar.NewWriter(compressed)
	for _, f := range files {
		header := &tar.Header{Name: f.name, Linkname: f.link, Typeflag: f.typeflag, Size: int64(len(f.content)), Mode: 0o755}
		if f.typeflag == 0 {
			header.Typeflag = tar.TypeReg
		}
		if err := archive.WriteHeader(header); err != nil {
			t.Fatal(err)
		}
		if _, err := archive.Write(f.content); err != nil {
			t.Fatal(err)
		}
	}
	if err := archive.Close(); err != nil {
		t.Fatal(err)
	}
	if err := compressed.Close(); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

// wantComplete checks a download and the cache.
func wantComplete(t *testing.T, s *Source, dir string, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
	if want := s.dir(release); dir != want || s.Cached(minor) != want {
		t.Errorf("got the directory %q, cached %q, want %q", dir, s.Cached(minor), want)
	}
	for _, name := range programs {
		got, err := os.ReadFile(filepath.Join(dir, name))
		if err != nil || !bytes.Equal(got, program(name)) {
			t.Errorf("%s has %d bytes (%v), not those of the archive", name, len(got), err)
		}
	}
	wantFiles(t, s, ".lock", filepath.Base(dir))
}

// wantFailed checks that a download failed as expected, and that nothing in the cache passes as complete.
func wantFailed(t *testing.T, s *Source, dir string, err error, want string) {
	t.Helper()
	if err == nil || !strings.Contains(err.Error(), want) {
		t.Errorf("got the directory %q and the error %v, want one with %q", dir, err, want)
	}
	if dir != "" || s.Cached(minor) != "" {
		t.Errorf("after a failure: directory %q, cached %q", dir, s.Cached(minor))
	}
	if _, err := os.Lstat(s.dir(release)); err == nil {
		t.Errorf("after a failure %s is there", s.dir(release))
	}
}

func wantFiles(t *testing.T, s *Source, want ...string) {
	t.Helper()
	entries, err := os.ReadDir(s.Cache)
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, e := range entries {
		got = append(got, e.Name())
	}
	if strings.Join(got, " ") != strings.Join(want, " ") {
		t.Errorf("the cache has the files %q, want %q", got, want)
	}
}

// sendHalf sends half of the archive with the length of the whole.
func (m *mirror) sendHalf(w http.ResponseWriter) {
	w.Header().Set("Content-Length", strconv.Itoa(len(m.archive)))
	_, _ = w.Write(m.archive[:len(m.archive)/2])
	w.(http.Flusher).Flush()
}
