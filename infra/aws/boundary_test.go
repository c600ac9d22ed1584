package aws

import (
	"maps"
	"reflect"
	"slices"
	"strings"
	"testing"
)

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
		"kms:Sign":     passKeyARN,
	} {
		if !slices.ContainsFunc(boundary[action], func(p string) bool { return covers(p, resource) }) {
			t.Errorf("the boundary allows %s on %q, not on %s", action, boundary[action], resource)
		}
	}
	keys := allowed(t, policies(t, "boundary", "--key", keyARN, "--recording-key", recordARN))["kms:GenerateDataKey"]
	slices.Sort(keys)
	if keys = slices.Compact(keys); !slices.Equal(keys, []string{keyARN, recordARN}) {
		t.Errorf("the boundary allows kms:GenerateDataKey on %q, want the keys of the stack and of recordings", keys)
	}
	for id, r := range of(all, "AWS::IAM::Role") {
		if got := render(r.Properties["PermissionsBoundary"]); len(got) != 1 || got[0] != "${PermissionsBoundary}" {
			t.Errorf("%s has the boundary %q", id, got)
		}
	}
}

// A deployer that could create or change a role without the boundary would have every permission of the account.
func TestDeployerIsLimitedByTheBoundary(t *testing.T) {
	service := func(names ...string) map[string]map[string]any {
		var values []any
		for _, n := range names {
			values = append(values, n+".eu-central-1.amazonaws.com")
		}
		return map[string]map[string]any{"StringEquals": {"kms:ViaService": values}}
	}
	forServices := map[string]map[string]any{"Bool": {"kms:GrantIsForAWSResource": "true"}}
	bounded := map[string]map[string]any{"StringEquals": {"iam:PermissionsBoundary": boundaryARN}}
	services := service("dynamodb", "firehose", "lambda", "secretsmanager")
	want := map[string]map[string]map[string]any{
		"iam:CreateRole": bounded, "iam:PutRolePolicy": bounded, "iam:DeleteRolePolicy": bounded,
		"iam:AttachRolePolicy": bounded, "iam:DetachRolePolicy": bounded, "iam:PutRolePermissionsBoundary": bounded,
		"iam:PassRole": {"StringEquals": {"iam:PassedToService": []any{
			"ecs-tasks.amazonaws.com", "firehose.amazonaws.com", "lambda.amazonaws.com", "logs.amazonaws.com",
		}}},
		"kms:CreateGrant": forServices, "kms:RevokeGrant": forServices,
		"kms:Encrypt": services, "kms:Decrypt": services, "kms:GenerateDataKey": services,
	}
	for _, g := range grants(t, policies(t, "deployer", "--key", keyARN)) {
		for _, action := range g.Action {
			if action == "iam:DeleteRolePermissionsBoundary" {
				t.Error("it may remove the boundary")
			}
			if !reflect.DeepEqual(g.Condition, want[action]) {
				t.Errorf("it may %s on the condition %v, want %v", action, g.Condition, want[action])
			}
			if strings.HasPrefix(action, "kms:") && slices.ContainsFunc(g.Resource, func(r string) bool {
				return strings.Contains(r, ":key/") && r != keyARN
			}) {
				t.Errorf("it may %s on %q", action, g.Resource)
			}
		}
	}
	for name, tt := range map[string]struct{ stack, boundary, want string }{
		"no boundary": {"gateway", "", "--boundary"},
		"a boundary that the stack changes": {
			"gateway", "arn:aws:iam::111122223333:policy/gateway-boundary", "--boundary",
		},
		"policies that the stack changes": {"deployer", boundaryARN, "STACK"},
	} {
		args := []string{"infra/aws/policies.py", "deployer", tt.stack, "clusterpass", "1", "eu-central-1"}
		if tt.boundary != "" {
			args = append(args, "--boundary", tt.boundary)
		}
		args = append(args, "--output", t.TempDir())
		if _, err := python(args...); err == nil || !strings.Contains(err.Error(), tt.want) {
			t.Errorf("%s: %v, want an error about %s", name, err, tt.want)
		}
	}
}
