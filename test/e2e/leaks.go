package e2e

import (
	"io/fs"
	"os"
	"path/filepath"
	"testing"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/secretsmanager"

	"github.com/clusterpass/clusterpass/shared/awsclient/mototest"
	"github.com/clusterpass/clusterpass/shared/waittest"
	"github.com/clusterpass/clusterpass/test/leak"
)

var (
	// Printed collects all output: of gateways, functions, the command line, the rotation, and kubectl's standard error.
	Printed = &waittest.Buffer{}
	// Secrets are all secrets that the tests made. None may be in Printed.
	Secrets leak.Book
)

// FindLeaks returns the origins of the secrets in a text. An empty text, or no Secrets, is a failure, too.
func FindLeaks(printed string) []string {
	if printed == "" || Secrets.Empty() {
		return []string{"nothing was printed, or nothing noted, so that this proves nothing"}
	}
	return Secrets.Find(printed)
}

// NoteSecrets adds the secrets that the gateway stores now to Secrets.
func (h *Gateway) NoteSecrets() {
	for _, dir := range []string{"secrets", "pki"} {
		NoteFiles(filepath.Join(h.Dir, "data", dir))
	}
	NoteFiles(h.Kubeconfig)
}

// NoteFiles adds the secrets of a file, or of all files of a directory, to Secrets.
func NoteFiles(path string) {
	_ = filepath.WalkDir(path, func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return nil //nolint:nilerr // it was deleted just now
		}
		if data, err := os.ReadFile(path); err == nil {
			Secrets.Document(path, data)
		}
		return nil
	})
}

// NoteSecretsManager adds all secrets of an emulated AWS to Secrets, and returns their number.
func NoteSecretsManager(t *testing.T, url string) (n int) {
	t.Helper()
	manager := secretsmanager.NewFromConfig(mototest.Config(url))
	all := secretsmanager.NewListSecretsPaginator(manager,
		&secretsmanager.ListSecretsInput{IncludePlannedDeletion: aws.Bool(true)})
	for all.HasMorePages() {
		page, err := all.NextPage(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		for _, s := range page.SecretList {
			for id := range s.SecretVersionsToStages {
				v, err := manager.GetSecretValue(t.Context(), &secretsmanager.GetSecretValueInput{SecretId: s.ARN, VersionId: &id})
				if err != nil {
					continue // the secret is deleted and noted before, or the version has no value yet
				}
				n += Secrets.Document("Secrets Manager: "+*s.Name, []byte(aws.ToString(v.SecretString)))
			}
		}
	}
	return n
}
