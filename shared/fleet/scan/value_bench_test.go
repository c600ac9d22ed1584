package scan

import (
	"fmt"
	"strings"
	"testing"
)

// pod is the compact JSON of a typical pod, as kube-apiserver sends it.
func pod() []byte {
	var containers, statuses []string
	for i := range 2 {
		var env, mounts []string
		for j := range 10 {
			env = append(env, fmt.Sprintf(`{"name":"SETTING_%d","value":"a value that says something \"quoted\""}`, j))
			mounts = append(mounts, fmt.Sprintf(`{"name":"volume-%d","mountPath":"/var/lib/volume-%[1]d"}`, j))
		}
		containers = append(containers, fmt.Sprintf(`{"name":"container-%d","image":"registry.example.com/web:1.27.3",`+
			`"env":[%s],"resources":{},"volumeMounts":[%s],"imagePullPolicy":"IfNotPresent"}`, i, strings.Join(env, ","),
			strings.Join(mounts, ",")))
		statuses = append(statuses, fmt.Sprintf(`{"name":"container-%d","state":{"running":{"startedAt":null}},`+
			`"lastState":{},"ready":true,"restartCount":0,"image":"registry.example.com/web:1.27.3"}`, i))
	}
	return fmt.Appendf(nil, `{"metadata":{"name":"web-1","namespace":"shop","uid":"6d1f3c0e-7d0c-4f6b-9f0e-3b1f7f3a2c11",`+
		`"resourceVersion":"12345","creationTimestamp":"2026-09-21T12:53:20Z","labels":{"app":"web"}},`+
		`"spec":{"containers":[%s],"nodeName":"node-17"},"status":{"phase":"Running","containerStatuses":[%s]}}`,
		strings.Join(containers, ","), strings.Join(statuses, ","))
}

// BenchmarkValue measures how fast the end of a pod is found, which is the largest part of a list's CPU time.
func BenchmarkValue(b *testing.B) {
	text := pod()
	b.SetBytes(int64(len(text)))
	s := Scanner{Field: "metadata"}
	for b.Loop() {
		s.Reset()
		if end, err := s.Value(text); err != nil || end != len(text) {
			b.Fatal(end, err)
		}
	}
}
