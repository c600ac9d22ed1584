package scan

import (
	"encoding/json"
	"errors"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/go-json-experiment/json/jsontext"
	kjson "sigs.k8s.io/json"
)

var syntax = []jsontext.Options{jsontext.AllowDuplicateNames(true), jsontext.AllowInvalidUTF8(true)}

var examples = []string{
	`{}`,
	`[]`,
	`""`,
	`0`,
	`-0`,
	`true`,
	`false`,
	`null`,
	` { } `,
	"\t[\r\n]",
	`{"a":1}`,
	`{"a":{"b":[1,"x",{"c":null}]},"a":2}`,
	`[1.5e-3,0.1,1E+9,-12]`,
	`"eight by"`,
	`"exactly sixteen!"`,
	`"a \"quoted\" one, \\ and \u00e9\ud83d\ude00\uD800"`,
	"\"\xff\xfe\"",
	"\"\x7f\x80\"",
	`"` + strings.Repeat("x", 100) + `"`,
	`{"a":"e\u0301é"}`,
	// Not JSON.
	`{1:2}`, `{"a":1,2:3}`, "\"12345678\xff\"",
	``,
	` `,
	`{`,
	`{"a"`,
	`{"a":`,
	`{"a":1`,
	`{"a":1,`,
	`{"a":1,}`,
	`{a:1}`,
	`{"a" 1}`,
	`{"a":1 "b":2}`,
	`[1 2]`,
	`[1,]`,
	`[,1]`,
	`{]`,
	`[}`,
	`01`,
	`-`,
	`+1`,
	`1.`,
	`.5`,
	`1e`,
	`1e+`,
	`1.e3`,
	`tru`,
	`True`,
	`nul`,
	`nulll`,
	"\"a\nb\"",
	"\"12345678\x00\"",
	"\"\x1f\"",
	`"\x"`,
	`"\u12"`,
	`"\u12g4"`,
	"\"\\u12\x104\"",
	`"`,
	`"\`,
	`"\"`,
	`"abc`,
	`{}{}`,
	`"a"b`,
	`1 2`,
	"\xef\xbb\xbf{}",
	"{}\x00",
	"\v{}",
}

func TestWhole(t *testing.T) {
	for _, text := range examples {
		checkText(t, []byte(text))
	}
}

// TestSpace would need hours if white space were scanned in quadratic time.
func TestSpace(t *testing.T) {
	space := strings.Repeat(" \n", 4<<20)
	text := strings.ReplaceAll(`_{_"a"_:_[_1_,_2_]_}_`, "_", space)
	var s Scanner
	if !s.Whole([]byte(text)) {
		t.Error("white space is refused")
	}
}

// TestDepth fails if a deep object, which a cluster stores, breaks the lists of all clusters.
func TestDepth(t *testing.T) {
	for _, depth := range []int{510, 10_000, 1 << 20} {
		for _, text := range []string{strings.Repeat("[", depth) + strings.Repeat("]", depth),
			strings.Repeat(`{"a":`, depth) + "1" + strings.Repeat("}", depth)} {
			var s Scanner
			if !s.Whole([]byte(text)) || s.Whole([]byte(text[:len(text)-1])) || s.Whole([]byte(text+"]")) {
				t.Errorf("%.6s is refused at depth %d", text, depth)
			}
			if s.Reset(); cap(s.open) > maxIdleDepth {
				t.Errorf("an idle scanner keeps %d bytes", cap(s.open))
			}
		}
	}
}

func FuzzValue(f *testing.F) {
	for _, text := range examples {
		f.Add([]byte(text))
	}
	f.Fuzz(checkText)
}

// FuzzRepair fails if a value that Kubernetes decodes is not passed on in UTF-8, or decodes to another one.
func FuzzRepair(f *testing.F) {
	for _, text := range examples {
		f.Add([]byte(text))
	}
	f.Fuzz(func(t *testing.T, text []byte) {
		var want, got any
		if kjson.UnmarshalCaseSensitivePreserveInts(text, &want) != nil {
			return
		}
		r := NewReader(strings.NewReader(string(text)+" "), 1<<20)
		r.Scanner.Field = "a"
		value := r.Value()
		if r.Err() != nil || !utf8.Valid(value) {
			t.Fatalf("%q becomes %q, %v", text, value, r.Err())
		}
		if err := kjson.UnmarshalCaseSensitivePreserveInts(value, &got); err != nil {
			t.Fatalf("%q becomes %q: %v", text, value, err)
		}
		wantText, _ := json.Marshal(want)
		gotText, _ := json.Marshal(got)
		if string(wantText) != string(gotText) {
			t.Errorf("%q becomes %q", text, value)
		}
		object, ok := got.(map[string]any)
		if field, hasField := object["a"]; ok && hasField {
			var found any
			at := r.Scanner.Found
			if err := kjson.UnmarshalCaseSensitivePreserveInts(value[at.At:at.End], &found); err != nil {
				t.Fatalf("%q has a field at %+v: %v", value, at, err)
			}
			wantText, _ := json.Marshal(field)
			foundText, _ := json.Marshal(found)
			if at.Times == 1 && string(wantText) != string(foundText) {
				t.Errorf("%q has a field %s, want %s", value, foundText, wantText)
			}
		}
	})
}

func checkText(t *testing.T, text []byte) {
	in := append(append([]byte(`[`), text...), ']') // a number ends where something follows
	want := jsontext.Value(in).IsValid(syntax...)
	if json.Valid(in) != want || (kjson.UnmarshalCaseSensitivePreserveInts(in, new(any)) == nil) && !want {
		t.Errorf("%q: the decoders differ", in)
	}
	if got := new(Scanner).Whole(in); got != (want && utf8.Valid(in)) {
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
	if want && len(in) < 400 { // the comparison needs quadratic time
		checkParts(t, in, 0)
	}
}

func checkParts(t *testing.T, in []byte, at int) {
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
			checkParts(t, in, from)
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

// TestStringEnd fails if a neighbour hid the end of a string, or looked like it: eight bytes are tested by arithmetic.
func TestStringEnd(t *testing.T) {
	naive := func(text []byte) int {
		for i, c := range text {
			switch {
			case c == '"':
				return i + 1
			case c < ' ', c == '\\': // the bytes after a backslash are no escape
				return invalid
			}
		}
		return incomplete(len(text))
	}
	for at := range 8 {
		for pair := range 1 << 16 {
			text := []byte(strings.Repeat("\xe4", 20))
			text[at], text[at+1] = byte(pair>>8), byte(pair)
			if text[at] == '\\' {
				continue // the second byte may complete the escape
			}
			if got, want := stringEnd(text, 0), naive(text); got != want {
				t.Fatalf("%#x at %d: %d, want %d", text[at:at+2], at, got, want)
			}
		}
	}
}

// TestField would fail if a nested or escaped name were confused with the field of the value itself.
func TestField(t *testing.T) {
	for in, want := range map[string]struct {
		times int
		value string
	}{
		`{"a":1}`:                                    {0, ""},
		`{"metadata":{"metadata":1},"a":2}`:          {1, `{"metadata":1}`},
		`{"a":{"metadata":1},"b":["metadata"]}`:      {0, ""},
		`[{"metadata":1}]`:                           {0, ""},
		`["metadata",1]`:                             {0, ""},
		`{ "x" : [1] , "metad\u0061ta" : [ 1, 2 ] }`: {1, `[ 1, 2 ]`},
		`{"metadata":1,"metadata":"two"}`:            {2, `"two"`},
		`{"metadata":-1.5}`:                          {1, "-1.5"},
		`"metadata"`:                                 {0, ""},
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
				t.Error("Reset keeps what was found")
			}
		}
	}
}

// TestNumber checks that a number has no limit and that its digits are scanned once, in pieces of any size.
func TestNumber(t *testing.T) {
	const digits = 300_000
	for _, number := range []string{strings.Repeat("1", digits), "-0." + strings.Repeat("0", digits) + "1e-5", "1e+" +
		strings.Repeat("9", digits)} {
		in := []byte("[" + number + ",2]")
		for _, step := range []int{1, 1000, len(in)} {
			var s Scanner
			end, err := 0, ErrShort
			for i := step; i < len(in)+step && errors.Is(err, ErrShort); i += step {
				end, err = s.Value(in[:min(i, len(in))])
			}
			if err != nil || end != len(in) {
				t.Errorf("%.10s in steps of %d ends at %d, %v", number, step, end, err)
			}
		}
	}
}

// TestText fails if the text of a string without escapes differed from that of other strings.
func TestText(t *testing.T) {
	for in, want := range map[string]string{
		`"web-1"`: "web-1", `""`: "", `"a b~"`: "a b~", `"a\u0040b"`: "a@b", `"a\"b"`: `a"b`, `"ä"`: "ä", `"a`: "", `a"`: "",
		`"`: "", ``: "", `7`: "", `null`: "", `"a"b"`: "", "\"a\xffb\"": "a\uFFFDb", "\"a\nb\"": "", "\"a\x7fb\"": "a\x7fb",
		` "a" `: "a",
	} {
		if got := Text([]byte(in)); got != want {
			t.Errorf("%q is %q, want %q", in, got, want)
		}
	}
}

// TestLookup checks that keys match exactly: a key that differs in case must not decide anything.
func TestLookup(t *testing.T) {
	for in, want := range map[string]string{
		`{"kind":"A"}`: "A", ` { "k\u0069nd" : "A" } `: "A", `{"kind":"A","\u212aind":"B","Kind":"C"}`: "A",
		`{"\u212aind":"B"}`: "", `{"KIND":"B"}`: "",
		`{"kind":"A","kind":"B"}`: "B", `{"kind":7}`: "", `{"kind":null}`: "", `["kind"]`: "", `"kind"`: "", `{}`: "",
	} {
		if got := Text(Lookup([]byte(in), "kind")); got != want {
			t.Errorf("%s is %q, want %q", in, got, want)
		}
	}
	if got := Text(Lookup([]byte(`{"a":{"b":"c"},"b":"d"}`), "a", "b")); got != "c" {
		t.Errorf("by a path: %q", got)
	}
}
