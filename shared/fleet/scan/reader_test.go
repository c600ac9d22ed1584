package scan

import (
	"errors"
	"io"
	"strings"
	"testing"
	"testing/iotest"

	"github.com/go-json-experiment/json/jsontext"
)

// TestReader would fail if values depended on the sizes of the pieces, or if a cut value were no error.
func TestReader(t *testing.T) {
	whole := `{"a": 1}` + "\n" + `[true] "x" 7 ` + strings.Repeat(" ", 100_000) + `{"long":"` +
		strings.Repeat("y", 300_000) + `"}`
	for name, r := range map[string]io.Reader{"whole": strings.NewReader(whole),
		"halves": iotest.HalfReader(strings.NewReader(whole)), "with its end": iotest.DataErrReader(
			strings.NewReader(whole)), "bytes": iotest.OneByteReader(strings.NewReader(whole))} {
		in := NewReader(r, 1<<20)
		for _, want := range []string{`{"a": 1}`, `[true]`, `"x"`, `7`, `{"long":"` + strings.Repeat("y", 300_000) + `"}`} {
			if got := string(in.Value()); got != want || in.Err() != nil {
				t.Errorf("%s: %.20q, want %.20q, %v", name, got, want, in.Err())
			}
		}
		if in.Value() != nil || !errors.Is(in.Err(), io.EOF) {
			t.Errorf("%s: after the end %v", name, in.Err())
		}
	}
	for text, want := range map[string]error{"": io.EOF, " \n": io.EOF, `{"a":`: io.ErrUnexpectedEOF,
		`"x`: io.ErrUnexpectedEOF, `{]`: ErrSyntax} {
		in := NewReader(iotest.OneByteReader(strings.NewReader(text)), 1<<20)
		if v := in.Value(); v != nil || !errors.Is(in.Err(), want) || in.Peek() != 0 || in.Value() != nil {
			t.Errorf("%q is %q, %v", text, v, in.Err())
		}
	}
	in := NewReader(strings.NewReader(`{"\u0061" : [1, 2]}`), 1<<20)
	in.Expect('{')
	if name, v := in.FieldName(), string(in.ExpectValue('[')); name != "a" || v != "[1, 2]" || in.Peek() != '}' {
		t.Errorf("%q is %q, %v", name, v, in.Err())
	}
	if in.Expect(']'); !errors.Is(in.Err(), ErrSyntax) {
		t.Errorf("another bracket is accepted: %v", in.Err())
	}
}

// TestReaderLimit would fail if buffered bytes did not count towards the limit.
func TestReaderLimit(t *testing.T) {
	long := `"` + strings.Repeat("x", 9_998) + `"`
	for limit, want := range map[int64]error{10_000: nil, 9_999: ErrTooLarge} {
		in := NewReader(iotest.HalfReader(strings.NewReader(strings.Repeat(long, 20))), limit)
		for range 20 {
			in.Value()
			in.Limit(limit)
		}
		if !errors.Is(in.Err(), want) {
			t.Errorf("values of 10,000 bytes under a limit of %d: %v", limit, in.Err())
		}
	}
}

// TestIdleReaderIsSmall would fail if a watch event waited for the next one, or if idle watches had large buffers.
func TestIdleReaderIsSmall(t *testing.T) {
	r, w := io.Pipe()
	defer func() { _ = r.Close() }()
	go func() {
		for _, size := range []int{10, 300_000, 10, 5_000} {
			_, _ = io.WriteString(w, `"`+strings.Repeat("x", size)+`"`+"\n")
		}
		_ = w.Close()
	}()
	in := NewReader(r, 1<<20)
	for _, size := range []int{10, 300_000, 10, 5_000} {
		if got := len(in.Value()); got != size+2 {
			t.Fatalf("%d bytes, want %d, %v", got, size+2, in.Err())
		}
	}
	if in.Peek(); cap(in.text) > minReadSize {
		t.Errorf("an idle reader has a buffer of %d bytes", cap(in.text))
	}
}

// TestLimitReads fails if each of many readers of one response had a large buffer.
func TestLimitReads(t *testing.T) {
	const limit = 16 << 10
	text := strings.Repeat(`"`+strings.Repeat("x", 5_000)+`" `, 100)
	for name, tt := range map[string]struct {
		limit, want int
	}{"without a limit": {0, maxReadSize}, "with a limit": {limit, limit}} {
		t.Run(name, func(t *testing.T) {
			in := NewReader(strings.NewReader(text), 1<<20)
			if tt.limit > 0 {
				in.LimitReads(tt.limit)
			}
			most := 0
			for in.Peek() != 0 {
				if in.Value(); in.Err() != nil {
					t.Fatal(in.Err())
				}
				most = max(most, cap(in.text))
			}
			if most != tt.want {
				t.Errorf("the buffer has %d bytes, want %d", most, tt.want)
			}
		})
	}
}

func BenchmarkReader(b *testing.B) {
	text := `"` + strings.Repeat("x", 15<<20) + `"`
	b.SetBytes(int64(len(text)))
	for b.Loop() {
		if in := NewReader(&pieces{text, 1400}, 16<<20); len(in.Value()) != len(text) {
			b.Fatal(in.Err())
		}
	}
}

// BenchmarkReaderByJSONText is BenchmarkReader with jsontext.
func BenchmarkReaderByJSONText(b *testing.B) {
	text := `"` + strings.Repeat("x", 15<<20) + `"`
	b.SetBytes(int64(len(text)))
	for b.Loop() {
		if v, err := jsontext.NewDecoder(&pieces{text, 1400}).ReadValue(); len(v) != len(text) {
			b.Fatal(err)
		}
	}
}

type pieces struct {
	text string
	size int
}

func (p *pieces) Read(b []byte) (int, error) {
	n := copy(b[:min(len(b), p.size)], p.text)
	if p.text = p.text[n:]; n == 0 {
		return 0, io.EOF
	}
	return n, nil
}
