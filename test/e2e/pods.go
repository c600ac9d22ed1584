package e2e

import (
	"fmt"
	"strings"
	"testing"
)

// StreamPods makes the named pods of streamPods in a new namespace, and waits until they are ready or have succeeded.
func StreamPods(t *testing.T, clusters []string, pods ...string) string {
	t.Helper()
	namespace := NewNamespace(t, clusters...)
	var docs strings.Builder
	waits := map[string][]string{}
	for _, pod := range pods {
		yaml, ok := streamPods[pod]
		if !ok {
			t.Fatalf("streamPods has no %s", pod)
		}
		docs.WriteString("---" + yaml)
		condition := "--for=condition=Ready"
		if strings.HasPrefix(pod, "finite-") {
			condition = "--for=jsonpath={.status.phase}=Succeeded"
		}
		waits[condition] = append(waits[condition], "pod/"+pod)
	}
	for _, c := range clusters {
		Direct(c).Apply(t, docs.String(), "-n", namespace)
	}
	for _, c := range clusters {
		for condition, pods := range waits {
			Direct(c).Must(t, append([]string{"wait", "-n", namespace, condition, "--timeout=4m"}, pods...)...)
		}
	}
	return namespace
}

// StreamPod returns the manifest of a pod of StreamPods.
func StreamPod(name string) string { return streamPods[name] }

// A pod whose name begins with finite- ends.
var streamPods = map[string]string{
	"shell": `
apiVersion: v1
kind: Pod
metadata: {name: shell, labels: {app: shell}}
spec:
  terminationGracePeriodSeconds: 1
  containers: [{name: shell, image: any}]
`,
	"reader": `
apiVersion: v1
kind: Pod
metadata: {name: reader}
spec:
  terminationGracePeriodSeconds: 1
  containers:
  - {name: reader, image: any, stdin: true, command: [sh, -c, 'while read line; do echo "got $line"; done']}
`,
	"talker-a": talker("a"),
	"talker-b": talker("b"),
	"finite-a": finite("a", "one", "two", "three"),
	"finite-b": finite("b", "eins", "zwei", "drei"),
}

// talker returns a pod that prints its letter and a number five times a second.
func talker(letter string) string {
	return strings.ReplaceAll(`
apiVersion: v1
kind: Pod
metadata: {name: talker-LETTER, labels: {app: talker}}
spec:
  terminationGracePeriodSeconds: 1
  containers:
  - {name: talker, image: any, command: [sh, -c, 'i=0; while sleep 0.2; do echo "LETTER $i"; i=$((i+1)); done']}
`, "LETTER", letter)
}

func finite(letter string, lines ...string) string {
	return fmt.Sprintf(`
apiVersion: v1
kind: Pod
metadata: {name: finite-%s, labels: {app: finite}}
spec:
  restartPolicy: Never
  terminationGracePeriodSeconds: 1
  containers:
  - {name: finite, image: any, command: [sh, -c, 'printf "%%s\\n" %s']}
`, letter, strings.Join(lines, " "))
}

// CreatePods makes ready pods in a new namespace of all Members: "same", and one that is named after the cluster.
func CreatePods(t *testing.T) string {
	t.Helper()
	namespace := NewNamespace(t, Members...)
	for _, m := range Members {
		var docs strings.Builder
		for _, name := range []string{"same", "on-" + m} {
			fmt.Fprintf(&docs, podYAML, name, namespace, name, m)
		}
		Direct(m).Apply(t, docs.String())
	}
	for _, m := range Members {
		Direct(m).Must(t, "wait", "-n", namespace, "--for=condition=Ready", "pod", "--all", "--timeout=4m")
	}
	return namespace
}

const podYAML = `---
apiVersion: v1
kind: Pod
metadata: {name: %s, namespace: %s, labels: {app: %s}}
spec:
  automountServiceAccountToken: false
  terminationGracePeriodSeconds: 0
  containers:
  - {name: c, image: busybox, command: [/bin/sh, -c, 'echo I run in %s; exec sleep 1000']}
`
