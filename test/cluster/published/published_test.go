package published

import (
	"archive/tar"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"
)

func TestNewestReleaseIsDownloadedOnce(t *testing.T) {
	m := newMirror(t, pack(t, release3()...))
	m.index = func(w http.ResponseWriter, _ *http.Request) {
		_, _ = io.WriteString(w, m.indexOf("v1.36.0", release, "v1.36.10-rc.0", "v1.35.11", "v1.360.7", "v1.36.03"))
	}
	s := m.source(t)
	var progress bytes.Buffer
	s.Progress = &progress
	dir, err := s.Download(t.Context(), minor)
	wantComplete(t, s, dir, err)
	if want := "downloading Kubernetes " + release + " ["; !strings.Contains(progress.String(), want) {
		t.Errorf("progress %q, want %q", progress.String(), want)
	}
	dir, err = s.Download(t.Context(), minor)
	wantComplete(t, s, dir, err)
	if got := m.requests(); len(got) != 1 {
		t.Errorf("%d requests for the archive, want 1", len(got))
	}
	if got := s.Cached("v1.35"); got != "" {
		t.Errorf("another minor version is cached in %q", got)
	}
}

// TestExactRelease fails if tests get another patch release than the pinned one, whose answers may differ.
func TestExactRelease(t *testing.T) {
	m := newMirror(t, pack(t, release3()...))
	m.index = func(w http.ResponseWriter, _ *http.Request) {
		_, _ = io.WriteString(w, m.indexOf("v1.36.0", release, "v1.36.10", "v1.36.20", "v11.36.2"))
	}
	s := m.source(t)
	dir, err := s.Download(t.Context(), release)
	wantComplete(t, s, dir, err)
	if got := s.Cached(release); got != dir {
		t.Errorf("%s is cached in %q, want %q", release, got, dir)
	}
	for _, other := range []string{"v1.36.1", "v1.36.20", "v1.3", "v1", "36.2", ""} {
		if got := s.Cached(other); got != "" {
			t.Errorf("%q is cached in %q", other, got)
		}
	}
	dir, err = s.Download(t.Context(), "v1.36.1")
	if err == nil || !strings.Contains(err.Error(), "no release of v1.36.1 for") {
		t.Errorf("got the directory %q and the error %v, want no release", dir, err)
	}
}

// Without a program, or with an old name of a directory, the demo would start a cluster that fails.
func TestIncompleteDirectoryIsReplaced(t *testing.T) {
	m := newMirror(t, pack(t, release3()...))
	s := m.source(t)
	if err := os.MkdirAll(filepath.Join(s.dir(release), "kubectl"), 0o755); err != nil {
		t.Fatal(err)
	}
	if got := s.Cached(minor); got != "" {
		t.Errorf("an incomplete directory is cached: %q", got)
	}
	dir, err := s.Download(t.Context(), minor)
	wantComplete(t, s, dir, err)
}

func TestIndexMustBeUsable(t *testing.T) {
	entry := func(hash, link string) string {
		return fmt.Sprintf("releases: {v1.36.1: {envtest-v1.36.1%s.tar.gz: {hash: %q, selfLink: %q}}}", platform(), hash,
			link)
	}
	sum := strings.Repeat("ab", sumSize)
	usable := entry(sum, "https://a/b")
	for name, tt := range map[string]struct{ text, want string }{
		"no YAML":           {"releases: [", "yaml"},
		"empty":             {"", "no release of v1.36"},
		"other version":     {strings.ReplaceAll(usable, "v1.36.1", "v1.35.1"), "no release of v1.36"},
		"other platform":    {strings.ReplaceAll(usable, platform(), "-plan9-mips"), "no release of v1.36"},
		"release candidate": {strings.ReplaceAll(usable, "v1.36.1", "v1.36.1-rc.1"), "no release of v1.36"},
		"short hash":        {entry(sum[2:], "https://a/b"), "not a SHA-512"},
		"no hexadecimal":    {entry(strings.Repeat("x", 2*sumSize), "https://a/b"), "not a SHA-512"},
		"plain HTTP":        {entry(sum, "http://a/b"), "not an https URL"},
		"local file":        {entry(sum, "file:///etc/passwd"), "not an https URL"},
	} {
		t.Run(name, func(t *testing.T) {
			m := newMirror(t, nil)
			m.index = func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, tt.text) }
			s := m.source(t)
			dir, err := s.Download(t.Context(), minor)
			wantFailed(t, s, dir, err, tt.want)
			if got := m.requests(); len(got) != 0 {
				t.Errorf("%d requests for the archive, want none", len(got))
			}
		})
	}
	s := &Source{Index: "http://127.0.0.1:1/index", Cache: t.TempDir(), Progress: io.Discard}
	dir, err := s.Download(t.Context(), minor)
	wantFailed(t, s, dir, err, "not an https URL")
}

func TestResponsesOfTheServer(t *testing.T) {
	const unlimited = 0
	for name, tt := range map[string]struct {
		failures int // number of failing responses; unlimited means all
		respond  func(m *mirror, w http.ResponseWriter, r *http.Request)
		want     string // error; "" means success
		requests int
	}{
		"not found": {unlimited, func(_ *mirror, w http.ResponseWriter, r *http.Request) { http.NotFound(w, r) },
			"404 Not Found", 1},
		"unavailable": {unlimited, func(_ *mirror, w http.ResponseWriter, _ *http.Request) { w.WriteHeader(503) },
			"503 Service Unavailable", 5},
		"unavailable at first": {2, func(_ *mirror, w http.ResponseWriter, _ *http.Request) { w.WriteHeader(503) }, "", 3},
		"truncated": {1, func(m *mirror, w http.ResponseWriter, _ *http.Request) {
			m.sendHalf(w)
			panic(http.ErrAbortHandler)
		}, "", 2},
		"always truncated": {unlimited, func(m *mirror, w http.ResponseWriter, _ *http.Request) {
			m.sendHalf(w)
			panic(http.ErrAbortHandler)
		}, "EOF", 5},
		"wrong bytes": {unlimited, func(m *mirror, w http.ResponseWriter, _ *http.Request) {
			_, _ = w.Write(bytes.Repeat([]byte("x"), len(m.archive)))
		}, "its SHA-512 is", 1},
		"a part that was not asked for": {unlimited, func(m *mirror, w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Range", fmt.Sprintf("bytes 5-%d/%[1]d", len(m.archive)))
			w.WriteHeader(http.StatusPartialContent)
			_, _ = w.Write(m.archive[5:])
		}, "206 Partial Content", 1},
		"redirect to plain HTTP": {unlimited, func(m *mirror, w http.ResponseWriter, r *http.Request) {
			http.Redirect(w, r, "http"+strings.TrimPrefix(m.URL, "https")+archivePath, http.StatusFound)
		}, "is not https", 5},
		"redirect to itself": {unlimited, func(m *mirror, w http.ResponseWriter, r *http.Request) {
			http.Redirect(w, r, archivePath, http.StatusFound)
		}, "too many redirects", 25},
		"redirect": {1, func(m *mirror, w http.ResponseWriter, r *http.Request) {
			http.Redirect(w, r, m.URL+archivePath+"?signed=yes", http.StatusFound)
		}, "", 2},
	} {
		t.Run(name, func(t *testing.T) {
			m := newMirror(t, pack(t, release3()...))
			var n atomic.Int32
			m.serve = func(w http.ResponseWriter, r *http.Request) {
				if before := int(n.Add(1)); tt.failures == unlimited || before <= tt.failures {
					tt.respond(m, w, r)
					return
				}
				m.serveArchive(w, r)
			}
			s := m.source(t)
			dir, err := s.Download(t.Context(), minor)
			if got := m.requests(); len(got) != tt.requests {
				t.Errorf("%d requests for the archive (%q), want %d", len(got), got, tt.requests)
			}
			if tt.want == "" {
				wantComplete(t, s, dir, err)
			} else {
				wantFailed(t, s, dir, err, tt.want)
			}
		})
	}
}

// An archive of 60 MB must not begin again after each interruption, and wrong bytes must not stay for ever.
func TestDownloadContinues(t *testing.T) {
	archive := pack(t, release3()...)
	half := fmt.Sprintf("bytes=%d-", len(archive)/2)
	ignoreRange := func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write(archive) }
	for name, tt := range map[string]struct {
		part  []byte // bytes of an earlier run
		serve http.HandlerFunc
		want  []string // header Range of each request
	}{
		"half":        {archive[:len(archive)/2], nil, []string{half}},
		"all":         {archive, nil, []string{fmt.Sprintf("bytes=%d-", len(archive))}},
		"wrong bytes": {bytes.Repeat([]byte("x"), len(archive)/2), nil, []string{half, ""}},
		"more than the archive": {append(slices.Clone(archive), "more"...), nil,
			[]string{fmt.Sprintf("bytes=%d-", len(archive)+4), ""}},
		"server sends everything": {archive[:len(archive)/2], ignoreRange, []string{half}},
	} {
		t.Run(name, func(t *testing.T) {
			m := newMirror(t, archive)
			m.serve = tt.serve
			s := m.source(t)
			if err := os.MkdirAll(s.Cache, 0o755); err != nil {
				t.Fatal(err)
			}
			found, err := parseIndex([]byte(m.indexOf(release)), minor)
			if err != nil {
				t.Fatal(err)
			}
			part := (&download{archive: found}).part()
			if err := os.WriteFile(filepath.Join(s.Cache, part), tt.part, 0o600); err != nil {
				t.Fatal(err)
			}
			dir, err := s.Download(t.Context(), minor)
			wantComplete(t, s, dir, err)
			if got := m.requests(); !slices.Equal(got, tt.want) {
				t.Errorf("the requests have the ranges %q, want %q", got, tt.want)
			}
		})
	}
}

// A server must not fill the disk or the memory.
func TestSizesAreLimited(t *testing.T) {
	files := release3()
	large := append(files, entry{name: folder + "README", content: make([]byte, 1<<20)})
	for name, tt := range map[string]struct {
		files  []entry
		limits limits
		serve  func(m *mirror, w http.ResponseWriter)
		want   string
	}{
		"index":   {files, limits{index: 50}, nil, "larger than 50 bytes"},
		"archive": {files, limits{archive: 1000}, nil, "larger than 1000 bytes"},
		"archive of unknown length": {files, limits{archive: 1000}, func(m *mirror, w http.ResponseWriter) {
			w.(http.Flusher).Flush()
			_, _ = w.Write(m.archive)
		}, "larger than 1000 bytes"},
		"program":    {files, limits{program: 39_999}, nil, "has 40000 bytes, and may have 39999"},
		"other file": {large, limits{program: 100_000}, nil, "larger than 400000 bytes"},
	} {
		t.Run(name, func(t *testing.T) {
			m := newMirror(t, pack(t, tt.files...))
			if tt.serve != nil {
				m.serve = func(w http.ResponseWriter, _ *http.Request) { tt.serve(m, w) }
			}
			s := m.source(t)
			s.limits.index, s.limits.archive, s.limits.program = tt.limits.index, tt.limits.archive, tt.limits.program
			dir, err := s.Download(t.Context(), minor)
			wantFailed(t, s, dir, err, tt.want)
			if len(m.requests()) > 1 {
				t.Errorf("%d requests for the archive, want one at most", len(m.requests()))
			}
		})
	}
}

// A slow server must not delay the demo for longer than the compilation of the programs needs.
func TestSlowServersAreLeft(t *testing.T) {
	const short = 50 * time.Millisecond
	archive := pack(t, release3()...)
	t.Run("trickling index", func(t *testing.T) {
		m := newMirror(t, archive)
		m.index = func(w http.ResponseWriter, r *http.Request) {
			for r.Context().Err() == nil { // sends comments until the client leaves
				_, _ = io.WriteString(w, "#")
				w.(http.Flusher).Flush()
			}
		}
		s := m.source(t)
		s.limits.indexTime, s.limits.index = short, 1<<40
		dir, err := s.Download(t.Context(), minor)
		wantFailed(t, s, dir, err, "not complete after 50ms")
	})
	t.Run("no TLS", func(t *testing.T) {
		silent, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		defer silent.Close()
		s := newMirror(t, archive).source(t)
		s.Index, s.limits.connect = "https://"+silent.Addr().String(), short
		dir, err := s.Download(t.Context(), minor)
		wantFailed(t, s, dir, err, "timeout")
	})
	silence := func(m *mirror, w http.ResponseWriter, r *http.Request) {
		m.sendHalf(w)
		<-r.Context().Done()
	}
	t.Run("silent archive", func(t *testing.T) {
		m := newMirror(t, archive)
		m.serve = func(w http.ResponseWriter, r *http.Request) { silence(m, w, r) }
		s := m.source(t)
		s.limits.stall, s.limits.attempts = short, 2
		dir, err := s.Download(t.Context(), minor)
		wantFailed(t, s, dir, err, "sends nothing for 50ms")
	})
	t.Run("silent once", func(t *testing.T) {
		m := newMirror(t, archive)
		var n atomic.Int32
		m.serve = func(w http.ResponseWriter, r *http.Request) {
			if n.Add(1) == 1 {
				silence(m, w, r)
				return
			}
			m.serveArchive(w, r)
		}
		s := m.source(t)
		s.limits.stall, s.limits.attempts = short, 1<<30 // a busy machine may be silent for as long
		dir, err := s.Download(t.Context(), minor)
		wantComplete(t, s, dir, err)
	})
	t.Run("trickling archive", func(t *testing.T) {
		m := newMirror(t, archive)
		m.serve = func(w http.ResponseWriter, r *http.Request) {
			for r.Context().Err() == nil {
				_, _ = w.Write([]byte("x"))
				w.(http.Flusher).Flush()
			}
		}
		s := m.source(t)
		s.limits.total, s.limits.archive = time.Second, 1<<40
		dir, err := s.Download(t.Context(), minor)
		wantFailed(t, s, dir, err, "not complete after 1s")
	})
}

// cancelAt is a progress writer that ends a context at the nth line.
type cancelAt struct {
	n      int
	cancel context.CancelFunc
}

func (c *cancelAt) Write(b []byte) (int, error) {
	if c.n--; c.n == 0 {
		c.cancel()
	}
	return len(b), nil
}

// A download that the user interrupts must never pass as complete, at whatever moment that happens.
func TestCanceledDownloadFails(t *testing.T) {
	archive := pack(t, release3()...)
	t.Run("at each line of the progress", func(t *testing.T) {
		m := newMirror(t, archive)
		for n := 1; ; n++ {
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			s := m.source(t)
			at := &cancelAt{n: n, cancel: cancel}
			s.Progress = at
			dir, err := s.Download(ctx, minor)
			if at.n > 0 { // there were fewer lines
				wantComplete(t, s, dir, err)
				if n < 3 {
					t.Errorf("the progress has %d lines, want 2 at least", n-1)
				}
				return
			}
			wantFailed(t, s, dir, err, context.Canceled.Error())
		}
	})
	t.Run("while half is there", func(t *testing.T) {
		m := newMirror(t, archive)
		ctx, cancel := context.WithCancel(t.Context())
		m.serve = func(w http.ResponseWriter, r *http.Request) {
			m.sendHalf(w)
			cancel()
			<-r.Context().Done()
		}
		s := m.source(t)
		dir, err := s.Download(ctx, minor)
		wantFailed(t, s, dir, err, context.Canceled.Error())

		m.serve = nil // the next run gets the rest
		dir, err = s.Download(t.Context(), minor)
		wantComplete(t, s, dir, err)
	})
	t.Run("at any moment", func(t *testing.T) {
		m := newMirror(t, archive)
		for i := range 50 {
			ctx, cancel := context.WithCancel(t.Context())
			m.serve = func(w http.ResponseWriter, r *http.Request) {
				m.serveArchive(w, r)
				w.(http.Flusher).Flush()
				time.AfterFunc(time.Duration(i)*50*time.Microsecond, cancel) // during verification, unpacking or later
			}
			s := m.source(t)
			dir, err := s.Download(ctx, minor)
			cancel()
			if err == nil {
				wantComplete(t, s, dir, err)
				continue
			}
			if !errors.Is(err, context.Canceled) || dir != "" {
				t.Fatalf("directory %q, error %v", dir, err)
			}
			if cached := s.Cached(minor); cached != "" { // it was complete before the cancellation
				wantComplete(t, s, cached, nil)
			}
		}
	})
}

// An archive must not write to other places, or make a program out of a link.
func TestHostileArchives(t *testing.T) {
	files := release3()
	rest := files[1:]
	outside := filepath.Join(t.TempDir(), "outside")
	if err := os.MkdirAll(filepath.Join(outside, "envtest"), 0o755); err != nil {
		t.Fatal(err)
	}
	named := func(name string) entry { return entry{name: name, content: program("etcd")} }
	special := func(typeflag byte, link string) entry {
		return entry{name: folder + "etcd", typeflag: typeflag, link: link}
	}
	with := func(first ...entry) []entry { return append(slices.Clone(first), rest...) }
	for name, tt := range map[string]struct {
		files []entry
		want  string // error; "" means success
	}{
		"program above the folder": {with(named("../../" + folder + "etcd")), "it lacks controller-tools/envtest/etcd"},
		"absolute path":            {with(named("/" + folder + "etcd")), "it lacks"},
		"other folder":             {with(named("etcd")), "it lacks"},
		"symlink":                  {with(special(tar.TypeSymlink, "/bin/sh")), "is not a regular file"},
		"hard link":                {with(special(tar.TypeLink, folder+"kubectl")), "is not a regular file"},
		"directory":                {with(special(tar.TypeDir, "")), "is not a regular file"},
		"pipe":                     {with(special(tar.TypeFifo, "")), "is not a regular file"},
		"twice":                    {with(files[0], files[0]), "is there twice"},
		"files elsewhere": {append(slices.Clone(files), named("../escaped"), named("/tmp/clusterpass-escaped"),
			named(outside+"/escaped"), entry{name: "link", typeflag: tar.TypeSymlink, link: outside},
			named("link/escaped")), ""},
		"folder is a symlink": {append([]entry{
			{name: "controller-tools", typeflag: tar.TypeSymlink, link: outside},
			{name: unpacking, typeflag: tar.TypeSymlink, link: outside},
		}, files...), ""},
		"path with a detour": {with(named("./controller-tools/x/../envtest/etcd")), ""},
		"no archive":         {nil, "it lacks"},
	} {
		t.Run(name, func(t *testing.T) {
			m := newMirror(t, pack(t, tt.files...))
			s := m.source(t)
			dir, err := s.Download(t.Context(), minor)
			if tt.want == "" {
				wantComplete(t, s, dir, err)
			} else {
				wantFailed(t, s, dir, err, tt.want)
			}
			left, err := filepath.Glob(outside + "/*/*")
			above, err2 := os.ReadDir(filepath.Dir(s.Cache))
			if err := errors.Join(err, err2); err != nil || len(left) > 0 || len(above) > 1 {
				t.Errorf("outside the cache: %v, %v, %v", left, above, err)
			}
			if _, err := os.Lstat("/tmp/clusterpass-escaped"); err == nil {
				t.Error("a file is written to an absolute path")
			}
		})
	}
	t.Run("no gzip", func(t *testing.T) {
		m := newMirror(t, []byte("<html>an error page</html>"))
		s := m.source(t)
		dir, err := s.Download(t.Context(), minor)
		wantFailed(t, s, dir, err, "gzip")
	})
}
