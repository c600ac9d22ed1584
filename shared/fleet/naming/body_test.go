package naming

import (
	"encoding/json"
	"errors"
	"fmt"
	"runtime"
	"strings"
	"testing"
	"unicode/utf16"

	"google.golang.org/protobuf/encoding/protowire"

	"github.com/clusterpass/clusterpass/shared/alloctest"
	"github.com/clusterpass/clusterpass/shared/fleet/merge"
	"github.com/clusterpass/clusterpass/shared/fleet/scan"
)

// fill returns a text of 3 MiB, the limit of a body. It repeats part between head and tail.
func fill(head, part, tail string) string {
	return head + strings.Repeat(part, (3<<20-len(head)-len(tail))/len(part)) + tail
}

func podOf(metadata string) string {
	raw := protowire.AppendString(protowire.AppendTag(nil, 1, protowire.BytesType), metadata)
	return string(protowire.AppendBytes(append([]byte(magic), "\x0a\x09\x0a\x02v1\x12\x03Pod\x12"...), raw))
}

func applied(text string) string {
	quoted, _ := json.Marshal(text)
	return `{"metadata":{"annotations":{"` + merge.LastApplied + `":` + string(quoted) + `}}}`
}

// TestParseBounded would fail if a caller could exhaust the gateway's memory with a small body.
func TestParseBounded(t *testing.T) {
	var utf string
	for _, u := range utf16.Encode([]rune("\ufeffa: [&a {}, *a]")) {
		utf += string([]byte{byte(u), byte(u >> 8)})
	}
	for name, tt := range map[string]struct {
		contentType, in string
		isTooMany       bool
	}{
		"objects":       {"application/json", fill(`{"a":[`, `{"":0},`, `0]}`), true},
		"a patch":       {"application/json-patch+json", fill(`[`, `{},`, `{}]`), true},
		"text":          {"application/json", applied(fill(`[`, `0,`, `0]`)[1<<20:]), true},
		"JSON for YAML": {"application/apply-patch+yaml", fill(`{"a":[`, `{"":0},`, `0]}`), true},
		"values":        {"application/yaml", fill("a: [", "0,", "0]"), true},
		"lines":         {"application/yaml", fill("a:\n", "-\n", ""), true},
		"one line":      {"application/yaml", fill("a:\n", "- ", "a"), true},
		"keys":          {"application/yaml", fill("a:\n", "a:\n", ""), true},
		"other breaks":  {"application/yaml", fill("a:\n", "-\u2028", ""), true},
		"complex keys":  {"application/yaml", fill("", "?\n", ""), true},
		"long aliases": {
			"application/yaml", "a: &a \"" + strings.Repeat("x", 1<<20) + "\"\nb: [" + strings.Repeat("*a,", 100) + "]", false,
		},
		"many aliases": {"application/yaml", "a: &a [x,x,x,x,x,x,x,x]\nb: &b [*a,*a,*a,*a,*a,*a,*a]\nc: [*b,*b,*b]", false},
		"long tags": {
			"application/yaml",
			"%TAG !a! " + strings.Repeat("x", 1<<20) + "\n---\na: [" + strings.Repeat("!a!b c,", 100) + "]", false,
		},
		"UTF-16":         {"application/yaml", utf, false},
		"owners":         {protobufMedia, podOf(fill("", "\x6a\x00", "")), true},
		"managed fields": {protobufMedia, podOf(fill("", "\x8a\x01\x00", "")), true},
	} {
		var err error
		bytes := alloctest.Allocated(func() { _, err = Parse(resource("pods"), tt.contentType, []byte(tt.in)) })
		if err == nil || errors.Is(err, scan.ErrTooMany) != tt.isTooMany || len(err.Error()) > 300 {
			t.Errorf("%s: %v", name, err)
		}
		if bytes > 24<<20 { // a few copies of the body
			t.Errorf("%s: %d MiB", name, bytes>>20)
		}
	}
}

// TestParseLarge would fail if the gateway refused a large body that a cluster can store.
func TestParseLarge(t *testing.T) {
	if testing.Short() {
		t.Skip("slow: make test runs it")
	}
	var object strings.Builder
	object.WriteString(`{"metadata":{"name":"web@member1"},"x":{"":0`)
	for i := 0; object.Len() < 3<<19; i++ {
		fmt.Fprintf(&object, `,"key-%d":{"value":"some text","more":[true,%d]}`, i, i)
	}
	object.WriteString(`}}`)
	file := func(line string) string {
		return "metadata: {name: web@member1}\ndata:\n  file: |\n" + strings.Repeat("    "+line+"\n", 1<<20/(len(line)+5))
	}
	numbers, _ := json.Marshal(map[string]any{"metadata": map[string]any{"name": "web@member1"},
		"data": map[string]string{"a.csv": strings.Repeat("1,", 700_000), "b": " &a *a\n%TAG "}})
	for name, tt := range map[string]struct{ contentType, in string }{
		"an object":                {"application/json", object.String()},
		"an object sent as YAML":   {"application/apply-patch+yaml", object.String()},
		"text that is like YAML":   {"application/apply-patch+yaml", string(numbers)},
		"short lines":              {"application/yaml", file("x")},
		"lines that are like YAML": {"application/yaml", file("- a")},
		"fields":                   {"application/yaml", file("a: b")},
		"JSON in YAML":             {"application/yaml", file(`{"name":"a","value":[1,2,"three"]},`)},
		"stars and ampersands": {
			"application/yaml", file(`make all >/dev/null 2>&1 && echo "**done**" & # */5 * * * * *all `),
		},
		"a role": {
			"application/yaml", "metadata: {name: web@member1}\nrules:\n- verbs: [\"*\"]\n  resources: ['*']\n",
		},
		"an anchor": {"application/yaml", "metadata: &m {name: web@member1}\n"},
	} {
		b, err := Parse(resource("pods"), tt.contentType, []byte(tt.in))
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		if out, err := b.ForMember("member1", 7); err != nil || strings.Contains(string(out), "web@") {
			t.Errorf("%s: %.100s, %v", name, out, err)
		}
	}
}

// TestParsedBodyIsSmall would fail if requests that wait for a cluster used the memory of their decoded bodies.
func TestParsedBodyIsSmall(t *testing.T) {
	in := []byte(`{"metadata":{"name":"web@member1"},"a":[` + strings.Repeat(`{"":0},`, 90_000) + `0]}`)
	before := alloctest.InUse()
	b, err := Parse(anyKind, "application/json", in)
	if size := int64(alloctest.InUse()) - int64(before); err != nil || size > 4<<20 {
		t.Errorf("%d bytes of %d, %v", size, len(in), err)
	}
	runtime.KeepAlive(b)
}

// TestUnchangedBodyIsNotDecoded would fail if a body without names or versions were decoded again for each cluster.
func TestUnchangedBodyIsNotDecoded(t *testing.T) {
	for in, isDecoded := range map[string]bool{
		`{"metadata":{"name":"web","resourceVersion":"5"},"x":"a@b"}`: false,
		`[{"op":"add","path":"/metadata/name","value":"web"}]`:        false,
		``:                                     false,
		applied(`{"metadata":{"name":"web"}}`): false,
		`{"metadata":{"name":"web@x"}}`:        true,
		`{"preconditions":{"resourceVersion":"` + composite + `"}}`:           true,
		`{"metadata":{"annotations":{"` + merge.SourceAnnotation + `":"x"}}}`: true,
		applied(`{"metadata":{"name":"web@x"}}`):                              true,
		`[{"op":"add","path":"/metadata/name","value":"web@x"}]`:              true,
		`[{"op":"remove","path":"` + sourcePointer + `"}]`:                    true,
	} {
		references := anyKind
		if strings.Contains(in, "preconditions") {
			references = Deletion
		}
		b, err := Parse(references, "application/json", []byte(in))
		if err != nil {
			t.Fatal(err)
		}
		if (b.DecodeSize() > 0) != isDecoded {
			t.Errorf("%s decodes %d bytes", in, b.DecodeSize())
		}
		if n := testing.AllocsPerRun(10, func() { _, _ = b.ForMember("member1", 7) }); (n > 0) != isDecoded {
			t.Errorf("%s allocates %v times", in, n)
		}
	}
}

// TestLabelSelectorIsLinear would fail if a long selector needed memory quadratic in its length.
func TestLabelSelectorIsLinear(t *testing.T) {
	var out string
	bytes := alloctest.Allocated(func() { out, _, _ = removeCluster(strings.Repeat("a=b@m,", 5_000) + "c") })
	if out != strings.Repeat("a=b,", 5_000)+"c" || bytes > 1<<20 {
		t.Errorf("%.20s, %d bytes", out, bytes)
	}
}

// FuzzYAML would fail if YAML became more values than countYAMLNodes counts, or far more text.
func FuzzYAML(f *testing.F) {
	for _, in := range []string{"a: [b, c]", "- - - a", "? a\n: b", "a:\n- b:\n  c", "[a: b,]", "{? a, b}",
		"a: |\n  b,c\nd: \"e\n  f\"", "&a [b]", "a: [&a b, *a]", "<<: {a: b}", "!!float 1e20", "%TAG !a! b\n---\n!a!c d"} {
		f.Add(in)
	}
	f.Fuzz(func(t *testing.T, in string) {
		out, err := yamlToJSON([]byte(in))
		if err != nil {
			return
		}
		n, _, _ := countYAMLNodes([]byte(in))
		if len(out) > 11*len(in)+64 {
			t.Fatalf("%q becomes %q", in, out)
		}
		if err := scan.CheckValueCount(out, 4*(n+1)+1); err != nil {
			t.Fatalf("%q, with %d possible nodes, becomes %q", in, n, out)
		}
	})
}
