package scan

import (
	"errors"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/go-json-experiment/json/jsontext"
)

// syntax is what is accepted.
var syntax = []jsontext.Options{jsontext.AllowDuplicateNames(true), jsontext.AllowInvalidUTF8(true)}

// examples are texts of which some are JSON.
var examples = []string{
	`{}`, `[]`, `""`, `0`, `-0`, `true`, `false`, `null`, ` { } `, "\t[\r\n]", `{"a":1}`, `{"a":{"b":[1,"x",{"c":null}]},"a":2}`, `[1.5e-3,0.1,1E+9,-12]`,
	`"eight by"`, `"exactly sixteen!"`, `"a \"quoted\" one, \\ and \u00e9\ud83d\ude00\uD800"`, "\"\xff\xfe\"", "\"\x7f\x80\"", `"` + strings.Repeat("x", 100) + `"`, `{"a":"e\u0301é"}`,
	// Not.
	`{1:2}`, `{"a":1,2:3}`, "\"12345678\xff\"",
	``, ` `, `{`, `{"a"`, `{"a":`, `{"a":1`, `{"a":1,`, `{"a":1,}`, `{a:1}`, `{"a" 1}`, `{"a":1 "b":2}`, `[1 2]`, `[1,]`, `[,1]`, `{]`, `[}`, `01`, `-`, `+1`, `1.`, `.5`, `1e`, `1e+`, `1.e3`, `tru`, `True`, `nul`,
	`nulll`, "\"a\nb\"", "\"12345678\x00\"", "\"\x1f\"", `"\x"`, `"\u12"`, `"\u12g4"`, "\"\\u12\x104\"", `"`, `"\`, `"\"`, `"abc`, `{}{}`, `"a"b`, `1 2`, "\xef\xbb\xbf{}", "{}\x00", "\v{}",
}

func TestWhole(t *testing.T) {
	for _, text := range examples {
		holds(t, []byte(text))
	}
	for depth, want := range map[int]bool{MaxDepth: true, MaxDepth + 1: false} {
		for _, text := range []string{strings.Repeat("[", depth) + strings.Repeat("]", depth), strings.Repeat(`{"a":`, depth) + "1" + strings.Repeat("}", depth)} {
			if new(Scanner).Whole([]byte(text)) != want {
				t.Errorf("%d deep: %v", depth, !want)
			}
		}
	}
}

func FuzzValue(f *testing.F) {
	for _, text := range examples {
		f.Add([]byte(text))
	}
	f.Fuzz(holds)
}

// holds: text is what the decoder takes it for, however it comes; and of what is well-formed, no piece is taken for wrong, nor for whole.
func holds(t *testing.T, text []byte) {
	in := append(append([]byte(`[`), text...), ']') // a number ends where something follows
	want := jsontext.Value(in).IsValid(syntax...) && utf8.Valid(in)
	if got := new(Scanner).Whole(in); got != want {
		t.Errorf("%q: whole is %v, want %v", in, got, want)
	}
	for _, step := range []int{1, 7} {
		var s Scanner
		end, err := 0, ErrShort
		for i := 0; i < len(in)+step && errors.Is(err, ErrShort); i += step {
			end, err = s.Value(in[:min(i, len(in))])
		}
		if got := err == nil && Space(in, end) == len(in); got != want {
			t.Errorf("%q in steps of %d ends at %d, %v", in, step, end, err)
		}
	}
	if want && len(in) < 400 { // what follows takes the square of that
		parts(t, in, 0)
	}
}

// parts holds: fields and elements are those that the decoder finds.
func parts(t *testing.T, in []byte, at int) {
	dec := jsontext.NewDecoder(strings.NewReader(string(in[at:])), syntax...)
	open, err := dec.ReadToken()
	if err != nil {
		t.Fatal(err)
	}
	var s Scanner
	value := func(from, to int) {
		if v, err := dec.ReadValue(); err != nil || string(v) != string(in[from:to]) {
			t.Errorf("%q: a value %q, want %q, %v", in, in[from:to], v, err)
		}
		if in[from] == '{' || in[from] == '[' {
			parts(t, in, from)
		}
	}
	switch open.Kind() {
	case '[':
		for from, to := range s.Elements(in, at) {
			value(from, to)
		}
	case '{':
		for field := range s.Fields(in, at) {
			if name, err := dec.ReadToken(); err != nil || strings.ToValidUTF8(name.String(), "") == name.String() &&
				!strings.Contains(name.String(), "\uFFFD") && !field.Is(name.String()) || field.Is(name.String()+"x") {
				t.Errorf("%q: a field %q, want %q, %v", in, field.Name, name, err)
			}
			value(field.At, field.End)
		}
	}
	if end, err := dec.ReadToken(); err != nil || end.Kind() != open.Kind()+2 {
		t.Errorf("%q: more than %q follows, %v", in, end, err)
	}
}

// TestField holds: of what is looked for the last is found, among the fields of the value itself, and however it is written.
func TestField(t *testing.T) {
	for in, want := range map[string]struct {
		times int
		value string
	}{
		`{"a":1}`: {0, ""}, `{"metadata":{"metadata":1},"a":2}`: {1, `{"metadata":1}`}, `{"a":{"metadata":1},"b":["metadata"]}`: {0, ""}, `[{"metadata":1}]`: {0, ""}, `["metadata",1]`: {0, ""},
		`{ "x" : [1] , "metad\u0061ta" : [ 1, 2 ] }`: {1, `[ 1, 2 ]`}, `{"metadata":1,"metadata":"two"}`: {2, `"two"`}, `{"metadata":-1.5}`: {1, "-1.5"}, `"metadata"`: {0, ""},
	} {
		for _, step := range []int{1, len(in)} {
			s := Scanner{Field: "metadata"}
			for i := step; i <= len(in); i += step {
				if _, err := s.Value([]byte(in[:i])); err != nil && !errors.Is(err, ErrShort) {
					t.Fatal(err)
				}
			}
			if got := s.Found; got.Times != want.times || in[got.At:got.End] != want.value {
				t.Errorf("%s in steps of %d: %d times, last %q", in, step, got.Times, in[got.At:got.End])
			}
			if s.Reset(); s.Found.Times != 0 {
				t.Error("what was found stays")
			}
		}
	}
}

// TestNumber holds: a number has a bound, however it comes.
func TestNumber(t *testing.T) {
	for digits, want := range map[int]error{maxNumber: nil, maxNumber + 1: ErrSyntax} {
		in := []byte("[" + strings.Repeat("1", digits) + ",2]")
		for _, step := range []int{1, 1000, len(in)} {
			var s Scanner
			err := ErrShort
			for i := step; i < len(in)+step && errors.Is(err, ErrShort); i += step {
				_, err = s.Value(in[:min(i, len(in))])
			}
			if !errors.Is(err, want) {
				t.Errorf("%d digits in steps of %d: %v", digits, step, err)
			}
		}
	}
}
