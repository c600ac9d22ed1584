package e2e

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// Manifest puts the objects of a YAML text into a namespace and returns the path of a file with them.
func Manifest(t *testing.T, namespace, yaml string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "objects.yaml")
	yaml = strings.ReplaceAll(yaml, "metadata: {", "metadata: {namespace: "+namespace+", ")
	if err := os.WriteFile(path, []byte(yaml), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

// Deployment is a manifest with one Deployment, idle.
const Deployment = `
apiVersion: apps/v1
kind: Deployment
metadata: {name: idle, labels: {app: idle}}
spec:
  replicas: 1
  selector: {matchLabels: {app: idle}}
  template:
    metadata:
      labels: {app: idle}
    spec:
      terminationGracePeriodSeconds: 1
      containers:
      - name: idle
        image: idle
`

// WriteFile returns the path of a file with the content, until the test ends.
func WriteFile(t *testing.T, content string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}
