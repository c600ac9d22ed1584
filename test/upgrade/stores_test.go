package upgrade

import (
	"context"
	"crypto/x509"
	"encoding/json"
	"encoding/pem"
	"io"
	"io/fs"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"sigs.k8s.io/yaml"

	"github.com/clusterpass/clusterpass/shared/awsclient/mototest"
	"github.com/clusterpass/clusterpass/shared/secrets"
	"github.com/clusterpass/clusterpass/shared/stores"
)

// restoreDir sets the modes of the stores' files, which git does not store.
func restoreDir(t *testing.T, format string) *stores.Stores {
	t.Helper()
	from, to := filepath.Join(format, "dir"), t.TempDir()
	if err := filepath.WalkDir(from, func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		target := filepath.Join(to, strings.TrimPrefix(path, from))
		if d.IsDir() {
			return os.MkdirAll(target, 0o700)
		}
		data, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		return os.WriteFile(target, data, 0o600)
	}); err != nil {
		t.Fatal(err)
	}
	st, err := stores.Open(t.Context(), stores.Address{Kind: "dir", Where: to})
	if err != nil {
		t.Fatal(err)
	}
	return st
}

func restoreAWS(t *testing.T, format string) *stores.Stores {
	t.Helper()
	url, st := startMoto(t)
	var scan struct{ Items []json.RawMessage }
	if err := json.Unmarshal([]byte(readFile(t, format, "table.json")), &scan); err != nil {
		t.Fatal(err)
	}
	for _, item := range scan.Items {
		callDynamoDB(t, url, "PutItem", `{"TableName": "`+prefix+`-objects", "Item": `+string(item)+`}`)
	}
	var values map[string]string
	if err := yaml.Unmarshal([]byte(readFile(t, format, "secrets.yaml")), &values); err != nil {
		t.Fatal(err)
	}
	for name, value := range values {
		if _, err := st.Secrets.Create(t.Context(), name, secrets.NewValue([]byte(value)), nil); err != nil {
			t.Fatal(err)
		}
	}
	return st
}

func startMoto(t *testing.T) (string, *stores.Stores) {
	t.Helper()
	srv, err := mototest.Start()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(srv.Close)
	for k, v := range map[string]string{
		"AWS_ENDPOINT_URL": srv.URL, "AWS_REGION": mototest.Config(srv.URL).Region, "AWS_ACCESS_KEY_ID": "test",
		"AWS_SECRET_ACCESS_KEY": "test",
	} {
		t.Setenv(k, v)
	}
	st, err := stores.Open(t.Context(), stores.Address{Kind: "aws", Where: prefix})
	if err != nil {
		t.Fatal(err)
	}
	if err := st.Objects.(interface{ EnsureTable(context.Context) error }).EnsureTable(t.Context()); err != nil {
		t.Fatal(err)
	}
	return srv.URL, st
}

// callDynamoDB calls an operation of DynamoDB without the store's code.
func callDynamoDB(t *testing.T, url, operation, body string) []byte {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, url, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("Authorization", "AWS4-HMAC-SHA256 Credential=test/20200101/"+os.Getenv("AWS_REGION")+
		"/dynamodb/aws4_request, SignedHeaders=host, Signature=0")
	req.Header.Set("Content-Type", "application/x-amz-json-1.0")
	req.Header.Set("X-Amz-Target", "DynamoDB_20120810."+operation)
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = resp.Body.Close() }()
	response, err := io.ReadAll(resp.Body)
	if err != nil || resp.StatusCode != http.StatusOK {
		t.Fatalf("%s: %s, %v, %s", operation, resp.Status, err, response)
	}
	return response
}

func readFile(t *testing.T, format, name string) string {
	t.Helper()
	data, err := os.ReadFile(filepath.Join(format, name))
	if err != nil {
		t.Fatal(err)
	}
	return string(data)
}

func readCertificate(t *testing.T, format, name string) *x509.Certificate {
	t.Helper()
	return parseCertificate(t, []byte(readFile(t, format, name)))
}

func parseCertificate(t *testing.T, data []byte) *x509.Certificate {
	t.Helper()
	block, _ := pem.Decode(data)
	if block == nil {
		t.Fatalf("no certificate: %s", data)
	}
	cert, err := x509.ParseCertificate(block.Bytes)
	if err != nil {
		t.Fatal(err)
	}
	return cert
}
