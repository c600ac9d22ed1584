package lambdahttp

import (
	"encoding/json"
	"io"
	"net/http"
	"net/url"
	"os"
	"strings"
	"testing"
)

// fuzzEvent checks that any payload results in an error or a valid response. A handler receives only requests that it
// could forward.
func fuzzEvent(f *testing.F, kinds ...string) {
	files, err := os.ReadDir("testdata")
	if err != nil {
		f.Fatal(err)
	}
	for _, file := range files {
		for _, kind := range kinds {
			if strings.HasPrefix(file.Name(), kind) {
				f.Add(payload(f, strings.TrimSuffix(file.Name(), ".json")))
			}
		}
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		fn := New(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if _, err := EventFrom(r.Context()); !err {
				t.Error("no event")
			}
			u, err := url.ParseRequestURI(r.RequestURI)
			if err != nil || u.EscapedPath() != r.URL.EscapedPath() || u.RawQuery != r.URL.RawQuery {
				t.Errorf("RequestURI %q and URL %#v differ (%v)", r.RequestURI, r.URL, err)
			}
			if strings.ContainsAny(r.RequestURI, " \r\n\x00") {
				t.Errorf("RequestURI %q splits a request", r.RequestURI)
			}
			for k, vs := range r.Header {
				for _, v := range vs {
					if strings.ContainsAny(k+v, "\r\n\x00") {
						t.Errorf("header %q: %q splits a request", k, v)
					}
				}
			}
			body, err := io.ReadAll(r.Body)
			if err != nil || int64(len(body)) != r.ContentLength {
				t.Errorf("body of %d bytes (%v), Content-Length %d", len(body), err, r.ContentLength)
			}
			w.Header()["X-Back"] = r.Header["X"]
			_, _ = w.Write(body)
		}), Options{})
		out, err := fn.Invoke(t.Context(), b)
		if err == nil && !json.Valid(out) {
			t.Errorf("%q is not JSON", out)
		}
	})
}

func FuzzALBEvent(f *testing.F)  { fuzzEvent(f, "alb") }
func FuzzRESTEvent(f *testing.F) { fuzzEvent(f, "rest") }
func FuzzHTTPEvent(f *testing.F) { fuzzEvent(f, "http", "function-url") }

// FuzzBody: every body and header arrives byte for byte, however it was written.
func FuzzBody(f *testing.F) {
	f.Add([]byte(`{"a":"b\n"}`), "a, b", 3, true)
	f.Add([]byte("世\xff\x00"), "\xe9\t\\", 1, false)
	f.Fuzz(func(t *testing.T, body []byte, value string, chunk int, encoded bool) {
		if len(body) > 1000 || len(value) > 1000 {
			return
		}
		fn := New(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Type", "x/y")
			w.Header()["X-Value"] = []string{value, value}
			if encoded {
				w.Header().Set("Content-Encoding", "gzip")
			}
			size := max(1, min(chunk, len(body)))
			for rest := body; len(rest) > 0; rest = rest[min(size, len(rest)):] {
				if _, err := w.Write(rest[:min(size, len(rest))]); err != nil {
					t.Error(err)
				}
			}
		}), Options{})
		b, err := fn.Invoke(t.Context(), payload(t, "alb-multi"))
		if err != nil {
			t.Fatal(err)
		}
		a := decode(t, b)
		if want := strings.ToValidUTF8(value, "\uFFFD"); a.StatusCode != 200 || a.body != string(body) ||
			len(a.MultiValueHeaders["X-Value"]) != 2 || a.MultiValueHeaders["X-Value"][1] != want {
			t.Errorf("%q and %q became %s", body, value, b)
		}
		if encoded && !a.IsBase64Encoded {
			t.Error("an encoded body went as text")
		}
	})
}
