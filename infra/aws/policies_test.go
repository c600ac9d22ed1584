package aws

import (
	"bytes"
	"encoding/json"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// maxPolicy is the maximum number of characters of a managed policy, without white space.
const maxPolicy = 6144

func policies(t *testing.T, kind string) []json.RawMessage {
	t.Helper()
	out, err := python("infra/aws/policies.py", kind, "gateway", "clusterpass", "111122223333", "eu-central-1")
	if err != nil {
		t.Fatal(err)
	}
	var documents []json.RawMessage
	if err := json.Unmarshal(out, &documents); err != nil {
		t.Fatal(err)
	}
	return documents
}

// AWS must accept the policies, and a principal can have only ten. The script fails for a resource that it does not
// know, so a new resource of the template cannot be forgotten.
func TestPoliciesAreValid(t *testing.T) {
	if testing.Short() {
		t.Skip("slow: make test runs it")
	}
	for kind, maximum := range map[string]int{"deployer": 5, "boundary": 1} {
		t.Run(kind, func(t *testing.T) {
			documents := policies(t, kind)
			if len(documents) == 0 || len(documents) > maximum {
				t.Errorf("there are %d policies, want at most %d", len(documents), maximum)
			}
			resources := map[string]any{}
			for i, document := range documents {
				var compact bytes.Buffer
				if err := json.Compact(&compact, document); err != nil || compact.Len() > maxPolicy {
					t.Errorf("policy %d has %d characters (%v)", i, compact.Len(), err)
				}
				resources["Policy"+string(rune('A'+i))] = map[string]any{
					"Type": "AWS::IAM::ManagedPolicy", "Properties": map[string]any{"PolicyDocument": document},
				}
			}
			file := filepath.Join(t.TempDir(), "policies.json")
			text, err := json.Marshal(map[string]any{"AWSTemplateFormatVersion": "2010-09-09", "Resources": resources})
			if err != nil {
				t.Fatal(err)
			}
			if err := os.WriteFile(file, text, 0o600); err != nil {
				t.Fatal(err)
			}
			const lint = "import sys; from cfnlint.runner import main; sys.exit(main())"
			if out, err := python("-c", lint, "--non-zero-exit-code", "informational", "--", file); err != nil {
				t.Errorf("cfn-lint refuses them: %s%v", out, err) // also for an action that AWS does not have
			}
		})
	}
}

func allowed(t *testing.T, documents []json.RawMessage) map[string][]string {
	t.Helper()
	resources := map[string][]string{}
	for _, document := range documents {
		var policy struct {
			Statement []struct {
				Effect           string
				Action, Resource []string
			}
		}
		if err := json.Unmarshal(document, &policy); err != nil {
			t.Fatal(err)
		}
		for _, s := range policy.Statement {
			for _, action := range s.Action {
				resources[action] = append(resources[action], s.Resource...)
			}
		}
	}
	return resources
}

// With the boundary, each role must still be able to do what its policies allow, and nothing else.
func TestBoundaryAllowsWhatRolesMay(t *testing.T) {
	all := load(t)
	want := map[string]bool{}
	for _, doc := range identityPolicies(t, all) {
		for _, s := range statements(t, doc) {
			for _, action := range s.actions {
				if s.effect == "Allow" {
					want[action] = true
				}
			}
		}
	}
	boundary := allowed(t, policies(t, "boundary"))
	if got := slices.Sorted(maps.Keys(boundary)); !slices.Equal(got, slices.Sorted(maps.Keys(want))) {
		t.Errorf("the boundary allows\n  %q\nthe roles may\n  %q", got, slices.Sorted(maps.Keys(want)))
	}
	for action, resource := range map[string]string{
		"secretsmanager:GetSecretValue": "arn:aws:secretsmanager:eu-central-1:111122223333:secret:clusterpass/clusters/a-A1",
		"dynamodb:PutItem":              "arn:aws:dynamodb:eu-central-1:111122223333:table/clusterpass-objects",
		"logs:PutLogEvents": "arn:aws:logs:eu-central-1:111122223333:log-group:/clusterpass/clusterpass/0123/proxy:" +
			"log-stream:2026/11/24",
		"s3:PutObject": "arn:aws:s3:::gateway-auditarchive-1-bucket-2/events/2026",
	} {
		if !slices.ContainsFunc(boundary[action], func(p string) bool { return covers(p, resource) }) {
			t.Errorf("the boundary allows %s on %q, not on %s", action, boundary[action], resource)
		}
	}
	for id, r := range of(all, "AWS::IAM::Role") {
		if got := render(r.Properties["PermissionsBoundary"]); len(got) != 1 || got[0] != "${PermissionsBoundary}" {
			t.Errorf("%s has the boundary %q", id, got)
		}
	}
}

// A deployer may change what belongs to the stack, and not the other resources of the account.
func TestDeployerIsLimitedToTheStack(t *testing.T) {
	deployer := allowed(t, policies(t, "deployer"))
	for action, names := range map[string]string{
		"iam:CreateRole": "role/gateway-", "iam:PassRole": "role/gateway-", "iam:AttachRolePolicy": "role/gateway-",
		"iam:CreatePolicy": "policy/gateway-", "lambda:UpdateFunctionCode": "function:clusterpass-",
		"dynamodb:DeleteTable": "table/clusterpass-objects", "logs:DeleteLogGroup": "clusterpass",
		"secretsmanager:GetSecretValue": "secret:CertificateHeader-", "cloudformation:DeleteStack": "stack/gateway",
		"s3:DeleteBucket": ":gateway-", "ecs:DeleteService": "service/clusterpass/",
		"firehose:UpdateDestination": "clusterpass-audit",
	} {
		for _, resource := range deployer[action] {
			if !strings.Contains(resource, names) {
				t.Errorf("it may %s on %s", action, resource)
			}
		}
		if len(deployer[action]) == 0 {
			t.Errorf("it may not %s", action)
		}
	}
	for action := range deployer {
		if strings.Contains(action, "*") {
			t.Errorf("it may %s", action)
		}
	}
}
