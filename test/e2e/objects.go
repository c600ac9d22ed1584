package e2e

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/clusterpass/clusterpass/shared/waittest"
)

// NewNamespace makes a namespace and returns when the cluster has added its service account, without which pods are
// refused. It waits for the end of a namespace of this name that an earlier run deleted.
func NewNamespace(t *testing.T, k Kubectl, name string) {
	t.Helper()
	waittest.Until(t, "namespace "+name, func() bool {
		r := k.Run(t, "create", "namespace", name)
		if r.Code == 0 {
			return true
		}
		phase := k.Run(t, "get", "namespace", name, "-o", "jsonpath={.status.phase}").Stdout
		if !strings.Contains(r.Stderr, "AlreadyExists") || phase == "Active" {
			t.Fatalf("create namespace %s: %v", name, r)
		}
		return false
	})
	waitForNamespace(t, k, name)
}

// waitForNamespace waits for the objects that a cluster adds to each new namespace.
func waitForNamespace(t *testing.T, k Kubectl, name string) {
	t.Helper()
	waittest.Until(t, "objects of namespace "+name, func() bool {
		return k.Run(t, "-n", name, "get", "serviceaccount/default", "configmap/kube-root-ca.crt").Code == 0
	})
}

// StreamPods makes the pods of streamPodsYAML in the namespace streams of a cluster, once for all tests of a package.
func StreamPods(t *testing.T, cluster string) {
	t.Helper()
	streamPodsMutex.Lock()
	defer streamPodsMutex.Unlock()
	if streamPods[cluster] {
		return
	}
	streamPods[cluster] = true // after a failure, too: later tests fail at once without the pods
	k := Direct(cluster)
	NewNamespace(t, k, "streams")
	k.Must(t, "apply", "-f", Manifest(t, "streams", streamPodsYAML))
	k.Must(t, "-n", "streams", "rollout", "status", "deployment/still", "--timeout=4m")
	k.Must(t, "wait", "-n", "streams", "--for=condition=Ready", "pod/shell", "pod/reader", "pod/talker-a", "pod/talker-b", "--timeout=4m")
	k.Must(t, "wait", "-n", "streams", "--for=jsonpath={.status.phase}=Succeeded", "pod/finite-a", "pod/finite-b", "--timeout=4m")
}

var (
	streamPods      = map[string]bool{} // by cluster
	streamPodsMutex sync.Mutex
)

const streamPodsYAML = `
apiVersion: apps/v1
kind: Deployment
metadata: {name: still}
spec:
  replicas: 1
  selector: {matchLabels: {app: still}}
  template:
    metadata:
      labels: {app: still}
    spec:
      terminationGracePeriodSeconds: 1
      containers: [{name: still, image: any}]
---
apiVersion: v1
kind: Pod
metadata: {name: shell, labels: {app: shell}}
spec:
  terminationGracePeriodSeconds: 1
  containers: [{name: shell, image: any}]
---
apiVersion: v1
kind: Pod
metadata: {name: reader}
spec:
  terminationGracePeriodSeconds: 1
  containers:
  - {name: reader, image: any, stdin: true, command: [sh, -c, 'while read line; do echo "got $line"; done']}
---
apiVersion: v1
kind: Pod
metadata: {name: talker-a, labels: {app: talker}}
spec:
  terminationGracePeriodSeconds: 1
  containers:
  - {name: talker, image: any, command: [sh, -c, 'i=0; while sleep 0.2; do echo "a $i"; i=$((i+1)); done']}
---
apiVersion: v1
kind: Pod
metadata: {name: talker-b, labels: {app: talker}}
spec:
  terminationGracePeriodSeconds: 1
  containers:
  - {name: talker, image: any, command: [sh, -c, 'i=0; while sleep 0.2; do echo "b $i"; i=$((i+1)); done']}
---
apiVersion: v1
kind: Pod
metadata: {name: finite-a, labels: {app: finite}}
spec:
  restartPolicy: Never
  containers:
  - {name: finite, image: any, command: [sh, -c, 'echo one; echo two; echo three']}
---
apiVersion: v1
kind: Pod
metadata: {name: finite-b, labels: {app: finite}}
spec:
  restartPolicy: Never
  containers:
  - {name: finite, image: any, command: [sh, -c, 'echo eins; echo zwei; echo drei']}
`

// CreatePods makes a namespace with pods in each cluster: "same" in every one, and one that is named after its cluster.
func CreatePods(t *testing.T, namespace string) {
	t.Helper()
	for _, m := range Members {
		d := Direct(m)
		NewNamespace(t, d, namespace)
		t.Cleanup(func() { d.Run(t, "delete", "namespace", namespace, "--wait=false") })
		var docs strings.Builder
		for _, name := range []string{"same", "on-" + m} {
			fmt.Fprintf(&docs, "---\n{apiVersion: v1, kind: Pod, metadata: {name: %s, namespace: %s, labels: {app: %s}}, spec: {automountServiceAccountToken: false, terminationGracePeriodSeconds: 0, "+
				"containers: [{name: c, image: busybox, command: [/bin/sh, -c, 'echo I run in %s; exec sleep 1000']}]}}\n", name, namespace, name, m)
		}
		d.Apply(t, docs.String())
	}
	for _, m := range Members {
		Direct(m).Must(t, "wait", "-n", namespace, "--for=condition=Ready", "pod", "--all", "--timeout=4m")
	}
}

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

// WriteFile returns the path of a file with the content. The file is deleted when the test ends.
func WriteFile(t *testing.T, content string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}
