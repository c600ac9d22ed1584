package aws

import (
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"os"
	"path/filepath"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

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

// A log group that the key's policy lacks can neither be created nor read. After an update, the log groups of functions
// of earlier commits remain, with names of Lambda's own.
func TestKeyDecryptsLogGroups(t *testing.T) {
	all := load(t)
	var patterns []string
	policy := all["template.yaml"].Resources["Key"].Properties["KeyPolicy"]
	for _, s := range get(policy, "Statement").([]any) {
		patterns = append(patterns, render(get(s, "Condition", "ArnLike", "kms:EncryptionContext:aws:logs:arn"))...)
	}
	names := []string{
		"/aws/lambda/${Prefix}-proxy", "/aws/lambda/${Prefix}-fleet", "/aws/lambda/${Prefix}-control",
		render(get(all["template.yaml"].Resources["BridgeService"].Properties["Parameters"], "LogGroup"))[0],
	}
	for _, r := range of(all, "AWS::Logs::LogGroup") {
		if name := render(r.Properties["LogGroupName"])[0]; name != "${LogGroup}" { // the bridge's
			names = append(names, name)
		}
	}
	for _, name := range names {
		arn := "arn:${AWS::Partition}:logs:${AWS::Region}:${AWS::AccountId}:log-group:" + name
		if !slices.ContainsFunc(patterns, func(p string) bool { return covers(p, arn) }) {
			t.Errorf("the policy of the key permits logs of %q, not %s", patterns, arn)
		}
	}
}

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
		"infra/aws/bridge.yaml TaskRole":          slices.Concat(read, write, []string{"s3:PutObject"}),
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

// TestKeyPolicy: the account's own policies apply, and two AWS services may use the key on our behalf.
func TestKeyPolicy(t *testing.T) {
	key := load(t)["template.yaml"].Resources["Key"]
	for _, s := range get(key.Properties["KeyPolicy"], "Statement").([]any) {
		principal := fmt.Sprint(get(s, "Principal"))
		switch {
		case strings.Contains(principal, ":root"):
		case strings.Contains(principal, "logs.") && get(s, "Condition", "ArnLike") != nil:
		case strings.Contains(principal, "cloudwatch.amazonaws.com") && get(s, "Condition", "StringEquals") != nil:
		default:
			t.Errorf("the key is open to %s", principal)
		}
	}
	if key.Properties["EnableKeyRotation"] != true {
		t.Error("the key is not rotated")
	}
}

// Only the load balancer may reach the bridge's port. Only functions and other bridges may reach the tunnel port.
func TestWhoReachesWhom(t *testing.T) {
	all := load(t)
	type way struct{ to, ports, from string }
	var ways []way
	ports := func(rule any) string { return fmt.Sprint(get(rule, "FromPort"), "-", get(rule, "ToPort")) }
	from := func(rule any) string {
		return strings.Join(append(render(get(rule, "SourceSecurityGroupId")), render(get(rule, "CidrIp"))...), " ")
	}
	for id, r := range of(all, "AWS::EC2::SecurityGroup") {
		if !strings.HasPrefix(id, "infra/aws/groups.yaml ") {
			t.Errorf("%s is not in groups.yaml", id)
		}
		rules, _ := r.Properties["SecurityGroupIngress"].([]any)
		for _, rule := range rules {
			ways = append(ways, way{strings.TrimPrefix(id, "infra/aws/groups.yaml "), ports(rule), from(rule)})
		}
		if r.Properties["SecurityGroupEgress"] == nil {
			t.Errorf("%s leaves what may go out to AWS's default", id)
		}
	}
	for id, r := range of(all, "AWS::EC2::SecurityGroupIngress") {
		if !strings.HasPrefix(id, "infra/aws/groups.yaml ") {
			t.Errorf("%s is not in groups.yaml", id)
		}
		ways = append(ways, way{
			strings.Trim(render(r.Properties["GroupId"])[0], "${}"), ports(r.Properties), from(r.Properties),
		})
	}
	want := []way{
		{"Bridge.GroupId", "8080-8080", "${LoadBalancer.GroupId}"},
		{"Bridge.GroupId", "8081-8081", "${LoadBalancer.GroupId}"},
		{"Bridge.GroupId", "8444-8444", "${Bridge.GroupId}"},
		{"Bridge.GroupId", "8444-8444", "${Functions.GroupId}"},
		{"LoadBalancer", "443-443", "${AllowedCidr}"},
	}
	slices.SortFunc(ways, func(a, b way) int { return strings.Compare(a.to+a.ports+a.from, b.to+b.ports+b.from) })
	if !slices.Equal(ways, want) {
		t.Errorf("ways in:\n  %v\nwant\n  %v", ways, want)
	}
	for _, rule := range all["infra/aws/groups.yaml"].Resources["LoadBalancer"].Properties["SecurityGroupEgress"].([]any) {
		if ports(rule) != "8080-8081" {
			t.Errorf("the load balancer reaches %s", ports(rule))
		}
	}
	for id, r := range of(all, "AWS::ElasticLoadBalancingV2::TargetGroup") {
		if r.Properties["TargetType"] != "lambda" && fmt.Sprint(r.Properties["Port"]) != "8080" {
			t.Errorf("%s leads to port %v", id, r.Properties["Port"])
		}
	}
	for what, want := range map[string]string{
		fmt.Sprint(
			render(
				get(all["template.yaml"].Resources["BridgeService"].Properties["Parameters"],
					"Group"))): "[${Groups.Outputs.Bridge}]",
		fmt.Sprint(
			render(
				get(get(all["template.yaml"].Resources["ProxyFunction"].Properties, "VpcConfig", "Fn::If").([]any)[1],
					"SecurityGroupIds"))): "[${Groups.Outputs.Functions}]",
		fmt.Sprint(
			render(
				get(all["template.yaml"].Resources["LoadBalancer"].Properties["Parameters"],
					"Group"))): "[${Groups.Outputs.LoadBalancer}]",
	} {
		if what != want {
			t.Errorf("a group is %s, want %s", what, want)
		}
	}
}

func TestEncryption(t *testing.T) {
	ownKey := func(v any) bool {
		return slices.Contains([]string{"${Key.Arn}", "${Key}", "${RecordingKey}"}, strings.Join(render(v), ""))
	}
	checks := map[string]func(resource) bool{
		"AWS::DynamoDB::Table": func(r resource) bool {
			return get(r.Properties, "SSESpecification", "SSEType") == "KMS" &&
				ownKey(get(r.Properties, "SSESpecification", "KMSMasterKeyId"))
		},
		"AWS::Logs::LogGroup": func(r resource) bool {
			return ownKey(r.Properties["KmsKeyId"]) && r.Properties["RetentionInDays"] != nil
		},
		"AWS::S3::Bucket": func(r resource) bool {
			rules, _ := get(r.Properties, "BucketEncryption", "ServerSideEncryptionConfiguration").([]any)
			return len(rules) == 1 && ownKey(get(rules[0], "ServerSideEncryptionByDefault", "KMSMasterKeyID"))
		},
		"AWS::KinesisFirehose::DeliveryStream": func(r resource) bool {
			return ownKey(get(r.Properties, "DeliveryStreamEncryptionConfigurationInput", "KeyARN"))
		},
		"AWS::SecretsManager::Secret": func(r resource) bool { return ownKey(r.Properties["KmsKeyId"]) },
		"AWS::SNS::Topic":             func(r resource) bool { return ownKey(r.Properties["KmsMasterKeyId"]) },
		"AWS::ElasticLoadBalancingV2::Listener": func(r resource) bool {
			return r.Properties["Protocol"] == "HTTPS" &&
				strings.HasPrefix(r.Properties["SslPolicy"].(string), "ELBSecurityPolicy-TLS13-1-2")
		},
		"AWS::ApiGateway::RestApi": func(r resource) bool {
			return strings.HasPrefix(fmt.Sprint(r.Properties["SecurityPolicy"]), "SecurityPolicy_TLS13_1_2") &&
				r.Properties["EndpointAccessMode"] == "STRICT"
		},
		"AWS::ElasticLoadBalancingV2::TargetGroup": func(r resource) bool {
			return r.Properties["TargetType"] == "lambda" || r.Properties["Protocol"] == "HTTPS"
		},
	}
	keepsNothing := []string{
		"AWS::ApiGateway::Deployment", "AWS::ApiGateway::Stage", "AWS::ApplicationAutoScaling::ScalableTarget",
		"AWS::ApplicationAutoScaling::ScalingPolicy", "AWS::CertificateManager::Certificate", "AWS::CloudFormation::Stack",
		"AWS::CloudWatch::Alarm", "AWS::CloudWatch::Dashboard",
		"AWS::EC2::EIP", "AWS::EC2::InternetGateway", "AWS::EC2::NatGateway", "AWS::EC2::Route", "AWS::EC2::RouteTable",
		"AWS::EC2::SecurityGroup",
		"AWS::EC2::SecurityGroupIngress", "AWS::EC2::Subnet", "AWS::EC2::SubnetRouteTableAssociation", "AWS::EC2::VPC",
		"AWS::EC2::VPCEndpoint",
		"AWS::EC2::VPCGatewayAttachment", "AWS::ECS::Cluster", "AWS::ECS::Service", "AWS::ECS::TaskDefinition",
		"AWS::ElasticLoadBalancingV2::ListenerRule", "AWS::ElasticLoadBalancingV2::LoadBalancer", "AWS::IAM::ManagedPolicy",
		"AWS::IAM::Role",
		"AWS::KMS::Alias", "AWS::KMS::Key", "AWS::Lambda::Function", "AWS::Lambda::Permission",
		"AWS::Logs::SubscriptionFilter",
		"AWS::Route53::RecordSet", "AWS::S3::BucketPolicy",
		"AWS::SNS::TopicPolicy",
		"AWS::ServiceDiscovery::PrivateDnsNamespace", "AWS::ServiceDiscovery::Service",
		"AWS::WAFv2::WebACL", "AWS::WAFv2::WebACLAssociation",
	}
	for path, tmpl := range load(t) {
		for id, r := range tmpl.Resources {
			check, ok := checks[r.Type]
			switch {
			case ok && !check(r):
				t.Errorf("%s %s: not encrypted as it should be, or kept for ever", path, id)
			case !ok && !slices.Contains(keepsNothing, r.Type):
				t.Errorf("%s %s: say in this test whether a %s keeps anything", path, id, r.Type)
			}
		}
	}
}

// TestRecordingsAreWrittenOnce: an attacker who controls a bridge must not be able to replace, delete or read the
// recordings of earlier sessions.
func TestRecordingsAreWrittenOnce(t *testing.T) {
	all := load(t)
	recordings := all["infra/aws/recordings.yaml"]
	for id := range of(all, "AWS::IAM::Role") {
		for _, s := range statementsOf(t, all, id) {
			for _, action := range s.actions {
				isOfBridge := id == "infra/aws/bridge.yaml TaskRole"
				if s.effect == "Allow" && strings.HasPrefix(action, "s3:") && isOfBridge && action != "s3:PutObject" {
					t.Errorf("%s may %s", id, action)
				}
			}
		}
	}
	denied := false
	for _, s := range statements(t, recordings.Resources["BucketPolicy"].Properties["PolicyDocument"]) {
		denied = denied || s.effect == "Deny" && slices.Equal(s.actions, []string{"s3:PutObject"}) &&
			slices.Equal(s.resources, []string{"${Bucket.Arn}/*"}) &&
			reflect.DeepEqual(s.condition, map[string]any{"Null": map[string]any{"s3:if-none-match": "true"}})
	}
	if !denied {
		t.Error("a part of a recording can be replaced")
	}
	rules, _ := get(recordings.Resources["Bucket"].Properties, "LifecycleConfiguration", "Rules").([]any)
	if len(rules) != 1 || get(rules[0], "Status") != "Enabled" ||
		!slices.Equal(render(get(rules[0], "ExpirationInDays")), []string{"${Days}"}) {
		t.Errorf("recordings are deleted by %v", rules)
	}
	given := all["template.yaml"].Resources["BridgeService"].Properties["Parameters"]
	if got := render(get(given, "Recordings")); got[0] != "s3:${Recordings.Outputs.Bucket}" {
		t.Errorf("the bridge records to %s", got)
	}
}

// TestKept: resources that cannot be restored survive the deletion of the stack. The next stack must not need their
// names, except the table's.
func TestKept(t *testing.T) {
	all := load(t)
	for _, id := range []string{
		"template.yaml Key", "template.yaml Objects", "template.yaml ProxyLogs", "template.yaml FleetLogs",
		"template.yaml ControlLogs", "infra/aws/bridge.yaml Logs", "infra/aws/archive.yaml Bucket",
		"infra/aws/recordings.yaml Bucket",
	} {
		path, name, _ := strings.Cut(id, " ")
		r := all[path].Resources[name]
		if r.DeletionPolicy != "RetainExceptOnCreate" || r.UpdateReplacePolicy != "Retain" {
			t.Errorf("%s goes with the stack, or with a replacement", id)
		}
		group := r.Properties["LogGroupName"]
		if path == "infra/aws/bridge.yaml" {
			group = get(all["template.yaml"].Resources["BridgeService"].Properties["Parameters"], "LogGroup")
		}
		if r.Type == "AWS::Logs::LogGroup" && !strings.Contains(fmt.Sprint(group), "AWS::StackId") {
			t.Errorf("%s is named %v, which the next stack cannot use", id, group)
		}
	}
	bucket := all["infra/aws/archive.yaml"].Resources["Bucket"].Properties
	lock := get(bucket, "ObjectLockConfiguration", "Rule", "DefaultRetention")
	if bucket["ObjectLockEnabled"] != true || fmt.Sprint(render(get(lock, "Mode")), render(get(lock, "Days"))) !=
		"[${Mode}] [${Days}]" {
		t.Errorf("events in the bucket are locked by %v", lock)
	}
	table := all["template.yaml"].Resources["Objects"].Properties
	if get(table, "PointInTimeRecoverySpecification", "PointInTimeRecoveryEnabled") != true ||
		table["DeletionProtectionEnabled"] != true {
		t.Error("the table has no backups, or can be deleted by one call")
	}
}

// Bridges must be reachable by the DNS name and port that they are configured with.
func TestTunnelPort(t *testing.T) {
	all := load(t)
	resources := all["infra/aws/bridge.yaml"].Resources
	names, port := resources["Names"].Properties, resources["TunnelPort"].Properties
	service := resources["Service"].Properties
	container := resources["Task"].Properties["ContainerDefinitions"].([]any)[0]
	env := map[string]string{}
	for _, v := range get(container, "Environment").([]any) {
		if name, ok := get(v, "Name").(string); ok {
			env[name] = strings.Join(render(get(v, "Value")), "")
		}
	}
	if env["CLUSTERPASS_TUNNEL_LISTEN"] != ":8444" ||
		!strings.Contains(fmt.Sprint(get(container, "PortMappings")), "ContainerPort:8444") {
		t.Errorf("the task listens on %q, and opens %v", env["CLUSTERPASS_TUNNEL_LISTEN"], get(container, "PortMappings"))
	}
	name := fmt.Sprintf("%s.%s:8444", port["Name"], render(names["Name"])[0])
	if env["CLUSTERPASS_PEERS"] != name || "https://"+name != render(all["template.yaml"].Outputs["TunnelUrl"].Value)[0] {
		t.Errorf("a bridge is %s, and looks for %s", name, env["CLUSTERPASS_PEERS"])
	}
	if got := fmt.Sprint(render(names["Vpc"]), render(port["NamespaceId"]),
		render(
			get(service["ServiceRegistries"].([]any)[0], "RegistryArn"))); got != "[${Vpc}] [${Names}] [${TunnelPort.Arn}]" {
		t.Errorf("the names are %s", got)
	}
	records := get(port["DnsConfig"], "DnsRecords").([]any)
	if get(port["DnsConfig"], "RoutingPolicy") != "MULTIVALUE" || len(records) != 1 || get(records[0], "Type") != "A" {
		t.Errorf("a question is answered by %v", port["DnsConfig"])
	}
	if given := all["template.yaml"].Resources["BridgeService"].Properties["Parameters"]; fmt.Sprint(
		render(get(given, "Vpc"))) != fmt.Sprint(
		render(get(all["template.yaml"].Resources["Groups"].Properties["Parameters"], "Vpc"))) {
		t.Error("the names are of another network than the groups")
	}
}

// TestBridgeTask checks the container's protection against attackers, and its shutdown.
func TestBridgeTask(t *testing.T) {
	task := load(t)["infra/aws/bridge.yaml"].Resources["Task"]
	container := task.Properties["ContainerDefinitions"].([]any)[0]
	if get(container, "ReadonlyRootFilesystem") != true ||
		fmt.Sprint(get(container, "LinuxParameters", "Capabilities", "Drop")) != "[ALL]" {
		t.Error("the container may do more than it needs")
	}
	var drain time.Duration
	for _, v := range get(container, "Environment").([]any) {
		if get(v, "Name") == "CLUSTERPASS_DRAIN_TIMEOUT" {
			drain, _ = time.ParseDuration(fmt.Sprint(get(v, "Value")))
		}
	}
	const most, audit = 120 * time.Second, 10 * time.Second // Fargate's limit, and the time for the last audit events
	stop, err := time.ParseDuration(fmt.Sprint(get(container, "StopTimeout")) + "s")
	if err != nil || drain <= 0 || stop > most || stop < drain+audit {
		t.Errorf("the container is killed after %s (%v) and drains for %s", stop, err, drain)
	}
	service := load(t)["infra/aws/bridge.yaml"].Resources["Service"]
	given := load(t)["template.yaml"].Resources["BridgeService"].Properties["Parameters"]
	if get(service.Properties, "NetworkConfiguration", "AwsvpcConfiguration", "AssignPublicIp") == nil ||
		fmt.Sprint(render(get(given, "PublicAddress"))) != "[DISABLED ENABLED]" {
		t.Error("the bridge has no way out of public subnets, or a public address in private ones")
	}
	if service.Properties["DesiredCount"] != nil {
		t.Error("an update sets the scaling back")
	}
}

// Without these limits, one source or one credential uses up the account's concurrent executions.
func TestRequestRateAndConcurrencyAreLimited(t *testing.T) {
	all := load(t)
	acl := all["infra/aws/waf.yaml"].Resources["Acl"]
	rules, _ := acl.Properties["Rules"].([]any)
	var got []string
	for _, rule := range rules {
		rate := get(get(rule, "Statement"), "RateBasedStatement")
		description := fmt.Sprint(get(rate, "AggregateKeyType"), " ", render(get(rate, "Limit"))[0])
		if keys, _ := get(rate, "CustomKeys").([]any); len(keys) == 1 {
			description += fmt.Sprint(" ", get(get(keys[0], "Header"), "Name"))
		}
		got = append(got, description)
		blocked := get(get(get(rule, "Action"), "Block"), "CustomResponse")
		if code := fmt.Sprint(get(blocked, "ResponseCode")); code != "429" {
			t.Errorf("a blocked request gets %s, want 429", code)
		}
	}
	if want := []string{"IP ${RequestRate}", "CUSTOM_KEYS ${CredentialRate} authorization"}; !slices.Equal(got, want) {
		t.Errorf("the rules are %q, want %q", got, want)
	}
	for _, name := range []string{"Proxy", "Fleet", "Control", "Rotate"} {
		function := all["template.yaml"].Resources[name+"Function"]
		reserved := fmt.Sprint(function.Properties["ReservedConcurrentExecutions"])
		if !strings.Contains(reserved, "Has"+name+"Concurrency") || !strings.Contains(reserved, name+"Concurrency") {
			t.Errorf("%s reserves %s", name, reserved)
		}
	}
}

// Without a limit at the stage, one installation uses up the rate that all APIs of the account share. kubectl must be
// able to print the refusal, and to repeat the request.
func TestStageThrottles(t *testing.T) {
	all := load(t)
	given := all["template.yaml"].Resources["RestApi"].Properties["Parameters"]
	if got := fmt.Sprint(render(get(given, "Rate")), render(get(given, "Burst"))); got != "[${ApiRate}] [${ApiBurst}]" {
		t.Errorf("the API is given %s", got)
	}
	stages, apis := of(all, "AWS::ApiGateway::Stage"), of(all, "AWS::ApiGateway::RestApi")
	if len(stages) != 1 || len(apis) != 1 {
		t.Fatalf("there are %d stages of %d APIs", len(stages), len(apis))
	}
	for id, r := range stages {
		settings, _ := r.Properties["MethodSettings"].([]any)
		if len(settings) != 1 || get(settings[0], "HttpMethod") != "*" || get(settings[0], "ResourcePath") != "/*" ||
			fmt.Sprint(render(get(settings[0], "ThrottlingRateLimit")), render(get(settings[0], "ThrottlingBurstLimit"))) !=
				"[${Rate}] [${Burst}]" {
			t.Errorf("%s has the settings %v", id, settings)
		}
	}
	for id, r := range apis {
		refusal := get(r.Properties["Body"], "x-amazon-apigateway-gateway-responses", "THROTTLED")
		text, _ := get(refusal, "responseTemplates", "application/json").(string)
		var status metav1.Status
		if err := json.Unmarshal([]byte(text), &status); err != nil || status.Code != http.StatusTooManyRequests ||
			status.Reason != metav1.StatusReasonTooManyRequests || get(refusal, "statusCode") != fmt.Sprint(status.Code) ||
			get(refusal, "responseParameters", "gatewayresponse.header.Retry-After") != "'1'" {
			t.Errorf("%s refuses with %v (%v)", id, refusal, err)
		}
	}
}
