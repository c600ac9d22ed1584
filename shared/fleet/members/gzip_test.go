package members

import (
	"bytes"
	"compress/gzip"
	"errors"
	"io"
	"os"
	"strconv"
	"strings"
	"sync"
	"testing"
	"testing/iotest"

	"github.com/clusterpass/clusterpass/shared/alloctest"
)

func zip(t *testing.T, text string) []byte {
	t.Helper()
	var b bytes.Buffer
	z := gzip.NewWriter(&b)
	if _, err := io.WriteString(z, text); err != nil {
		t.Fatal(err)
	}
	if err := z.Close(); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

// TestGzipReaderKeepsItsEnd fails if a cut response became complete when it is read again.
func TestGzipReaderKeepsItsEnd(t *testing.T) {
	whole := zip(t, strings.Repeat("text", 1000))
	broken := errors.New("the connection broke")
	for name, tt := range map[string]struct {
		body  io.Reader
		close bool
		want  error
	}{
		"whole":      {bytes.NewReader(whole), false, io.EOF},
		"cut":        {bytes.NewReader(whole[:len(whole)-1]), false, io.ErrUnexpectedEOF},
		"broken":     {io.MultiReader(bytes.NewReader(whole[:20]), iotest.ErrReader(broken)), false, broken},
		"closed":     {bytes.NewReader(whole), true, os.ErrClosed},
		"closed cut": {bytes.NewReader(whole[:20]), true, os.ErrClosed},
	} {
		t.Run(name, func(t *testing.T) {
			r, err := newGzipReader(tt.body)
			if err != nil {
				t.Fatal(err)
			}
			if tt.close {
				r.(*gzipReader).close()
			} else if _, err := io.Copy(io.Discard, r); err != nil && !errors.Is(err, tt.want) {
				t.Fatalf("%v, want %v", err, tt.want)
			}
			for range 2 {
				if n, err := r.Read(make([]byte, 10)); n != 0 || !errors.Is(err, tt.want) {
					t.Errorf("read again: %d bytes, %v, want %v", n, err, tt.want)
				}
			}
			r.(*gzipReader).close()
		})
	}
}

// TestGzipReadersAreNotShared fails if the list of one caller contains text of another's, since readers are reused.
func TestGzipReadersAreNotShared(t *testing.T) {
	var all sync.WaitGroup
	for i := range 8 {
		text := strings.Repeat(strconv.Itoa(i), 100_000)
		zipped := zip(t, text)
		all.Go(func() {
			for round := range 50 {
				r, err := newGzipReader(bytes.NewReader(zipped))
				if err != nil {
					t.Error(err)
					return
				}
				if round%2 == 0 { // another goroutine closes it meanwhile
					all.Go(r.(*gzipReader).close)
				}
				got, err := io.ReadAll(r)
				if err == nil && string(got) != text || err != nil && !errors.Is(err, os.ErrClosed) ||
					strings.Trim(string(got), text[:1]) != "" {
					t.Errorf("%d bytes, %v", len(got), err)
				}
				r.(*gzipReader).close()
			}
		})
	}
	all.Wait()
}

// TestGzipReadersAreReused fails if each response of a cluster allocates a reader. Lists of 500 clusters would need
// 20 MiB more.
func TestGzipReadersAreReused(t *testing.T) {
	zipped := zip(t, strings.Repeat("text", 1000))
	read := func(whole bool) {
		r, err := newGzipReader(bytes.NewReader(zipped))
		if err != nil {
			t.Fatal(err)
		}
		_, err = io.CopyN(io.Discard, r, 10)
		if whole {
			_, err = io.Copy(io.Discard, r)
		}
		if err != nil {
			t.Fatal(err)
		}
		r.(*gzipReader).close()
	}
	for name, whole := range map[string]bool{"read to the end": true, "closed": false} {
		// The race detector drops a quarter of what a pool gets.
		if _, bytes := alloctest.PerCall(200, func() { read(whole) }); bytes > 20_000 {
			t.Errorf("%s: a response allocates %.0f bytes", name, bytes)
		}
	}
}
