package kmskey_test

import (
	"bytes"
	"io"
	"strings"
	"testing"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/kms"

	"github.com/clusterpass/clusterpass/shared/awsclient/mototest"
	"github.com/clusterpass/clusterpass/shared/backup"
	"github.com/clusterpass/clusterpass/shared/backup/kmskey"
)

var moto *mototest.Server

func TestMain(m *testing.M) { mototest.Main(m, &moto) }

func newKey(t *testing.T) string {
	t.Helper()
	out, err := kms.NewFromConfig(mototest.Config(moto.URL)).CreateKey(t.Context(), &kms.CreateKeyInput{})
	if err != nil {
		t.Fatal(err)
	}
	return aws.ToString(out.KeyMetadata.Arn)
}

// TestOnlyTheKeyDecrypts fails if a backup is readable without its key in KMS. It also fails if a backup for another
// key is accepted, which anyone could have made.
func TestOnlyTheKeyDecrypts(t *testing.T) {
	front := mototest.NewFront(t, moto.URL)
	cfg := mototest.Config(front.URL)
	right, other := newKey(t), newKey(t)
	var file bytes.Buffer
	w, err := backup.Encrypt(&file, kmskey.New(t.Context(), cfg, right))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := io.WriteString(w, "content"); err != nil {
		t.Fatal(err)
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	decrypt := func(key string) (string, error) {
		content, err := backup.Decrypt(bytes.NewReader(file.Bytes()), int64(file.Len()), kmskey.New(t.Context(), cfg, key))
		if err != nil {
			return "", err
		}
		text, err := io.ReadAll(content)
		return string(text), err
	}
	if got, err := decrypt(right); err != nil || got != "content" {
		t.Errorf("%q, %v", got, err)
	}
	if got, err := decrypt(other); err == nil || !strings.Contains(err.Error(), right) {
		t.Errorf("with another key: %q, %v", got, err)
	}
	front.Deny()
	if got, err := decrypt(right); err == nil || !strings.Contains(err.Error(), "kms:Decrypt") {
		t.Errorf("without rights: %q, %v", got, err)
	}
	if _, err := backup.Encrypt(io.Discard, kmskey.New(t.Context(), cfg, right)); err == nil ||
		!strings.Contains(err.Error(), "kms:Encrypt") {
		t.Errorf("encrypt without rights: %v", err)
	}
}
