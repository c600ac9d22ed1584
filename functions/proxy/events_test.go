package proxy

import (
	"crypto/x509"
	"encoding/json"
	"encoding/pem"
	"io"
	"net/http"
	"strings"
	"testing"

	"github.com/clusterpass/clusterpass/shared/assembly"
	"github.com/clusterpass/clusterpass/shared/identity"
	"github.com/clusterpass/clusterpass/shared/lambdahttp"
	"github.com/clusterpass/clusterpass/shared/pki"
	"github.com/clusterpass/clusterpass/shared/stores"
)

// TestCertificatesOfEvents: a client certificate is accepted only in the configured header of an event of the
// configured target group. A certificate is public, so anyone who can write that header could act as its owner.
func TestCertificatesOfEvents(t *testing.T) {
	ca, err := pki.LoadCA(t.TempDir(), "client-ca")
	if err != nil {
		t.Fatal(err)
	}
	text, _, err := ca.Client("ann", nil)
	if err != nil {
		t.Fatal(err)
	}
	block, _ := pem.Decode(text)
	leaf, err := x509.ParseCertificate(block.Bytes)
	if err != nil {
		t.Fatal(err)
	}
	certificate := identity.FormatALBHeader([]*x509.Certificate{leaf})

	const (
		ours   = "arn:aws:elasticloadbalancing:eu-west-1:111122223333:targetgroup/clusterpass-proxy/0123456789abcdef"
		theirs = "arn:aws:elasticloadbalancing:eu-west-1:111122223333:targetgroup/other/0123456789abcdef"
		header = "X-Clusterpass-Peer"
	)
	alb := func(group string) map[string]any {
		return map[string]any{"elb": map[string]any{"targetGroupArn": group}}
	}
	rest := map[string]any{
		"apiId": "a", "stage": "gateway", "httpMethod": "GET", "identity": map[string]any{"sourceIp": "192.0.2.1"},
	}
	both := map[string]any{"elb": map[string]any{"targetGroupArn": ""}, "apiId": "a", "identity": rest["identity"]}
	for name, tt := range map[string]struct {
		group   TargetGroup
		header  string
		context map[string]any
		want    int // 403 means identified
	}{
		"ours": {ours, header, alb(ours), http.StatusForbidden},
		"ours by its name": {
			TargetGroup(strings.TrimSuffix(ours, "0123456789abcdef") + "*"), header, alb(ours), http.StatusForbidden,
		},
		"another group":                {ours, header, alb(theirs), http.StatusUnauthorized},
		"no group":                     {ours, header, alb(""), http.StatusUnauthorized},
		"AWS's own name of the header": {ours, string(identity.ALBHeader), alb(ours), http.StatusUnauthorized},
		"a REST API":                   {ours, header, rest, http.StatusUnauthorized},
		"both at once":                 {ours, header, both, http.StatusUnauthorized},
		"none configured":              {"", header, alb(ours), http.StatusUnauthorized},
		"none configured, none said":   {"", header, alb(""), http.StatusUnauthorized},
	} {
		handler, opts, err := New(t.Context(), &Config{
			Env: assembly.Env{
				Store: stores.Address{Kind: "dir", Where: t.TempDir()}, ClientCA: assembly.CertificatesOf(ca.Cert),
			},
			MTLSTargetGroup: tt.group, MTLSHeader: header,
		}, Process{LogTo: io.Discard})
		if err != nil {
			t.Fatal(err)
		}
		payload, err := json.Marshal(map[string]any{
			"requestContext": tt.context, "httpMethod": "GET", "path": "/clusters/m/version",
			"multiValueHeaders": map[string][]string{strings.ToLower(tt.header): {certificate}, "host": {"gateway"}},
		})
		if err != nil {
			t.Fatal(err)
		}
		answer, err := lambdahttp.New(handler, opts).Invoke(t.Context(), payload)
		if err != nil {
			t.Fatal(err)
		}
		var got struct {
			StatusCode int    `json:"statusCode"`
			Body       string `json:"body"`
		}
		if err := json.Unmarshal(answer, &got); err != nil {
			t.Fatal(err)
		}
		if got.StatusCode != tt.want || (tt.want == http.StatusForbidden) != strings.Contains(got.Body, "ann") {
			t.Errorf("%s: %d %s, want %d", name, got.StatusCode, got.Body, tt.want)
		}
	}
}
