package e2e

import (
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/secretsmanager"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/clusterpass/clusterpass/shared/awsclient/mototest"
	"github.com/clusterpass/clusterpass/test/leak"
)

var (
	// printed is all that programs of ours print in this package's tests, and what kubectl complains of: the gateways and
	// their functions, the command line, the rotation, and what the tests themselves log.
	printed = &lockedBuffer{}
	// made is every secret that was made, noted then.
	made leak.Book
)

// leaks says where secrets come from that printed shows. What it returns is not empty, either, where nothing can be proven.
func leaks(printed string) []string {
	if printed == "" || made.Empty() {
		return []string{"nothing was printed, or nothing noted, so that this proves nothing"}
	}
	return made.Find(printed)
}

// note notes the secrets that a gateway keeps now.
func (h *house) note() {
	for _, dir := range []string{"secrets", "pki"} {
		noteFiles(filepath.Join(h.dir, "data", dir))
	}
	noteFiles(h.pass)
}

// noteFiles notes the secrets in a file, or in all of a directory.
func noteFiles(path string) {
	_ = filepath.WalkDir(path, func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return nil //nolint:nilerr // it was deleted just now
		}
		if data, err := os.ReadFile(path); err == nil {
			made.Document(path, data)
		}
		return nil
	})
}

// noteSecretsManager notes what every version of every secret in an imitation of AWS holds, and says how many secrets that is.
func noteSecretsManager(t *testing.T, url string) (n int) {
	t.Helper()
	manager := secretsmanager.NewFromConfig(mototest.Config(url))
	all := secretsmanager.NewListSecretsPaginator(manager, &secretsmanager.ListSecretsInput{IncludePlannedDeletion: aws.Bool(true)})
	for all.HasMorePages() {
		page, err := all.NextPage(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		for _, s := range page.SecretList {
			for id := range s.SecretVersionsToStages {
				v, err := manager.GetSecretValue(t.Context(), &secretsmanager.GetSecretValueInput{SecretId: s.ARN, VersionId: &id})
				if err != nil {
					continue // of a secret that is deleted, which was noted before; or a version without a value yet
				}
				n += made.Document("Secrets Manager: "+*s.Name, []byte(aws.ToString(v.SecretString)))
			}
		}
	}
	return n
}

// TestLeaksAreFound holds: the search of all that was printed, which ends every run, can fail.
func TestLeaksAreFound(t *testing.T) {
	h := gateway(t)
	_ = through(t, "member1").must(t, "get", "namespaces")
	kc, err := clientcmd.LoadFromFile(h.pass)
	if err != nil {
		t.Fatal(err)
	}
	pass := string(kc.AuthInfos["clusterpass"].ClientKeyData)
	stored, err := filepath.Glob(filepath.Join(h.dir, "data", "secrets", "clusters", "member1.*"))
	if err != nil || len(stored) != 1 {
		t.Fatalf("secrets of member1: %v, %v", stored, err)
	}
	credential, err := os.ReadFile(stored[0])
	if err != nil {
		t.Fatal(err)
	}
	if found := leaks(printed.String()); len(found) > 0 {
		t.Errorf("the secrets of %v were printed", found)
	}
	for _, planted := range []string{pass, strings.Split(pass, "\n")[2], string(credential), strings.Split(string(credential), "client-key-data: ")[1]} {
		if found := leaks(printed.String() + planted); len(found) == 0 {
			t.Error("a secret was printed, and it is not found")
		}
	}
	if found := leaks(""); len(found) == 0 {
		t.Error("nothing was printed, and that is taken for a proof")
	}
}
