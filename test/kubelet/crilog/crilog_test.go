package crilog

import (
	"bytes"
	"context"
	"errors"
	"io"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/clusterpass/clusterpass/shared/leaktest"
)

func TestMain(m *testing.M) { leaktest.Main(m) }

var noon = time.Date(2026, 7, 1, 12, 0, 0, 42, time.UTC)

func TestFormat(t *testing.T) {
	long := strings.Repeat("x", maxContent)
	tests := map[string]struct {
		writes []string
		want   string
	}{
		"a line": {[]string{"hello\n"}, "2026-07-01T12:00:00.000000042Z stdout F hello\n"},
		"in pieces": {
			[]string{"he", "l", "lo\nw"},
			"2026-07-01T12:00:00.000000042Z stdout F hello\n2026-07-01T12:00:00.000000042Z stdout P w\n",
		},
		"empty lines":        {[]string{"\n\n"}, strings.Repeat("2026-07-01T12:00:00.000000042Z stdout F \n", 2)},
		"nothing":            {[]string{""}, ""},
		"as long as allowed": {[]string{long + "\n"}, "2026-07-01T12:00:00.000000042Z stdout F " + long + "\n"},
		"too long": {
			[]string{long + "y\n"},
			"2026-07-01T12:00:00.000000042Z stdout P " + long + "\n2026-07-01T12:00:00.000000042Z stdout F y\n",
		},
		"too long, in pieces": {
			[]string{long, "y", "\n"},
			"2026-07-01T12:00:00.000000042Z stdout P " + long + "\n2026-07-01T12:00:00.000000042Z stdout F y\n",
		},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			s := splitter{stream: Stdout}
			var got []byte
			for _, w := range test.writes {
				got = s.appendTo(got, noon, []byte(w))
			}
			if len(s.line) > 0 {
				got = s.flush(got, noon, true)
			}
			if string(got) != test.want {
				t.Errorf("got  %.200q\nwant %.200q", got, test.want)
			}
		})
	}
}

func TestParseRefuses(t *testing.T) {
	for _, line := range []string{
		"", "\n", "2026-07-01T12:00:00.000000042Z stdout F no newline", "2026-07-01T12:00:00.000000042Z stdout F\n",
		"yesterday stdout F x\n", "2026-07-01T12:00:00.000000042Z stdin F x\n", "2026-07-01T12:00:00.000000042Z stdout X x\n",
	} {
		if _, err := parse([]byte(line)); !errors.Is(err, errMalformed) {
			t.Errorf("%q: error %v, want errMalformed", line, err)
		}
	}
}

func FuzzOutputSurvives(f *testing.F) {
	f.Add([]byte("hello\nworld"), 3)
	f.Add([]byte("\r\n\x00\xff \n\n"), 2)
	f.Add(bytes.Repeat([]byte("x"), 3*maxContent), maxContent)
	f.Fuzz(func(t *testing.T, output []byte, cut int) {
		cut = max(0, min(cut, len(output)))
		s := splitter{stream: Stderr}
		log := s.appendTo(nil, noon, output[:cut])
		log = s.appendTo(log, noon, output[cut:])
		if len(s.line) > 0 {
			log = s.flush(log, noon, true)
		}
		var got []byte
		for line := range bytes.Lines(log) {
			e, err := parse(line)
			if err != nil {
				t.Fatalf("%q: %v", line, err)
			}
			if !e.time.Equal(noon) || e.stream != Stderr {
				t.Fatalf("entry %+v", e)
			}
			got = append(got, e.output()...)
		}
		if !bytes.Equal(got, output) {
			t.Errorf("got %q, want %q", got, output)
		}
	})
}

// FuzzParse: an entry that can be parsed is written back unchanged.
func FuzzParse(f *testing.F) {
	f.Add([]byte("2026-07-01T12:00:00.000000042Z stdout F hello\n"))
	f.Add([]byte("2026-07-01T12:00:00.000000042+02:00 stderr P a  b\n"))
	f.Fuzz(func(t *testing.T, line []byte) {
		e, err := parse(line)
		if err != nil {
			return
		}
		again, err := parse(e.appendTo(nil))
		if err != nil || !again.time.Equal(e.time) || again.stream != e.stream || again.partial != e.partial ||
			!bytes.Equal(again.content, e.content) {
			t.Errorf("%q: %+v became %+v (%v)", line, e, again, err)
		}
	})
}

func newFile(t *testing.T) *File {
	t.Helper()
	f, err := Create(filepath.Join(t.TempDir(), "0.log"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { f.Close() })
	return f
}

func write(t *testing.T, w io.Writer, s string) {
	t.Helper()
	if _, err := io.WriteString(w, s); err != nil {
		t.Fatal(err)
	}
}

func TestCopy(t *testing.T) {
	f := newFile(t)
	out, errs := f.Writer(Stdout), f.Writer(Stderr)
	write(t, out, "one\n")
	write(t, errs, "two\n")
	written, middle := time.Now(), time.Now()
	for !middle.After(written) { // lines have the time of their writing
		middle = time.Now()
	}
	write(t, out, "three\nfour")
	if err := out.Close(); err != nil {
		t.Fatal(err)
	}
	if err := f.Close(); err != nil {
		t.Fatal(err)
	}
	n := func(n int64) *int64 { return &n }

	tests := map[string]struct {
		options Options
		want    string
	}{
		"all":              {Options{}, "one\ntwo\nthree\nfour"},
		"all, followed":    {Options{Follow: true}, "one\ntwo\nthree\nfour"},
		"tail 0":           {Options{Tail: n(0)}, ""},
		"tail 2":           {Options{Tail: n(2)}, "three\nfour"},
		"tail, all":        {Options{Tail: n(4)}, "one\ntwo\nthree\nfour"},
		"tail, more":       {Options{Tail: n(5)}, "one\ntwo\nthree\nfour"},
		"since":            {Options{Since: middle}, "three\nfour"},
		"since and tail":   {Options{Since: middle, Tail: n(1)}, "four"},
		"limit":            {Options{Limit: n(5)}, "one\nt"},
		"limit of a line":  {Options{Limit: n(4)}, "one\n"},
		"limit not in use": {Options{Limit: n(100)}, "one\ntwo\nthree\nfour"},
		"stdout":           {Options{Stream: Stdout}, "one\nthree\nfour"},
		"stderr":           {Options{Stream: Stderr}, "two\n"},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			var got strings.Builder
			if err := f.Copy(t.Context(), &got, func() {}, test.options); err != nil {
				t.Fatal(err)
			}
			if got.String() != test.want {
				t.Errorf("got %q, want %q", got.String(), test.want)
			}
		})
	}
}

func TestCopyTimestamps(t *testing.T) {
	f := newFile(t)
	w := f.Writer(Stdout)
	write(t, w, strings.Repeat("x", maxContent)+"y\nz\n")
	var got strings.Builder
	if err := f.Copy(t.Context(), &got, func() {}, Options{Timestamps: true}); err != nil {
		t.Fatal(err)
	}
	// The second part of a long line gets no timestamp of its own.
	want := regexp.MustCompile(`^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{9}Z x+y\n\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{9}Z z\n$`)
	if !want.MatchString(got.String()) {
		t.Errorf("got %.100q", got.String())
	}
}

func TestTailOverManyBlocks(t *testing.T) {
	f := newFile(t)
	w := f.Writer(Stdout)
	for range 5000 {
		write(t, w, strings.Repeat("x", 99)+"\n")
	}
	for _, n := range []int64{1, 4999, 5000, 6000} {
		var got strings.Builder
		if err := f.Copy(t.Context(), &got, func() {}, Options{Tail: &n}); err != nil {
			t.Fatal(err)
		}
		if want := 100 * min(n, 5000); int64(got.Len()) != want {
			t.Errorf("tail %d: %d bytes, want %d", n, got.Len(), want)
		}
	}
}

func TestFollow(t *testing.T) {
	f := newFile(t)
	w := f.Writer(Stdout)
	r, pipe := io.Pipe()
	done := make(chan error, 1)
	go func() {
		err := f.Copy(t.Context(), pipe, func() {}, Options{Follow: true})
		pipe.Close()
		done <- err
	}()
	buffer := make([]byte, 100)
	for _, line := range []string{"one\n", "two\n", "three\n"} {
		write(t, w, line)
		n, err := r.Read(buffer)
		if err != nil || string(buffer[:n]) != line {
			t.Fatalf("followed %q, %v; want %q", buffer[:n], err, line)
		}
	}
	if err := f.Close(); err != nil {
		t.Fatal(err)
	}
	if rest, err := io.ReadAll(r); err != nil || len(rest) > 0 {
		t.Errorf("rest %q, %v", rest, err)
	}
	if err := <-done; err != nil {
		t.Error(err)
	}
	if _, err := w.Write([]byte("late\n")); !errors.Is(err, os.ErrClosed) {
		t.Errorf("write after the end: %v", err)
	}
}

func TestFollowEndsWithContext(t *testing.T) {
	f := newFile(t)
	ctx, cancel := context.WithCancel(t.Context())
	if err := f.Copy(ctx, io.Discard, cancel, Options{Follow: true}); !errors.Is(err, context.Canceled) {
		t.Errorf("error %v, want canceled", err)
	}
}

// TestFollowUnderLoad: a follower must miss nothing that is written concurrently.
func TestFollowUnderLoad(t *testing.T) {
	f := newFile(t)
	const lines = 20_000
	failed := make(chan error, 1)
	go func() {
		defer f.Close()
		w := f.Writer(Stdout)
		for range lines {
			if _, err := w.Write([]byte("line\n")); err != nil {
				failed <- err
				return
			}
		}
		failed <- nil
	}()
	var got bytes.Buffer
	if err := f.Copy(t.Context(), &got, func() {}, Options{Follow: true}); err != nil {
		t.Fatal(err)
	}
	if err := <-failed; err != nil {
		t.Fatal(err)
	}
	if got.Len() != lines*len("line\n") {
		t.Errorf("%d bytes, want %d", got.Len(), lines*len("line\n"))
	}
}
