package aws

import (
	"bytes"
	"encoding/json"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"testing"

	"sigs.k8s.io/yaml"
)

// maxPolicy is the maximum number of characters of a managed policy, without white space.
const maxPolicy = 6144

const (
	boundaryARN = "arn:aws:iam::111122223333:policy/boundary-gateway"
	keyARN      = "arn:aws:kms:eu-central-1:111122223333:key/1"
	passKeyARN  = "arn:aws:kms:eu-central-1:111122223333:key/2"
	recordARN   = "arn:aws:kms:eu-central-1:111122223333:key/3"
)

func policies(t *testing.T, kind string, options ...string) []json.RawMessage {
	t.Helper()
	return documents(t, append([]string{
		kind, "gateway", "clusterpass", "111122223333", "eu-central-1",
		"--boundary", boundaryARN, "--zone", "Z1", "--pass-key", passKeyARN,
	}, options...)...)
}

// policyFiles caches the output of policies.py by its arguments.
var policyFiles = map[string][]json.RawMessage{}

// documents runs policies.py once for the same arguments, and returns the files that it writes.
func documents(t *testing.T, args ...string) []json.RawMessage {
	t.Helper()
	key := strings.Join(args, " ")
	if all, ok := policyFiles[key]; ok {
		return all
	}
	dir := t.TempDir()
	out, err := python(append(append([]string{"infra/aws/policies.py"}, args...), "--output", dir)...)
	if err != nil {
		t.Fatal(err)
	}
	var all []json.RawMessage
	for name := range strings.Lines(string(out)) {
		text, err := os.ReadFile(strings.TrimSpace(name))
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, text)
	}
	if files, err := os.ReadDir(dir); err != nil || len(files) != len(all) {
		t.Errorf("it prints the names\n%sof %d files (%v)", out, len(files), err)
	}
	policyFiles[key] = all
	return all
}

// AWS must accept the policies, and a principal can have only ten. The script fails for a resource that it does not
// know, so a new resource of the template cannot be forgotten.
func TestPoliciesAreValid(t *testing.T) {
	if testing.Short() {
		t.Skip("slow: make test runs it")
	}
	var files []string
	for kind, maximum := range map[string]int{
		"deployer": 5, "boundary": 1, "deployer --canary": 5, "boundary --canary": 1,
	} {
		args := strings.Fields(kind)
		documents := policies(t, args[0], args[1:]...)
		if len(documents) == 0 || len(documents) > maximum {
			t.Errorf("%s: there are %d policies, want at most %d", kind, len(documents), maximum)
		}
		resources := map[string]any{}
		for i, document := range documents {
			var compact bytes.Buffer
			if err := json.Compact(&compact, document); err != nil || compact.Len() > maxPolicy {
				t.Errorf("%s: policy %d has %d characters (%v)", kind, i, compact.Len(), err)
			}
			resources["Policy"+string(rune('A'+i))] = map[string]any{
				"Type": "AWS::IAM::ManagedPolicy", "Properties": map[string]any{"PolicyDocument": document},
			}
		}
		file := filepath.Join(t.TempDir(), strings.ReplaceAll(kind, " ", "")+".json")
		text, err := json.Marshal(map[string]any{"AWSTemplateFormatVersion": "2010-09-09", "Resources": resources})
		if err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(file, text, 0o600); err != nil {
			t.Fatal(err)
		}
		files = append(files, file)
	}
	lint(t, nil, files...) // it also refuses an action that AWS does not have
}

// A new type of resource, whose calls the script does not know, would fail in the middle of a deployment. A type that
// is gone would leave the deployer with rights that it does not need.
func TestPoliciesCoverTheTemplate(t *testing.T) {
	const script = `
import sys
sys.path.insert(0, "infra/aws")
import policies

def attempt(call):
    try:
        list(call())
        print("accepted")
    except (KeyError, SystemExit) as e:
        print(e)

all = policies.templates(canary=False)
calls, references = policies.CALLS, policies.REFERENCES
attempt(lambda: policies.deployer(all, canary=False))
attempt(lambda: policies.boundary(all))
policies.CALLS = {name: rows for name, rows in calls.items() if name != "AWS::KMS::Alias"}
attempt(lambda: policies.deployer(all, canary=False))
policies.CALLS = calls | {"AWS::SQS::Queue": []}
attempt(lambda: policies.deployer(all, canary=False))
policies.REFERENCES = {name: arn for name, arn in references.items() if name != "${Objects.Arn}"}
attempt(lambda: policies.boundary(all))
`
	out, err := python("-c", script)
	const want = `accepted
accepted
policies.py does not know the calls for AWS::KMS::Alias
policies.py knows calls for types that the template lacks: AWS::SQS::Queue
'${Objects.Arn}'
`
	if err != nil || string(out) != want {
		t.Errorf("it prints\n%s%v, want\n%s", out, err, want)
	}
}

type grant struct {
	Effect           string
	Action, Resource []string
	Condition        map[string]map[string]any
}

func grants(t *testing.T, documents []json.RawMessage) []grant {
	t.Helper()
	var all []grant
	for _, document := range documents {
		var policy struct{ Statement []grant }
		if err := json.Unmarshal(document, &policy); err != nil {
			t.Fatal(err)
		}
		all = append(all, policy.Statement...)
	}
	return all
}

func allowed(t *testing.T, documents []json.RawMessage) map[string][]string {
	t.Helper()
	resources := map[string][]string{}
	for _, s := range grants(t, documents) {
		for _, action := range s.Action {
			resources[action] = append(resources[action], s.Resource...)
		}
	}
	return resources
}

// A deployment with policies that lack an action fails, and its rollback may fail, too. An action that nothing requires
// is a right too many. A new type of resource needs its actions in testdata/actions.yaml.
func TestDeployerMayDoWhatAWSRequires(t *testing.T) {
	text, err := os.ReadFile("testdata/actions.yaml")
	if err != nil {
		t.Fatal(err)
	}
	var required map[string]struct {
		ARNs    []string
		Actions map[string]string
	}
	if err := yaml.UnmarshalStrict(text, &required); err != nil {
		t.Fatal(err)
	}
	deployer := allowed(t, policies(t, "deployer", "--canary"))
	used := map[string]bool{}
	for _, tmpl := range loadCanary(t, deployment()) {
		for _, r := range tmpl.Resources {
			used[r.Type] = true
		}
	}
	for name := range used {
		if _, ok := required[name]; !ok {
			t.Errorf("testdata/actions.yaml lacks %s, and the actions that AWS requires for it", name)
		}
	}
	needed := map[string]bool{}
	for name, r := range required {
		if strings.HasPrefix(name, "AWS::") && !used[name] {
			t.Errorf("testdata/actions.yaml has %s, which the template lacks", name)
		}
		for service, actions := range r.Actions {
			for action := range strings.FieldsSeq(actions) {
				needed[service+":"+action] = true
				checkAction(t, name, service, action, r.ARNs, deployer[service+":"+action])
			}
		}
	}
	for action := range deployer {
		if !needed[action] {
			t.Errorf("the deployer may %s, and testdata/actions.yaml gives no reason", action)
		}
	}
}

// checkAction fails unless an action is allowed, and on one of the ARNs of its service.
func checkAction(t *testing.T, name, service, action string, arns, patterns []string) {
	t.Helper()
	own := slices.DeleteFunc(slices.Clone(arns), func(arn string) bool {
		return !strings.HasPrefix(arn, "arn:aws:"+service+":")
	})
	if len(patterns) == 0 {
		t.Errorf("%s: the deployer may not %s:%s", name, service, action)
	} else if len(own) > 0 && !slices.ContainsFunc(patterns, func(p string) bool {
		return slices.ContainsFunc(own, func(arn string) bool { return covers(p, arn) })
	}) {
		t.Errorf("%s: the deployer may %s:%s on %q, not on %q", name, service, action, patterns, own)
	}
}

// An administrator must be able to create the policies as docs/reference/aws.md shows it.
func TestPolicyCommands(t *testing.T) {
	if testing.Short() {
		t.Skip("slow: make test runs it")
	}
	text, err := os.ReadFile(filepath.Join(root, "docs/reference/aws.md"))
	if err != nil {
		t.Fatal(err)
	}
	_, section, _ := strings.Cut(string(text), "### The deployer, and a permissions boundary")
	_, section, _ = strings.Cut(section, "```sh\n")
	commands, _, ok := strings.Cut(section, "```")
	if !ok {
		t.Fatal("docs/reference/aws.md shows no commands")
	}
	usePython(t)
	a := newAccount(t)
	a.query("iam", "2010-05-08", "", "Action", "CreateRole", "RoleName", "deployer", "AssumeRolePolicyDocument", `{}`)
	checkout, err := filepath.Abs(root)
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir() // the commands write files
	if err := os.Symlink(filepath.Join(checkout, "infra"), filepath.Join(dir, "infra")); err != nil {
		t.Fatal(err)
	}
	cmd := exec.CommandContext(t.Context(), "bash", "-euo", "pipefail", "-c", commands)
	cmd.Dir = dir
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	attached := a.query("iam", "2010-05-08", "PolicyName", "Action", "ListAttachedRolePolicies", "RoleName", "deployer")
	if len(attached) < 2 || attached[0] != "deployer-clusterpass-1" {
		t.Errorf("the deployer has the policies %q", attached)
	}
	created := a.query("iam", "2010-05-08", "PolicyName", "Action", "ListPolicies", "Scope", "Local")
	if !slices.Contains(created, "boundary-clusterpass") || len(created) != len(attached)+1 {
		t.Errorf("there are the policies %q", created)
	}
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

// A deployer may change what belongs to the stack, and not the other resources of the account.
func TestDeployerIsLimitedToTheStack(t *testing.T) {
	deployer := allowed(t, policies(t, "deployer"))
	for action, names := range map[string]string{
		"iam:CreateRole": "role/gateway-", "iam:PassRole": "role/gateway-", "iam:AttachRolePolicy": "role/gateway-",
		"iam:CreatePolicy": "policy/gateway-", "lambda:UpdateFunctionCode": "function:clusterpass-",
		"dynamodb:DeleteTable": "table/clusterpass-objects", "logs:DeleteLogGroup": "clusterpass",
		"secretsmanager:GetSecretValue": "secret:CertificateHeader-", "cloudformation:DeleteStack": "stack/gateway",
		"s3:DeleteBucket": ":gateway-", "ecs:DeleteService": "service/clusterpass/",
		"firehose:UpdateDestination": "clusterpass-audit", "route53:ChangeResourceRecordSets": "hostedzone/Z1",
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

// A stack's name may have capitals, and names of buckets have none. The stacks of another name must not match.
func TestDeployerNames(t *testing.T) {
	deployer := allowed(t, documents(t, "deployer", "Gateway", "clusterpass", "111122223333", "eu-central-1",
		"--boundary", boundaryARN))
	if got := deployer["s3:DeleteBucket"]; !slices.Equal(got, []string{"arn:aws:s3:::gateway-*"}) {
		t.Errorf("buckets %q", got)
	}
	const stacks = "arn:aws:cloudformation:eu-central-1:111122223333:stack/Gateway"
	if got := deployer["cloudformation:DeleteStack"]; !slices.Equal(got, []string{stacks + "-*", stacks + "/*"}) {
		t.Errorf("stacks %q", got)
	}
	if got := deployer["route53:ChangeResourceRecordSets"]; got != nil {
		t.Errorf("without a zone, it may change records of %q", got)
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

// wildcards are the actions of the policies on resources that name neither stack nor prefix. docs/reference/aws.md
// lists them, too.
var wildcards = map[string]map[string][]string{
	"deployer": {
		"*": {
			"acm: RequestCertificate",
			"application-autoscaling: DeleteScalingPolicy DeregisterScalableTarget DescribeScalableTargets " +
				"DescribeScalingPolicies DescribeScheduledActions ListTagsForResource PutScalingPolicy " +
				"RegisterScalableTarget TagResource",
			"cloudformation: GetTemplateSummary ValidateTemplate",
			"cloudwatch: DescribeAlarms GetMetricData",
			"ec2: AllocateAddress AssociateAddress AssociateRouteTable AttachInternetGateway " +
				"AuthorizeSecurityGroupEgress AuthorizeSecurityGroupIngress CreateInternetGateway " +
				"CreateNatGateway CreateRoute CreateRouteTable CreateSecurityGroup CreateSubnet CreateTags " +
				"CreateVpc CreateVpcEndpoint DeleteInternetGateway DeleteNatGateway DeleteRoute DeleteRouteTable " +
				"DeleteSecurityGroup DeleteSubnet DeleteTags DeleteVpc DeleteVpcEndpoints " +
				"DescribeAccountAttributes DescribeAddresses DescribeAvailabilityZones DescribeInstances " +
				"DescribeInternetGateways DescribeNatGateways DescribeNetworkAcls DescribeNetworkInterfaces " +
				"DescribeRegions DescribeRouteTables DescribeSecurityGroupRules DescribeSecurityGroups " +
				"DescribeSubnets DescribeTags DescribeVpcAttribute DescribeVpcEncryptionControls " +
				"DescribeVpcEndpoints DescribeVpcs DescribeVpnGateways DetachInternetGateway DisassociateAddress " +
				"DisassociateRouteTable ModifySubnetAttribute ModifyVpcAttribute ModifyVpcEndpoint " +
				"ReleaseAddress ReplaceRoute ReplaceRouteTableAssociation RevokeSecurityGroupEgress " +
				"RevokeSecurityGroupIngress UpdateSecurityGroupRuleDescriptionsEgress " +
				"UpdateSecurityGroupRuleDescriptionsIngress",
			"ecr: GetAuthorizationToken",
			"ecs: CreateCluster DeregisterTaskDefinition DescribeTaskDefinition RegisterTaskDefinition",
			"elasticloadbalancing: DescribeCapacityReservation DescribeListenerAttributes " +
				"DescribeListenerCertificates DescribeListeners DescribeLoadBalancerAttributes " +
				"DescribeLoadBalancers DescribeRules DescribeTags DescribeTargetGroupAttributes " +
				"DescribeTargetGroups DescribeTargetHealth DescribeTrustStores",
			"kms: CreateKey ListAliases",
			"logs: CreateLogDelivery DeleteLogDelivery DescribeLogGroups DescribeResourcePolicies " +
				"GetLogDelivery ListLogDeliveries UpdateLogDelivery",
			"route53: AssociateVPCWithHostedZone CreateHostedZone ListHostedZonesByName",
			"secretsmanager: GetRandomPassword",
			"servicediscovery: CreatePrivateDnsNamespace GetOperation ListServices ListTagsForResource " +
				"TagResource UntagResource",
			"wafv2: AssociateWebACL DisassociateWebACL GetWebACLForResource",
		},
		"acm:certificate/*": {
			"acm: AddTagsToCertificate DeleteCertificate DescribeCertificate ListTagsForCertificate " +
				"RemoveTagsFromCertificate",
		},
		"apigateway:/restapis/*": {
			"apigateway: DELETE GET PATCH POST PUT SetWebACL",
		},
		"apigateway:/tags/*": {
			"apigateway: DELETE GET POST PUT",
		},
		"cloudformation:stack/aws-sam-cli-managed-default*": {
			"cloudformation: CreateChangeSet DescribeChangeSet DescribeStackEvents DescribeStacks " +
				"ExecuteChangeSet",
		},
		"iam:role/aws-service-role/ecs.amazonaws.com/*": {
			"iam: CreateServiceLinkedRole",
		},
		"iam:role/aws-service-role/ecs.application-autoscaling.amazonaws.com/*": {
			"iam: CreateServiceLinkedRole",
		},
		"iam:role/aws-service-role/elasticloadbalancing.amazonaws.com/*": {
			"iam: CreateServiceLinkedRole",
		},
		"kms:key/*": {
			"kms: CreateAlias CreateGrant Decrypt DeleteAlias DescribeKey DisableKeyRotation " +
				"EnableKeyRotation Encrypt GenerateDataKey GetKeyPolicy GetKeyRotationStatus ListResourceTags " +
				"PutKeyPolicy RevokeGrant ScheduleKeyDeletion TagResource UntagResource UpdateAlias UpdateKeyDescription",
		},
		"route53:change/*": {
			"route53: GetChange",
		},
		"route53:hostedzone/*": {
			"route53: DeleteHostedZone GetHostedZone",
		},
		"s3:aws-sam-cli-managed-default*": {
			"s3: CreateBucket DeleteObject GetBucketLocation GetBucketPolicy GetObject ListBucket PutBucketPolicy " +
				"PutBucketPublicAccessBlock PutBucketTagging PutBucketVersioning PutEncryptionConfiguration " +
				"PutObject",
		},
		"secretsmanager:secret:CertificateHeader-*": {
			"secretsmanager: CreateSecret DeleteSecret DescribeSecret GetSecretValue TagResource " +
				"UntagResource UpdateSecret",
		},
		"servicediscovery:namespace/*": {
			"servicediscovery: CreateService DeleteNamespace GetNamespace UpdatePrivateDnsNamespace",
		},
		"servicediscovery:service/*": {
			"servicediscovery: DeleteService GetService GetServiceAttributes UpdateService",
		},
	},
	"boundary": {
		"*": {
			"ec2: AssignPrivateIpAddresses CreateNetworkInterface DeleteNetworkInterface " +
				"DescribeNetworkInterfaces DescribeSubnets UnassignPrivateIpAddresses",
			"ecr: GetAuthorizationToken",
		},
		"kms:key/*": {
			"kms: Decrypt DescribeKey Encrypt GenerateDataKey ReEncryptFrom ReEncryptTo",
		},
		"secretsmanager:secret:CertificateHeader-*": {
			"secretsmanager: GetSecretValue",
		},
	},
}

// A new permission in the whole account must be a decision.
func TestPoliciesNameWildcards(t *testing.T) {
	own := regexp.MustCompile(`[:/](gateway|clusterpass|Z1$)`)
	account := strings.NewReplacer("arn:aws:", "", ":eu-central-1:111122223333:", ":", "::111122223333:", ":",
		":eu-central-1::", ":", ":::", ":")
	for kind, want := range wildcards {
		got := map[string][]string{}
		for action, resources := range allowed(t, policies(t, kind)) {
			for _, r := range resources {
				if strings.Contains(r, "*") && !own.MatchString(r) {
					got[account.Replace(r)] = append(got[account.Replace(r)], action)
				}
			}
		}
		expanded := map[string][]string{}
		for resource, services := range want {
			for _, s := range services {
				service, actions, _ := strings.Cut(s, ": ")
				for action := range strings.FieldsSeq(actions) {
					expanded[resource] = append(expanded[resource], service+":"+action)
				}
			}
		}
		for resource := range maps.Keys(got) {
			slices.Sort(got[resource])
			got[resource] = slices.Compact(got[resource])
		}
		if !reflect.DeepEqual(got, expanded) {
			t.Errorf("%s: on wildcards it may\n  %q\nwant\n  %q", kind, got, expanded)
		}
	}
}
