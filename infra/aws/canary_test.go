package aws

import (
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/clusterpass/clusterpass/functions/proxy"
	"github.com/clusterpass/clusterpass/infra/aws/canary"
	"github.com/clusterpass/clusterpass/shared/gateway"
)

// shifted are the functions that have aliases. Secrets Manager invokes rotate by its ARN.
var shifted = []string{"Proxy", "Fleet", "Control"}

// deployment returns options of make deploy CANARY=… with parameters of all types.
func deployment() canary.Options {
	return canary.Options{
		Preset: "Linear10PercentEvery1Minute", Provisioned: 2, Time: time.Date(2026, 11, 24, 12, 0, 0, 0, time.UTC),
		Parameters: map[string]string{
			"ClientCA": "-----BEGIN CERTIFICATE-----\na\n-----END CERTIFICATE-----", "LogLevel": "WARN",
			"Authentication": `{"awsIAM": {"gatewayID": "a"}}`, "VpcId": "vpc-1", "ControlConcurrency": "5",
			"PublicSubnetIds": "subnet-1,subnet-2", "PrivateSubnetIds": "subnet-3, subnet-4",
		},
	}
}

// generate writes the template of a deployment, and returns the file's name.
func generate(t *testing.T, template string, o canary.Options) string {
	t.Helper()
	text, err := canary.Template([]byte(template), o)
	if err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(t.TempDir(), "template.yaml")
	if err := os.WriteFile(file, text, 0o600); err != nil {
		t.Fatal(err)
	}
	return file
}

func source(t *testing.T) string {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(root, "template.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

func loadCanary(t *testing.T, o canary.Options) map[string]*template {
	t.Helper()
	all, err := translate(generate(t, source(t), o))
	if err != nil {
		t.Fatal(err)
	}
	return decode(t, all)
}

// A fault of a new version must reach some requests only, and alarms must end its deployment.
func TestCanaryShiftsAndRollsBack(t *testing.T) {
	all := loadCanary(t, deployment())
	resources := all["template.yaml"].Resources
	for _, name := range shifted {
		alias, group := resources[name+"FunctionAliaslive"], resources[name+"FunctionDeploymentGroup"]
		update, _ := alias.UpdatePolicy["CodeDeployLambdaAliasUpdate"].(map[string]any)
		if alias.Type != "AWS::Lambda::Alias" || alias.Properties["Name"] != "live" ||
			render(update["DeploymentGroupName"])[0] != "${"+name+"FunctionDeploymentGroup}" ||
			render(update["ApplicationName"])[0] != "${ServerlessDeploymentApplication}" {
			t.Errorf("the alias of %s is %+v", name, alias)
		}
		if provisioned := get(alias.Properties, "ProvisionedConcurrencyConfig", "ProvisionedConcurrentExecutions"); (name ==
			"Control") != (provisioned == 2.0) {
			t.Errorf("%s has the provisioned concurrency %v", name, provisioned)
		}
		if config := fmt.Sprint(group.Properties["DeploymentConfigName"]); !strings.Contains(config,
			"CodeDeployDefault.Lambda${ConfigName}") || !strings.Contains(config, "Linear10PercentEvery1Minute") {
			t.Errorf("%s is shifted by %s", name, config)
		}
		rollback := group.Properties["AutoRollbackConfiguration"]
		if get(rollback, "Enabled") != true || !slices.Contains(render(get(rollback, "Events")), "DEPLOYMENT_STOP_ON_ALARM") {
			t.Errorf("%s rolls back by %v", name, rollback)
		}
		watched, _ := get(group.Properties, "AlarmConfiguration", "Alarms").([]any)
		var names []string
		for _, alarm := range watched {
			names = append(names, render(get(alarm, "Name"))...)
		}
		want := []string{"${Canary.Outputs." + name + "Crashes}", "${Canary.Outputs." + name + "Failures}"}
		if !slices.Equal(names, want) {
			t.Errorf("%s rolls back by the alarms %q, want %q", name, names, want)
		}
		if role := render(group.Properties["ServiceRoleArn"]); role[0] != "${Canary.Outputs.Role}" {
			t.Errorf("%s is shifted with the role %s", name, role)
		}
	}
	if n := len(of(all, "AWS::Lambda::Alias")); n != len(shifted) {
		t.Errorf("there are %d aliases", n)
	}
	const presets = "from samtranslator.model.preferences.deployment_preference_collection import *; " +
		"print(*sorted(CODEDEPLOY_PREDEFINED_CONFIGURATIONS_LIST))"
	known, err := python("-c", presets)
	if err != nil || !slices.Equal(strings.Fields(string(known)), slices.Sorted(slices.Values(canary.Presets()))) {
		t.Errorf("SAM knows the presets %s (%v)", known, err)
	}
}

// Alarms that count all versions would end a deployment because of faults of the earlier version. They could miss those
// of a new version that gets a tenth of the requests.
func TestCanaryAlarmsWatchNewVersion(t *testing.T) {
	all := loadCanary(t, deployment())
	stack := all["infra/aws/canary.yaml"]
	for _, name := range shifted {
		function := "${Prefix}-" + strings.ToLower(name)
		version := "FunctionName=" + function + " ExecutedVersion=${" + name + "Version}"
		alias := "FunctionName=" + function + " Resource=" + function + ":live ExecutedVersion=${" + name + "Version}"
		var watched []string
		for _, kind := range []string{"Crashes", "Failures"} {
			id := name + kind
			alarm := stack.Resources[id]
			// CodeDeploy starts no deployment while an alarm is on. A name with the version makes a new alarm.
			want := fmt.Sprintf("${Prefix}-canary-%s-${%sVersion}-%s", strings.ToLower(name), name, strings.ToLower(kind))
			if got := render(alarm.Properties["AlarmName"]); got[0] != want {
				t.Errorf("%s has the name %s, want %s", id, got, want)
			}
			if got := render(stack.Outputs[id].Value); got[0] != "${"+id+"}" {
				t.Errorf("the output %s is %s", id, got)
			}
			if alarm.Properties["TreatMissingData"] != "notBreaching" || alarm.Properties["AlarmActions"] != nil {
				t.Errorf("%s is %v", id, alarm.Properties)
			}
			checkFill(t, id, alarm)
			for _, m := range alarm.Properties["Metrics"].([]any) {
				if metric := get(m, "MetricStat", "Metric"); metric != nil {
					watched = append(watched, describeMetric(metric))
				}
			}
		}
		slices.Sort(watched)
		if want := []string{
			"AWS/Lambda Errors " + alias, "AWS/Lambda Invocations " + alias, "AWS/Lambda Invocations " + alias,
			"Clusterpass/${Prefix} " + gateway.AuditRefusedMetric + " " + version,
			"Clusterpass/${Prefix} " + gateway.AuditLostMetric + " " + version,
			"Clusterpass/${Prefix} " + gateway.FailedRequestsMetric + " " + version,
		}; !slices.Equal(watched, want) {
			t.Errorf("%s rolls back by\n  %s\nwant\n  %s", name, strings.Join(watched, "\n  "), strings.Join(want, "\n  "))
		}
		given := render(get(all["template.yaml"].Resources["Canary"].Properties["Parameters"], name+"Version"))
		if !strings.HasPrefix(given[0], "${"+name+"FunctionVersion") || !strings.HasSuffix(given[0], ".Version}") {
			t.Errorf("the new version of %s is %s", name, given)
		}
	}
}

// A load balancer that invokes a function itself would send all requests to a new version at once.
func TestFrontDoorInvokesAliases(t *testing.T) {
	all := loadCanary(t, deployment())
	main := all["template.yaml"]
	for _, name := range shifted {
		function := name + "Function"
		for _, stack := range []string{"LoadBalancer", "RestApi"} {
			given := get(main.Resources[stack].Properties["Parameters"], function)
			if got := render(given); got[0] != "${"+function+"Aliaslive}" {
				t.Errorf("%s invokes %s", stack, got)
			}
		}
		for id, r := range main.Resources {
			if strings.Contains(fmt.Sprint(r.Properties), "Fn::GetAtt:["+function+" Arn]") {
				t.Errorf("%s refers to %s itself", id, function)
			}
		}
		if strings.Contains(fmt.Sprint(main.Outputs), function+" Arn") {
			t.Errorf("an output refers to %s itself", function)
		}
		// Both target groups exist while the load balancer changes from one to the other.
		variables, _ := get(main.Resources[function].Properties, "Environment", "Variables").(map[string]any)
		groups := render(variables["CLUSTERPASS_MTLS_TARGET_GROUP"])
		if len(groups) != 1 {
			t.Fatalf("%s trusts %q", function, groups)
		}
		arn := "arn:${AWS::Partition}:elasticloadbalancing:${AWS::Region}:${AWS::AccountId}:targetgroup/${Prefix}-" +
			strings.ToLower(name)
		trusted := proxy.TargetGroup(groups[0])
		if !trusted.Is(arn+"/1") || !trusted.Is(arn+"1/1") || trusted.Is(arn+"2/1") {
			t.Errorf("%s trusts %q", function, trusted)
		}
	}
	if got := get(main.Resources["LoadBalancer"].Properties["Parameters"], "TargetSuffix"); got != "1" {
		t.Errorf("the names of target groups end with %v", got)
	}
}

// versions returns the logical ids of the published versions. CloudFormation publishes a version for a new id.
func versions(t *testing.T, template string, o canary.Options, codePrefix string) []string {
	t.Helper()
	const script = "import sys; sys.path.insert(0, 'infra/localstack'); from stack import translate; " +
		"t = translate(sys.argv[1], key=lambda f: sys.argv[2] + f); " +
		"print(*sorted(n for n, r in t['Resources'].items() if r['Type'] == 'AWS::Lambda::Version'))"
	out, err := python("-c", script, generate(t, template, o), codePrefix)
	if err != nil {
		t.Fatal(err)
	}
	return strings.Fields(string(out))
}

// A deployment that publishes no version serves earlier code or settings, and succeeds.
func TestEveryDeploymentPublishesVersions(t *testing.T) {
	first, template := deployment(), source(t)
	later := first
	later.Time = later.Time.Add(time.Second)
	was := versions(t, template, first, "")
	if len(was) != len(shifted) || !slices.Equal(was, versions(t, template, first, "")) {
		t.Fatalf("%q, and again %q", was, versions(t, template, first, ""))
	}
	for name, ids := range map[string][]string{
		"later":            versions(t, template, later, ""),
		"other code":       versions(t, template, first, "other"),
		"another template": versions(t, strings.ReplaceAll(template, "    Timeout: 29\n", "    Timeout: 28\n"), first, ""),
	} {
		if len(ids) != len(was) || slices.ContainsFunc(ids, func(id string) bool { return slices.Contains(was, id) }) {
			t.Errorf("%s: the versions are %q, and were %q", name, ids, was)
		}
	}
	// Lambda itself publishes no version of an unchanged function.
	for id, r := range of(loadCanary(t, later), "AWS::Lambda::Function") {
		if got := strings.HasSuffix(fmt.Sprint(r.Properties["Description"]), " Deployed 2026-11-24T12:00:01Z."); got !=
			!strings.HasSuffix(id, "RotateFunction") {
			t.Errorf("%s has the description %v", id, r.Properties["Description"])
		}
	}
}

// Another pipeline may keep the template of a canary, and change a parameter. Without the refusal, aliases would serve
// the earlier settings, such as a withdrawn ClientCA.
func TestCanaryRefusesOtherParameters(t *testing.T) {
	o := deployment()
	tmpl := loadCanary(t, o)["template.yaml"]
	var same []string
	for name, value := range o.Parameters {
		same = append(same, name+"="+strings.ReplaceAll(value, ", ", ","))
	}
	pins := func(g given) []string {
		return slices.DeleteFunc(g.refusals(), func(r string) bool { return !strings.Contains(r, "run make deploy") })
	}
	if got := pins(tmpl.with(same...)); len(got) != 0 {
		t.Errorf("its own parameters are refused by %q", got)
	}
	for name := range tmpl.Parameters {
		got := pins(tmpl.with(append(slices.Clone(same), name+"=other")...))
		if len(got) == 0 || slices.ContainsFunc(got, func(r string) bool { return !strings.HasPrefix(r, name+" ") }) {
			t.Errorf("another %s is refused by %q", name, got)
		}
	}
	for list, want := range map[string]bool{
		"subnet-4,subnet-3": false, "subnet-3": true, "subnet-3,subnet-4,subnet-5": true, "": true,
	} {
		if got := pins(tmpl.with(append(slices.Clone(same), "PrivateSubnetIds="+list)...)); (len(got) != 0) != want {
			t.Errorf("the subnets %q are refused by %q", list, got)
		}
	}
	plain := load(t)["template.yaml"]
	for id, r := range plain.Resources {
		now := tmpl.Resources[id]
		if r.Type != "AWS::Lambda::Function" && id != "LoadBalancer" && id != "RestApi" && !reflect.DeepEqual(r, now) {
			t.Errorf("%s is %+v, and %+v in the plain template", id, now, r)
		}
	}
}

func TestCanaryLint(t *testing.T) {
	if testing.Short() {
		t.Skip("slow: make test runs it")
	}
	all, err := translate(generate(t, source(t), deployment()))
	if err != nil {
		t.Fatal(err)
	}
	lint(t, all)
}

// CodeDeploy needs rights of the deployer and of a role. Installations without aliases must not have them.
func TestCanaryPolicies(t *testing.T) {
	for _, kind := range []string{"deployer", "boundary"} {
		for action := range allowed(t, policies(t, kind)) {
			if strings.HasPrefix(action, "codedeploy:") || strings.HasSuffix(action, "Alias") && action != "kms:CreateAlias" &&
				action != "kms:UpdateAlias" && action != "kms:DeleteAlias" || action == "lambda:PublishVersion" {
				t.Errorf("without --canary, %s may %s", kind, action)
			}
		}
	}
	for action, resources := range allowed(t, policies(t, "deployer", "--canary")) {
		for _, r := range resources {
			if strings.HasPrefix(action, "codedeploy:") && !strings.Contains(r, ":gateway-") &&
				!strings.HasSuffix(r, ":deploymentconfig:CodeDeployDefault.Lambda*") {
				t.Errorf("the deployer may %s on %s", action, r)
			}
		}
	}
}

// The role of CodeDeploy may move aliases, and its boundary allows that.
func TestCanaryRole(t *testing.T) {
	boundary := allowed(t, policies(t, "boundary", "--canary"))
	role := loadCanary(t, deployment())["infra/aws/canary.yaml"].Resources["Role"]
	document := get(role.Properties["Policies"].([]any)[0], "PolicyDocument")
	var actions []string
	for _, s := range statements(t, document) {
		for _, action := range s.actions {
			actions = append(actions, action)
			if len(boundary[action]) == 0 {
				t.Errorf("the boundary denies %s, which CodeDeploy needs", action)
			}
			for _, r := range s.resources {
				if r != "*" && !strings.Contains(r, ":function:${Prefix}-") || r == "*" && action != "cloudwatch:DescribeAlarms" {
					t.Errorf("CodeDeploy may %s on %s", action, r)
				}
			}
		}
	}
	slices.Sort(actions)
	if want := []string{
		"cloudwatch:DescribeAlarms", "lambda:GetAlias", "lambda:GetProvisionedConcurrencyConfig", "lambda:UpdateAlias",
	}; !slices.Equal(actions, want) {
		t.Errorf("CodeDeploy may %q, want %q", actions, want)
	}
	if got := render(role.Properties["PermissionsBoundary"]); len(got) != 1 || got[0] != "${PermissionsBoundary}" {
		t.Errorf("its role has the boundary %q", got)
	}
}

// TestStackWithAliases creates the stack in moto. In CloudFormation, moto has no CodeDeploy, gives target groups no
// targets and updates nested stacks by deleting them. So the test checks the creation of aliases alone.
func TestStackWithAliases(t *testing.T) {
	if testing.Short() {
		t.Skip("slow: make test runs it")
	}
	a := newAccount(t)
	o := deployment()
	ca := clientCA(t)
	o.Parameters = map[string]string{"ClientCA": ca}
	t.Setenv("TEMPLATE", generate(t, source(t), o))
	a.deploy(image, "DomainName=clusterpass.example.com", "CertificateArn="+a.certificate(), "ClientCA="+ca,
		"MutualTLS=passthrough")
	for _, id := range shifted {
		name := strings.ToLower(id)
		fn := "clusterpass-" + name
		var alias struct{ AliasArn, FunctionVersion string }
		a.json(&alias, "lambda", "GET", "/2015-03-31/functions/"+fn+"/aliases/live", "", "")
		if !strings.HasSuffix(alias.AliasArn, ":"+fn+":live") || alias.FunctionVersion != "1" {
			t.Errorf("%s has the alias %+v", name, alias)
		}
		group := a.elb("TargetGroupArn", "Action", "DescribeTargetGroups", "Names.member.1", fn+"1")
		if len(group) != 1 {
			t.Fatalf("%s has the target groups %q", name, group)
		}
		env := a.function(fn).Environment.Variables
		configure(t, name, env)
		if trusted := proxy.TargetGroup(env["CLUSTERPASS_MTLS_TARGET_GROUP"]); !trusted.Is(group[0]) {
			t.Errorf("%s trusts %s, and its target group is %s", name, trusted, group)
		}
	}
}
