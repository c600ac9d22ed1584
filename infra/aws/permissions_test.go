package aws

import (
	"maps"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/clusterpass/clusterpass/shared/api/cluster/v1alpha1"
	"github.com/clusterpass/clusterpass/shared/passes"
)

type statement struct {
	effect             string
	actions, resources []string
	condition          any
}

func statements(t *testing.T, document any) []statement {
	t.Helper()
	list, ok := get(document, "Statement").([]any)
	if !ok || get(document, "Version") != "2012-10-17" {
		t.Fatalf("not a policy: %v", document)
	}
	var all []statement
	for _, s := range list {
		if get(s, "NotAction") != nil || get(s, "NotResource") != nil {
			t.Errorf("a policy says what is not allowed: %v", s)
		}
		all = append(all, statement{
			effect: get(s, "Effect").(string), actions: render(get(s, "Action")), resources: render(get(s, "Resource")),
			condition: get(s, "Condition"),
		})
	}
	return all
}

func identityPolicies(t *testing.T, all map[string]*template) map[string]any {
	t.Helper()
	found := map[string]any{}
	for id, r := range of(all, "AWS::IAM::ManagedPolicy") {
		found[id] = r.Properties["PolicyDocument"]
	}
	for id, r := range of(all, "AWS::IAM::Role") {
		inline, _ := r.Properties["Policies"].([]any)
		for _, p := range inline {
			found[id+" "+get(p, "PolicyName").(string)] = get(p, "PolicyDocument")
		}
		for _, arn := range render(r.Properties["ManagedPolicyArns"]) {
			if !strings.HasPrefix(arn, "${") {
				t.Errorf("%s has %s, which is not ours", id, arn)
			}
		}
	}
	for _, typ := range []string{"AWS::IAM::Policy", "AWS::IAM::User", "AWS::IAM::Group", "AWS::Serverless::Function"} {
		for id := range of(all, typ) {
			t.Errorf("%s is a %s, which this test does not know", id, typ)
		}
	}
	return found
}

const (
	secretsOfOurs  = "arn:${AWS::Partition}:secretsmanager:${AWS::Region}:${AWS::AccountId}:secret:${Prefix}/"
	logGroupPrefix = "arn:${AWS::Partition}:logs:${AWS::Region}:${AWS::AccountId}:log-group:${"
)

func TestNoWildcards(t *testing.T) {
	// Actions that support no resources.
	anywhere := []string{
		"ecr:GetAuthorizationToken",
		"ec2:CreateNetworkInterface", "ec2:DescribeNetworkInterfaces", "ec2:DescribeSubnets", "ec2:DeleteNetworkInterface",
		"ec2:AssignPrivateIpAddresses", "ec2:UnassignPrivateIpAddresses",
	}
	// Parameters and resources that identify one thing.
	named := map[string][]string{
		"${PassKMSKey}": {"kms:Sign", "kms:GetPublicKey"}, "${CertificateHeader}": {"secretsmanager:GetSecretValue"},
	}
	policies := identityPolicies(t, load(t))
	if len(policies) < 6 {
		t.Errorf("only %d policies were found", len(policies))
	}
	for id, doc := range policies {
		for _, s := range statements(t, doc) {
			if s.effect == "Deny" {
				continue
			}
			for _, a := range s.actions {
				if strings.Contains(a, "*") {
					t.Errorf("%s allows %s", id, a)
				}
				for _, r := range s.resources {
					exact := strings.TrimSuffix(strings.TrimSuffix(r, ":log-stream:*"), "/*")
					switch {
					case r == "*" && !slices.Contains(anywhere, a):
						t.Errorf("%s allows %s on everything", id, a)
					case r != "*" && strings.Contains(exact, "*"):
						t.Errorf("%s allows %s on %s", id, a, r)
					case slices.Contains(named[r], a):
					case strings.HasPrefix(a, "secretsmanager:") && !strings.HasPrefix(r, secretsOfOurs):
						t.Errorf("%s allows %s on %s, which is not below the prefix", id, a, r)
					case strings.HasPrefix(a, "logs:") && !strings.HasPrefix(r, logGroupPrefix):
						t.Errorf("%s allows %s on %s", id, a, r)
					case strings.HasPrefix(a, "kms:") &&
						(s.condition == nil || get(s.condition, "StringEquals", "kms:ViaService") == nil):
						t.Errorf("%s allows %s whoever asks for it", id, a)
					}
				}
			}
		}
	}
}

func statementsOf(t *testing.T, all map[string]*template, id string) []statement {
	t.Helper()
	policies := identityPolicies(t, all)
	path, _, _ := strings.Cut(id, " ")
	var found []statement
	for where, doc := range policies {
		if strings.HasPrefix(where, id+" ") {
			found = append(found, statements(t, doc)...)
		}
	}
	given := all["template.yaml"].Resources["BridgeService"].Properties["Parameters"]
	for _, arn := range render(of(all, "AWS::IAM::Role")[id].Properties["ManagedPolicyArns"]) {
		name := strings.Trim(arn, "${}")
		doc, ok := policies[path+" "+name]
		if strings.Contains(name, ".Outputs.") {
			doc, ok = policies[definition(all, name)]
		}
		if parameter := render(get(given, name)); !ok && len(parameter) > 0 {
			doc, ok = policies[definition(all, strings.Trim(parameter[0], "${}"))]
		}
		if !ok {
			t.Errorf("%s has %s, which is no policy", id, arn)
			continue
		}
		found = append(found, statements(t, doc)...)
	}
	return found
}

// definition returns the path and the resource of a Ref in template.yaml, or of an output of a nested template.
func definition(all map[string]*template, reference string) string {
	id, output, isNested := strings.Cut(reference, ".Outputs.")
	if !isNested {
		return "template.yaml " + id
	}
	path := all["template.yaml"].Resources[id].Properties["TemplateURL"].(string)
	return path + " " + strings.Trim(render(all[path].Outputs[output].Value)[0], "${}")
}

// An attacker who controls a function that reads the CA's key, or a key that makes passes, can act as any user.
func TestWhoReadsKeys(t *testing.T) {
	all := load(t)
	const suffix = "-AbCdEf" // appended by Secrets Manager
	secret := func(name string) string { return secretsOfOurs + name + suffix }
	may := func(role, action, resource string) bool {
		t.Helper()
		return slices.ContainsFunc(statementsOf(t, all, role), func(s statement) bool {
			return s.effect == "Allow" && slices.Contains(s.actions, action) &&
				slices.ContainsFunc(s.resources, func(r string) bool { return covers(r, resource) })
		})
	}
	member := v1alpha1.NewSecretName("prod", "x7k2p")
	keys := []string{passes.PassKeys, passes.AgentKeys, passes.CASecret, "keys/anything"}
	const read = "secretsmanager:GetSecretValue"
	for role, readsAll := range map[string]bool{
		"template.yaml ProxyRole": false, "template.yaml FleetRole": false, "template.yaml RotateRole": false,
		"template.yaml ControlRole": true, "infra/aws/bridge.yaml TaskRole": true,
	} {
		for _, name := range []string{member, passes.TunnelKeys} {
			if !may(role, read, secret(name)) {
				t.Errorf("%s cannot read %s, which it needs", role, name)
			}
		}
		for _, name := range keys {
			if may(role, read, secret(name)) != readsAll {
				t.Errorf("%s may read %s: %t", role, name, !readsAll)
			}
		}
	}
	for role := range of(all, "AWS::IAM::Role") {
		if may(role, "kms:Sign", "${PassKMSKey}") != (role == "template.yaml ControlRole") {
			t.Errorf("%s may sign passes, or control may not", role)
		}
	}
}

func covers(pattern, resource string) bool {
	expr := regexp.QuoteMeta(pattern)
	expr = strings.ReplaceAll(strings.ReplaceAll(expr, `\*`, ".*"), `\?`, ".")
	return regexp.MustCompile("^" + expr + "$").MatchString(resource)
}

func TestLeastPrivilege(t *testing.T) {
	logs := []string{"logs:CreateLogStream", "logs:PutLogEvents"}
	read := []string{
		"dynamodb:BatchGetItem", "dynamodb:GetItem", "dynamodb:Query", "kms:Decrypt", "kms:DescribeKey",
		"secretsmanager:GetSecretValue",
	}
	write := []string{
		"dynamodb:DeleteItem", "dynamodb:PutItem", "dynamodb:UpdateItem", "kms:Encrypt", "kms:GenerateDataKey",
		"kms:ReEncryptFrom", "kms:ReEncryptTo",
		"secretsmanager:CreateSecret", "secretsmanager:DeleteSecret", "secretsmanager:DescribeSecret",
		"secretsmanager:PutSecretValue",
		"secretsmanager:RestoreSecret", "secretsmanager:TagResource", "secretsmanager:UntagResource",
		"secretsmanager:UpdateSecretVersionStage",
	}
	rotate := []string{
		"kms:GenerateDataKey", "secretsmanager:DescribeSecret", "secretsmanager:PutSecretValue",
		"secretsmanager:UpdateSecretVersionStage",
	}
	vpc := []string{
		"ec2:AssignPrivateIpAddresses", "ec2:CreateNetworkInterface", "ec2:DeleteNetworkInterface",
		"ec2:DescribeNetworkInterfaces",
		"ec2:DescribeSubnets", "ec2:UnassignPrivateIpAddresses",
	}
	sign := []string{"kms:GetPublicKey", "kms:Sign"}
	start := []string{
		"ecr:BatchCheckLayerAvailability", "ecr:BatchGetImage", "ecr:GetAuthorizationToken", "ecr:GetDownloadUrlForLayer",
		"kms:Decrypt", "secretsmanager:GetSecretValue",
	}
	want := map[string][]string{
		"template.yaml ProxyRole":                 slices.Concat(logs, read, vpc),
		"template.yaml FleetRole":                 slices.Concat(logs, read, vpc),
		"template.yaml ControlRole":               slices.Concat(logs, read, write, vpc, sign),
		"template.yaml RotateRole":                slices.Concat(logs, read, rotate, vpc),
		"infra/aws/bridge.yaml TaskRole":          slices.Concat(logs, read, write, []string{"s3:PutObject"}),
		"infra/aws/bridge.yaml ExecutionRole":     slices.Concat(logs, start),
		"infra/aws/archive.yaml SubscriptionRole": {"firehose:PutRecord", "firehose:PutRecordBatch"},
		"infra/aws/archive.yaml DeliveryRole": {
			"kms:Decrypt", "kms:GenerateDataKey", "s3:AbortMultipartUpload", "s3:GetBucketLocation", "s3:ListBucket",
			"s3:ListBucketMultipartUploads", "s3:PutObject",
		},
	}
	services := map[any]string{
		"lambda.amazonaws.com": "", "ecs-tasks.amazonaws.com": "",
		"logs.amazonaws.com":     "infra/aws/archive.yaml SubscriptionRole",
		"firehose.amazonaws.com": "infra/aws/archive.yaml DeliveryRole",
	}
	all := load(t)
	roles := of(all, "AWS::IAM::Role")
	for id, r := range roles {
		actions := map[string]bool{}
		for _, s := range statementsOf(t, all, id) {
			for _, a := range s.actions {
				if s.effect == "Allow" {
					actions[a] = true
				}
			}
		}
		wanted := slices.Clone(want[id])
		slices.Sort(wanted)
		if got := slices.Sorted(maps.Keys(actions)); !slices.Equal(got, slices.Compact(wanted)) {
			t.Errorf("%s may\n  %v\nwant\n  %v", id, got, wanted)
		}
		// Only AWS itself may assume a role, for the account's own tasks, functions and audit events.
		for _, s := range get(r.Properties["AssumeRolePolicyDocument"], "Statement").([]any) {
			role, ok := services[get(s, "Principal", "Service")]
			if !ok || role != "" && role != id || get(s, "Action") != "sts:AssumeRole" {
				t.Errorf("%s can be taken by %v", id, get(s, "Principal"))
			}
			// AWS documents this condition for subscriptions.
			source := render(get(s, "Condition", "StringLike", "aws:SourceArn"))
			if role == "infra/aws/archive.yaml SubscriptionRole" &&
				!slices.Equal(source, []string{"arn:${AWS::Partition}:logs:${AWS::Region}:${AWS::AccountId}:*"}) {
				t.Errorf("%s can be taken for %q", id, source)
			}
		}
	}
	if len(roles) != len(want) {
		t.Errorf("%d roles, want %d", len(roles), len(want))
	}
}

// With AuditLogGroup own, each program may write audit events in streams of its own name, and in no other group.
// Nothing may read or delete them.
func TestWhoWritesAuditEvents(t *testing.T) {
	all := load(t)
	const group = logGroupPrefix + "Group}:log-stream:"
	programs := map[string]string{
		"template.yaml ProxyRole": "proxy", "template.yaml FleetRole": "fleet", "template.yaml ControlRole": "control",
		"infra/aws/bridge.yaml TaskRole": "bridge",
	}
	for role := range of(all, "AWS::IAM::Role") {
		var streams []string
		for _, s := range statementsOf(t, all, role) {
			for _, r := range s.resources {
				if stream, ok := strings.CutPrefix(r, group); ok {
					streams = append(streams, stream)
					if !slices.Equal(s.actions, []string{"logs:CreateLogStream", "logs:PutLogEvents"}) {
						t.Errorf("%s may %v audit events", role, s.actions)
					}
				}
			}
		}
		var want []string
		if program, ok := programs[role]; ok {
			want = []string{program + "/*"}
		}
		if !slices.Equal(streams, want) {
			t.Errorf("%s may write to the streams %q, want %q", role, streams, want)
		}
	}
}

// TestWhoMayInvoke: only AWS services may invoke functions, each for a load balancer, API or account of ours.
func TestWhoMayInvoke(t *testing.T) {
	for id, r := range of(load(t), "AWS::Lambda::Permission") {
		source := strings.Join(append(render(r.Properties["SourceArn"]), render(r.Properties["SourceAccount"])...), " ")
		var want string
		switch r.Properties["Principal"] {
		case "elasticloadbalancing.amazonaws.com":
			want = "arn:${AWS::Partition}:elasticloadbalancing:${AWS::Region}:${AWS::AccountId}:targetgroup/${Prefix}-"
		case "apigateway.amazonaws.com":
			want = "arn:${AWS::Partition}:execute-api:${AWS::Region}:${AWS::AccountId}:${Api}/"
		case "secretsmanager.amazonaws.com":
			want = "${AWS::AccountId}"
		}
		if want == "" || !strings.Contains(source, want) {
			t.Errorf("%s lets %v of %q invoke", id, r.Properties["Principal"], source)
		}
	}
	for _, typ := range []string{"AWS::Lambda::Url", "AWS::Lambda::EventSourceMapping"} {
		for id := range of(load(t), typ) {
			t.Errorf("%s is another way to a function", id)
		}
	}
}
