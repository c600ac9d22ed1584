package upgrade

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"sigs.k8s.io/yaml"
)

// TestWrittenAsBefore: during a deployment, the version before must be able to read the stores. Changed data needs a
// new format that it can read: usually one version reads it, and the next writes it.
func TestWrittenAsBefore(t *testing.T) {
	all := formats(t)
	today := t.TempDir()
	writeFormat(t, today)
	before := shapes(t, all[len(all)-1])
	if diff := cmp.Diff(before, shapes(t, today)); diff != "" {
		t.Errorf("before, and today:\n%s", diff)
	}
}

// shapes returns the files below dir by their paths, as sorted lines without generated values.
func shapes(t *testing.T, dir string) map[string][]string {
	t.Helper()
	all := map[string][]string{}
	if err := filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() || d.Name() == ".lock" {
			return err
		}
		data, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		var parts []any
		switch name := filepath.Base(path); {
		case strings.HasSuffix(name, "token"):
			for part := range strings.SplitSeq(strings.TrimSpace(string(data)), ".") {
				parts = append(parts, part)
			}
		case strings.HasSuffix(name, ".key"): // PEM of random bytes
		case name == "objects.log": // each line is a checksum and JSON
			for line := range strings.Lines(string(data)) {
				_, record, _ := strings.Cut(strings.TrimSpace(line), " ")
				parts = append(parts, record)
			}
		case name == "table.json":
			var table struct{ Items []any }
			err = json.Unmarshal(data, &table)
			parts = table.Items
		case strings.HasSuffix(name, ".pem"):
			c := parseCertificate(t, data)
			var extensions []string
			for _, e := range c.Extensions {
				extensions = append(extensions, e.Id.String())
			}
			parts = append(parts, fmt.Sprint(c.Subject, c.SignatureAlgorithm, c.KeyUsage, c.ExtKeyUsage, c.URIs, c.DNSNames,
				extensions))
		case name == "secrets.yaml":
			var secrets map[string]any
			err = yaml.Unmarshal(data, &secrets)
			parts = append(parts, secrets)
		default: // a secret
			parts = append(parts, string(data))
		}
		lines := make([]string, len(parts))
		for i, p := range parts {
			text, err := json.Marshal(shape(p))
			if err != nil {
				return err
			}
			lines[i] = string(text)
		}
		slices.Sort(lines)
		all[strings.TrimPrefix(path, dir)] = lines
		return err
	}); err != nil {
		t.Fatal(err)
	}
	return all
}

// generatedValues match values that differ in each run: UIDs, serial numbers, keys and signatures. The last one matches
// whole strings: revisions in the log, and lifetimes and expiries of passes.
var generatedValues = []*regexp.Regexp{
	regexp.MustCompile(`[0-9a-f]{8}-[0-9a-f-]{27}`),
	regexp.MustCompile(`[0-9a-f]{16,}`),
	regexp.MustCompile(`[A-Za-z0-9+/=_-]{40,}`),
	regexp.MustCompile(`^([0-9]{20}|[0-9]+h0m0s|[0-9-]+T[0-9:]+Z)$`),
}

// shape returns a JSON value without numbers, whose order varies, and without generated values. It decodes documents in
// strings.
func shape(v any) any {
	switch v := v.(type) {
	case map[string]any:
		out := map[string]any{}
		for k, e := range v {
			if out[k] = shape(e); k == "N" { // DynamoDB's type of numbers
				out[k] = 0
			}
		}
		return out
	case []any:
		out := make([]any, len(v))
		for i, e := range v {
			out[i] = shape(e)
		}
		return out
	case float64:
		return 0
	case string:
		for _, text := range decodings(v) {
			var document map[string]any
			if bytes.HasPrefix(text, []byte("{")) && json.Unmarshal(text, &document) == nil {
				return shape(document)
			}
		}
		for _, m := range generatedValues {
			v = m.ReplaceAllString(v, "*")
		}
		return v
	}
	return v
}

// decodings returns a string unchanged, and decoded from base64 where that is possible.
func decodings(s string) [][]byte {
	all := [][]byte{[]byte(s)}
	for _, e := range []*base64.Encoding{base64.StdEncoding, base64.RawURLEncoding} {
		if b, err := e.DecodeString(s); err == nil {
			all = append(all, b)
		}
	}
	return all
}
