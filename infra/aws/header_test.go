package aws

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// A user with read access to the account must not learn the name of the header with client certificates. Its sender can
// act as any user of the gateway.
func TestCertificateHeader(t *testing.T) {
	all := load(t)
	for path, tmpl := range all {
		for name, output := range tmpl.Outputs {
			text := fmt.Sprint(output.Value)
			if strings.Contains(text, "resolve:") || strings.Contains(text, "X-Clusterpass-") ||
				strings.Contains(text, "CertificateHeader") {
				t.Errorf("%s: the output %s shows the header: %s", path, name, text)
			}
		}
	}
	for id, r := range of(all, "AWS::CloudFormation::Stack") {
		if text := fmt.Sprint(r.Properties["Parameters"]); strings.Contains(text, "resolve:") {
			t.Errorf("%s is given the header, which its description shows: %s", id, text)
		}
	}
	container := all["infra/aws/bridge.yaml"].Resources["Task"].Properties["ContainerDefinitions"].([]any)[0]
	text := fmt.Sprint(get(container, "Environment"))
	if strings.Contains(text, "CLUSTERPASS_MTLS_HEADER") || strings.Contains(text, "resolve:") {
		t.Errorf("the task's description shows the header: %s", text)
	}
	if text := fmt.Sprint(get(container, "Secrets")); !strings.Contains(text, "CLUSTERPASS_MTLS_HEADER") {
		t.Errorf("the task has the secrets %s", text)
	}
	for id, r := range of(all, "AWS::Lambda::Function") {
		names := strings.Contains(fmt.Sprint(get(r.Properties, "Environment", "Variables")), "resolve:")
		if names && !slices.Equal(render(r.Properties["KmsKeyArn"]), []string{"${Key.Arn}"}) {
			t.Errorf("%s names the header, and whoever may list functions reads its settings", id)
		}
	}
	docs, err := os.ReadFile(filepath.Join(root, "docs/reference/aws.md"))
	if err != nil {
		t.Fatal(err)
	}
	for _, permission := range []string{
		"elasticloadbalancing:DescribeListenerAttributes", "secretsmanager:GetSecretValue", "kms:Decrypt",
		"lambda:GetFunctionConfiguration", "lambda:ListFunctions", "lambda:UpdateFunctionCode", "ecs:ExecuteCommand",
		"cloudtrail:LookupEvents", "config:GetResourceConfigHistory",
	} {
		if !strings.Contains(string(docs), "`"+permission+"`") {
			t.Errorf("docs/reference/aws.md does not name %s, which shows the header", permission)
		}
	}
}
