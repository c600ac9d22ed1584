package secrets

import (
	"bytes"
	"encoding/json"
	"encoding/xml"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"os/exec"
	"reflect"
	"regexp"
	"strings"
	"testing"
	"time"

	"sigs.k8s.io/yaml"
)

const plain = "pl41n-t3xt"

type holder struct {
	Value   Value
	Pointer *Value
	Any     any
	List    []Value
	Map     map[string]Value
	hidden  Value
	deep    struct{ hidden *Value }
}

func newHolder() holder {
	v := NewValue([]byte(plain))
	h := holder{v, &v, v, []Value{v}, map[string]Value{"k": v}, v, struct{ hidden *Value }{&v}}
	return h
}

func leaks(out string) bool {
	for _, form := range []string{
		plain, fmt.Sprintf("%x", plain), fmt.Sprintf("%X", plain), fmt.Sprintf("% x", plain),
		fmt.Sprintf("%v", []byte(plain)),
		fmt.Sprintf("%#v", []byte(plain)), fmt.Sprintf("%b", []byte(plain)), fmt.Sprintf("%o", []byte(plain)),
		fmt.Sprintf("%U", []rune(plain)),
		"cGw0MW4tdDN4dA", // base64
	} {
		if strings.Contains(out, strings.Trim(form, "[]")) {
			return true
		}
	}
	return false
}

func TestValueHidesItself(t *testing.T) {
	v := NewValue([]byte(plain))
	sec := &Secret{Meta: Meta{Name: "n"}, Value: v}
	h := newHolder()
	things := map[string]any{
		"value": v, "pointer": &v, "secret": sec, "copy": *sec, "holder": h, "holder pointer": &h, "list": []any{v, &h},
		"map": map[string]any{"k": h},
	}
	outputs := map[string]func(any) string{
		"json":   func(x any) string { b, err := json.Marshal(x); return fmt.Sprint(string(b), err) },
		"yaml":   func(x any) string { b, err := yaml.Marshal(x); return fmt.Sprint(string(b), err) },
		"xml":    func(x any) string { b, err := xml.Marshal(x); return fmt.Sprint(string(b), err) },
		"errors": func(x any) string { return fmt.Errorf("wrapped: %w", fmt.Errorf("%v %s", x, x)).Error() },
		"slog text": func(x any) string {
			var b bytes.Buffer
			slog.New(slog.NewTextHandler(&b, nil)).Info("m", "k", x, slog.Group("g", "k", x))
			return b.String()
		},
		"slog json": func(x any) string {
			var b bytes.Buffer
			slog.New(slog.NewJSONHandler(&b, nil)).With("w", x).Info("m", "k", x)
			return b.String()
		},
		"deep": func(x any) string { return dump(reflect.ValueOf(x), 0) },
	}
	for _, verb := range []string{
		"%v", "%+v", "%#v", "%s", "%q", "%x", "%X", "% x", "%d", "%b", "%o", "%c", "%U", "%e", "%t", "%p", "%T", "%w", "%!",
		"%10.3v", "%-5s",
	} {
		outputs[verb] = func(x any) string { return fmt.Sprintf(verb, x) }
	}
	for name, x := range things {
		for how, show := range outputs {
			if out := show(x); leaks(out) {
				t.Errorf("%s by %s: %s", name, how, out)
			}
		}
	}
	for _, shown := range []string{
		plain, fmt.Sprintf("%v", v.Reveal()), fmt.Sprintf("%x", v.Reveal()),
		dump(reflect.ValueOf(&struct{ b *[]byte }{new([]byte(plain))}), 0),
	} {
		if !leaks(shown) {
			t.Errorf("the test does not see a value that is shown: %s", shown)
		}
	}
	for _, verb := range []string{"%v", "%+v", "%#v", "%s", "%q", "%x"} {
		if got := fmt.Sprintf(verb, v); got != hidden {
			t.Errorf("%s prints %s, want %s", verb, got, hidden)
		}
	}
}

func dump(v reflect.Value, depth int) string {
	if depth > 20 {
		return ""
	}
	var out strings.Builder
	switch v.Kind() {
	case reflect.Pointer, reflect.Interface:
		if !v.IsNil() {
			out.WriteString(dump(v.Elem(), depth+1))
		}
	case reflect.Struct:
		for i := range v.NumField() {
			out.WriteString(dump(v.Field(i), depth+1))
		}
	case reflect.Slice, reflect.Array:
		if v.Type().Elem().Kind() == reflect.Uint8 {
			fmt.Fprintf(&out, "%v", v)
			break
		}
		for i := range v.Len() {
			out.WriteString(dump(v.Index(i), depth+1))
		}
	case reflect.Map:
		for _, k := range v.MapKeys() {
			out.WriteString(dump(v.MapIndex(k), depth+1))
		}
	default:
		fmt.Fprintf(&out, "%v ", v)
	}
	return out.String()
}

// TestPanicsHideValues runs a process that panics with a value. The trace must not contain it.
func TestPanicsHideValues(t *testing.T) {
	const env = "SECRETS_TEST_PANIC"
	v := NewValue([]byte(plain))
	panics := map[string]func(){
		"value":  func() { panic(v) },
		"holder": func() { panic(newHolder()) },
		"error":  func() { panic(fmt.Errorf("%v %+v", v, newHolder())) },
		"argument": func() {
			func(v Value, n []int) { _ = n[len(v.Reveal())] }(v, nil)
		},
	}
	if which := os.Getenv(env); which != "" {
		panics[which]()
	}
	for which := range panics {
		cmd := exec.CommandContext(t.Context(), os.Args[0], "-test.run=^TestPanicsHideValues$")
		cmd.Env = append(os.Environ(), env+"="+which, "GOTRACEBACK=all")
		out, err := cmd.CombinedOutput()
		if err == nil || !bytes.Contains(out, []byte("panic")) {
			t.Errorf("%s: did not panic: %v: %s", which, err, out)
		}
		if leaks(string(out)) {
			t.Errorf("%s: %s", which, out)
		}
	}
}

func TestValue(t *testing.T) {
	if v := (Value{}); v.Reveal() != nil || !v.Equal(NewValue(nil)) || fmt.Sprint(v) != hidden {
		t.Errorf("the zero value: %v", v)
	}
	if a, b := NewValue([]byte("a")), NewValue([]byte("b")); a.Equal(b) || !a.Equal(NewValue([]byte("a"))) {
		t.Error("Equal is wrong")
	}
	var s Secret
	if err := json.Unmarshal([]byte(`{"Name":"n","Value":"[hidden]"}`), &s); err == nil {
		t.Error("a hidden value was read back without an error")
	}
}

func TestErrors(t *testing.T) {
	cause := errors.New("cause")
	err := fmt.Errorf("get: %w", Unavailable(cause, 3*time.Second))
	if !errors.Is(err, ErrUnavailable) || !errors.Is(err, cause) || RetryAfter(err) != 3*time.Second {
		t.Errorf("%v, after %v", err, RetryAfter(err))
	}
	if RetryAfter(cause) != 0 || RetryAfter(nil) != 0 {
		t.Error("a hint from nowhere")
	}
}

// FuzzValidName compares ValidName with the regular expression of its rule. A name that the rule refuses could leave
// the directory of the secrets.
func FuzzValidName(f *testing.F) {
	for _, s := range []string{
		"", "a", "clusters/member1", "../a", "a/.b", "a/b-", "a..b", "a//b", "/a", "a/", "A", "a_b", "\xff", "ä",
		strings.Repeat("a", 253), strings.Repeat("a", 254),
	} {
		f.Add(s)
	}
	rule := regexp.MustCompile(`^[a-z0-9]([-a-z0-9.]*[a-z0-9])?(/[a-z0-9]([-a-z0-9.]*[a-z0-9])?)*$`)
	f.Fuzz(func(t *testing.T, name string) {
		want := len(name) <= 253 && rule.MatchString(name) && !strings.Contains(name, "..")
		err := ValidName(name)
		if want != (err == nil) || err != nil && !errors.Is(err, ErrInvalid) {
			t.Fatalf("%q: %v, want valid %t", name, err, want)
		}
	})
}
