package aws

import (
	"bytes"
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
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
