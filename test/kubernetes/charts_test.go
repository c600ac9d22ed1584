package kubernetes

import (
	"os"
	"strings"
	"testing"

	"sigs.k8s.io/yaml"

	"github.com/clusterpass/clusterpass/shared/assembly"
)

var allCharts = []string{"clusterpass", "clusterpass-agent"}

// TestExamplesAreAccepted fails if an example of the guide has unknown values, or if an API server refuses its
// manifests.
func TestExamplesAreAccepted(t *testing.T) {
	mustKubectl(t, "", "apply", "--server-side", "-f", "testdata/crds.yaml")
	mustKubectl(t, "", "wait", "--for=condition=Established", "crd", "--all", "--timeout=4m")
	mustKubectl(t, "", "create", "namespace", "examples")
	for _, chart := range allCharts {
		for name, file := range examples(t, chart) {
			t.Run(chart+"/"+name, func(t *testing.T) {
				if out, err := helm(t, "lint", "--strict", charts+chart, "--values", file); err != nil {
					t.Errorf("%v\n%s", err, out)
				}
				manifest := mustHelm(t, "template", "gw", charts+chart, "--namespace", "examples", "--values", file)
				out, err := kubectl(t, manifest, "apply", "--server-side", "--dry-run=server", "--validate=strict", "-f", "-")
				if err != nil || !strings.Contains(out, "deployment.apps/") {
					t.Errorf("%v\n%s", err, out)
				}
			})
		}
	}
}

// TestExamplesConfigureAuthentication fails if an example's authentication has a field that the gateway does not know.
// No pod of it would start.
func TestExamplesConfigureAuthentication(t *testing.T) {
	for name, file := range examples(t, "clusterpass") {
		t.Run(name, func(t *testing.T) {
			data, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			var values struct {
				Authentication map[string]any `json:"authentication"`
			}
			if err := yaml.Unmarshal(data, &values); err != nil {
				t.Fatal(err)
			}
			text, err := yaml.Marshal(values.Authentication)
			if err != nil {
				t.Fatal(err)
			}
			if err := new(assembly.Authentication).Decode(string(text)); err != nil {
				t.Errorf("%v\n%s", err, text)
			}
		})
	}
}

// TestExamplesRecordSessions fails if replicas do not get the place of recordings. They would refuse each session that
// must be recorded.
func TestExamplesRecordSessions(t *testing.T) {
	for name, want := range map[string]string{
		"recordings-s3": "s3:clusterpass-recordings/prod", "recordings-volume": "dir:/var/lib/clusterpass/recordings",
	} {
		manifest := mustHelm(t, "template", "gw", charts+"clusterpass", "--values", examples(t, "clusterpass")[name])
		if !strings.Contains(manifest, `- name: CLUSTERPASS_RECORDINGS
          value: "`+want+`"`) {
			t.Errorf("%s: the replicas have no CLUSTERPASS_RECORDINGS=%s:\n%s", name, want, manifest)
		}
	}
}

// TestWrongValuesAreExplained fails if an installation with missing or mistyped values begins.
func TestWrongValuesAreExplained(t *testing.T) {
	const url = "url=https://clusterpass.example.com"
	for name, tt := range map[string]struct {
		chart  string
		values []string
		want   string
	}{
		"no URL":           {"clusterpass", []string{"clientCA=x"}, "url: set the URL"},
		"URL with a path":  {"clusterpass", []string{"clientCA=x", url + "/a"}, "pattern"},
		"no CA of clients": {"clusterpass", []string{url}, "clusterpass cert ca"},
		"unknown value":    {"clusterpass", []string{url, "clientCA=x", "replica=2"}, "replica"},
		"no issuer":        {"clusterpass", []string{url, "clientCA=x", "tls.mode=certManager"}, "tls.issuerRef"},
		"no Secret":        {"clusterpass", []string{url, "clientCA=x", "tls.mode=secret"}, "tls.secretName"},
		"no Gateway":       {"clusterpass", []string{url, "clientCA=x", "gatewayAPI.enabled=true"}, "gatewayAPI.parentRefs"},
		"unknown CA": {
			"clusterpass", []string{
				url, "clientCA=x", "gatewayAPI.enabled=true", "gatewayAPI.mode=terminate", "gatewayAPI.parentRefs[0].name=public",
			}, "gatewayAPI.caConfigMap",
		},
		"forged addresses": {
			"clusterpass", []string{url, "clientCA=x", "sourceAddress=forwarded"}, "networkPolicy.clientsFrom",
		},
		"forged addresses without policy": {
			"clusterpass", []string{
				url, "clientCA=x", "sourceAddress=forwarded", "networkPolicy.clientsFrom[0].podSelector.matchLabels.a=b",
				"networkPolicy.enabled=false",
			}, "networkPolicy.clientsFrom",
		},
		"store elsewhere": {"clusterpass", []string{url, "clientCA=x", "store.namespace=other"}, "store"},
		"closed metrics": {
			"clusterpass", []string{url, "clientCA=x", "serviceMonitor.enabled=true"}, "networkPolicy.metricsFrom",
		},
		"drain": {"clusterpass", []string{url, "clientCA=x", "drain.timeoutSeconds=9"}, "drain.delaySeconds"},
		"unknown place of recordings": {
			"clusterpass", []string{url, "clientCA=x", "recordings=gs:bucket"}, "recordings",
		},
		"recordings without a volume": {
			"clusterpass", []string{url, "clientCA=x", "recordings=dir:/recordings"}, "extraVolumeMounts",
		},
		"agent: no cluster": {"clusterpass-agent", nil, "--agent-format values"},
		"agent: no token":   {"clusterpass-agent", []string{"cluster=a", "gateway." + url}, "token: use the values"},
	} {
		t.Run(name, func(t *testing.T) {
			args := []string{"template", "gw", charts + tt.chart}
			for _, v := range tt.values {
				args = append(args, "--set", v)
			}
			if out, err := helm(t, args...); err == nil || !strings.Contains(err.Error(), tt.want) {
				t.Errorf("error %v, want %q\n%.200s", err, tt.want, out)
			}
		})
	}
}
