package access

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"github.com/clusterpass/clusterpass/shared/audit"
	"github.com/clusterpass/clusterpass/shared/route"
	"github.com/clusterpass/clusterpass/shared/status"
	"github.com/clusterpass/clusterpass/shared/waittest"
)

const auditPolicy = `apiVersion: audit.k8s.io/v1
kind: Policy
omitStages: [RequestReceived]
rules: [{level: Metadata}]
`

var auditFile string

func auditArgs(dir string) ([]string, error) {
	policy := filepath.Join(dir, "policy.yaml")
	auditFile = filepath.Join(dir, "audit.log")
	return []string{"--audit-policy-file=" + policy, "--audit-log-path=" + auditFile},
		os.WriteFile(policy, []byte(auditPolicy), 0o600)
}

// fields returns the paths of a JSON object's fields, except those below annotations, extra and details.
func fields(prefix string, v any) []string {
	var out []string
	m, _ := v.(map[string]any)
	for k, v := range m {
		out = append(out, prefix+k)
		if k != "annotations" && k != "extra" && k != "details" {
			out = append(out, fields(prefix+k+".", v)...)
		}
	}
	return out
}

// TestAuditEventsAreKubernetes: tools for Kubernetes' audit logs must be able to read the gateway's events.
func TestAuditEventsAreKubernetes(t *testing.T) {
	config := rest.CopyConfig(clusters.Clusters()[0].RESTConfig())
	config.Impersonate = rest.ImpersonationConfig{
		UserName: "audited", UID: "1", Groups: []string{"audited"}, Extra: map[string][]string{"k": {"v"}},
	}
	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		t.Fatal(err)
	}
	_, err = client.AppsV1().Deployments("default").UpdateStatus(t.Context(),
		&appsv1.Deployment{ObjectMeta: metav1.ObjectMeta{Name: "web"}}, metav1.UpdateOptions{})
	if err == nil {
		t.Fatal("the write succeeded without a grant")
	}
	var theirs map[string]any
	waittest.UntilNoError(t, "kube-apiserver writes the event", func(context.Context) error {
		data, err := os.ReadFile(auditFile)
		for line := range bytes.Lines(data) {
			var e map[string]any
			if json.Unmarshal(line, &e) == nil && strings.Contains(string(line), `"username":"audited"`) {
				theirs = e
			}
		}
		if err == nil && theirs == nil {
			err = errors.New("the file has no such event")
		}
		return err
	})

	var b bytes.Buffer
	r := httptest.NewRequest("PUT", "/clusters/member1/apis/apps/v1/namespaces/default/deployments/web/status", nil)
	r.Header.Set("User-Agent", "test")
	q := audit.New(audit.Config{To: &b}).Begin(r)
	u := audit.User{Username: "a", UID: "1", Groups: []string{"dev"}, Extra: map[string][]string{"k": {"v"}}}
	q.User(u, "x509")
	q.As(u)
	q.Target("member1", route.ParseResource("PUT", "/apis/apps/v1/namespaces/default/deployments/web/status", ""))
	q.Decision(false, "")
	q.Completed(403, status.New(status.Forbidden, "", "no"))
	var ours map[string]any
	if err := json.Unmarshal(b.Bytes(), &ours); err != nil {
		t.Fatal(err)
	}
	have := fields("", theirs)
	// The event of kube-apiserver lacks a uid, since the administrator's certificate has none.
	have = append(have, "user.uid")
	for _, f := range fields("", ours) {
		if !slices.Contains(have, f) {
			t.Errorf("field %s is not in kube-apiserver's event %v", f, theirs)
		}
	}
	mine := fields("", ours)
	for _, f := range have {
		if !slices.Contains(mine, f) && f != "responseStatus.details" && f != "responseStatus.reason" {
			t.Errorf("field %s of kube-apiserver's event is missing", f)
		}
	}
	for _, key := range []string{audit.DecisionAnnotation, audit.ReasonAnnotation} {
		if _, ok := theirs["annotations"].(map[string]any)[key]; !ok {
			t.Errorf("annotation %s is not in %v", key, theirs["annotations"])
		}
	}
	annotation := func(event map[string]any, key string) any { return event["annotations"].(map[string]any)[key] }
	if annotation(theirs, audit.DecisionAnnotation) != annotation(ours, audit.DecisionAnnotation) {
		t.Errorf("%v, %v", theirs["annotations"], ours["annotations"])
	}
	for _, key := range []string{"kind", "apiVersion", "level", "stage", "verb", "objectRef"} {
		if a, b := asJSON(t, theirs[key]), asJSON(t, ours[key]); a != b {
			t.Errorf("%s: %s, kube-apiserver has %s", key, b, a)
		}
	}
}

func asJSON(t *testing.T, v any) string {
	t.Helper()
	b, err := json.Marshal(v)
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}
