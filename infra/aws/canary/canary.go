// Package canary generates the template of make deploy CANARY=…: template.yaml with aliases that CodeDeploy moves.
//
// Invariants:
//   - Each generated template publishes a version of each function, because its Description has the time.
//   - CloudFormation refuses a generated template with any parameter other than those that it was generated for. An
//     update with a changed parameter and the same template would publish no version, and serve earlier settings.
//   - The load balancer and the API invoke aliases only. The function rotate has none, because Secrets Manager invokes
//     it by its ARN.
//
// docs/decisions/0017 gives the reasons. Template is the entry point.
package canary

import (
	"bytes"
	"errors"
	"fmt"
	"iter"
	"slices"
	"strconv"
	"strings"
	"time"

	"go.yaml.in/yaml/v3"
)

// Options describe a deployment.
type Options struct {
	Preset      string            // one of Presets
	Provisioned int               // provisioned concurrency of control. 0 means none.
	Parameters  map[string]string // all parameters whose values are not the template's defaults
	Time        time.Time
}

// Presets returns the deployment configurations of CodeDeploy that SAM knows.
func Presets() []string {
	return []string{
		"AllAtOnce", "Canary10Percent5Minutes", "Canary10Percent10Minutes", "Canary10Percent15Minutes",
		"Canary10Percent30Minutes", "Linear10PercentEvery1Minute", "Linear10PercentEvery2Minutes",
		"Linear10PercentEvery3Minutes", "Linear10PercentEvery10Minutes",
	}
}

const (
	functionProperties = `
AutoPublishAlias: live
AutoPublishAliasAllProperties: true
DeploymentPreference:
  Type: %[1]s
  Role: !GetAtt Canary.Outputs.Role
  Alarms: [!GetAtt Canary.Outputs.%[2]sCrashes, !GetAtt Canary.Outputs.%[2]sFailures]
`
	controlProperties = `
ProvisionedConcurrencyConfig: {ProvisionedConcurrentExecutions: %d}
`
	canaryStack = `
Canary:
  Type: AWS::CloudFormation::Stack
  Properties:
    TemplateURL: infra/aws/canary.yaml
    Parameters:
      Prefix: !Ref Prefix
      PermissionsBoundary: !Ref PermissionsBoundary
      ProxyVersion: !GetAtt ProxyFunction.Version.Version
      FleetVersion: !GetAtt FleetFunction.Version.Version
      ControlVersion: !GetAtt ControlFunction.Version.Version
`
	headComment = "Generated from template.yaml by infra/aws/canary for one deployment. Do not edit.\n"
)

// aliasTargetSuffix ends the names of the target groups of aliases. Names of target groups have at most 32 characters.
const aliasTargetSuffix = "1"

// Template returns template.yaml with aliases. It fails if a parameter has no value.
func Template(template []byte, o Options) ([]byte, error) {
	if !slices.Contains(Presets(), o.Preset) {
		return nil, fmt.Errorf("CANARY=%s is not a preset of CodeDeploy; set one of %s",
			o.Preset, strings.Join(Presets(), ", "))
	}
	var doc yaml.Node
	if err := yaml.Unmarshal(template, &doc); err != nil {
		return nil, fmt.Errorf("template.yaml: %w", err)
	}
	values, err := parameterValues(&doc, o.Parameters)
	if err != nil {
		return nil, err
	}
	if err := checkProvisioned(o.Provisioned, values["ControlConcurrency"]); err != nil {
		return nil, err
	}
	e := &editor{doc: &doc}
	for _, name := range []string{"proxy", "fleet", "control"} {
		e.publish(name, o)
	}
	e.add(canaryStack, "Resources")
	e.changeText(func(string) string { return aliasTargetSuffix }, "Resources", "LoadBalancer", "Properties",
		"Parameters", "TargetSuffix")
	e.pin(values)
	if err := errors.Join(e.errs...); err != nil {
		return nil, fmt.Errorf("template.yaml does not fit infra/aws/canary: %w", err)
	}
	doc.HeadComment = headComment
	var out bytes.Buffer
	encoder := yaml.NewEncoder(&out)
	encoder.SetIndent(2)
	err = errors.Join(encoder.Encode(&doc), encoder.Close())
	return out.Bytes(), err
}

// parameterValues returns the value of each parameter of the template.
func parameterValues(doc *yaml.Node, given map[string]string) (map[string]string, error) {
	var template struct {
		Parameters map[string]struct {
			Default *string `yaml:"Default"`
		} `yaml:"Parameters"`
	}
	if err := doc.Decode(&template); err != nil {
		return nil, fmt.Errorf("template.yaml: %w", err)
	}
	all := map[string]string{}
	for name, parameter := range template.Parameters {
		value, ok := given[name]
		switch {
		case ok:
			all[name] = value
		case parameter.Default != nil:
			all[name] = *parameter.Default
		default:
			return nil, fmt.Errorf("samconfig.toml has no %s; add it to parameter_overrides", name)
		}
	}
	return all, nil
}

func checkProvisioned(provisioned int, reserved string) error {
	if provisioned < 0 {
		return fmt.Errorf("PROVISIONED=%d is negative; set a number of environments, or 0 for none", provisioned)
	}
	if n, err := strconv.Atoi(reserved); err == nil && n > 0 && provisioned > n {
		return fmt.Errorf("PROVISIONED=%d is more than ControlConcurrency=%d; raise ControlConcurrency in samconfig.toml",
			provisioned, n)
	}
	return nil
}

// editor changes a template. It collects errors.
type editor struct {
	doc  *yaml.Node
	errs []error
}

// find returns the value at a path, or nil and an error in errs.
func (e *editor) find(path ...string) *yaml.Node {
	n := e.doc.Content[0]
	for _, key := range path {
		if n = value(n, key); n == nil {
			e.errs = append(e.errs, fmt.Errorf("%s is missing", strings.Join(path, ".")))
			return nil
		}
	}
	return n
}

func value(of *yaml.Node, key string) *yaml.Node {
	if of.Kind == yaml.MappingNode {
		for i := 0; i < len(of.Content); i += 2 {
			if of.Content[i].Value == key {
				return of.Content[i+1]
			}
		}
	}
	return nil
}

// add appends the keys of a text to the mapping at a path.
func (e *editor) add(text string, path ...string) {
	var added yaml.Node
	if err := yaml.Unmarshal([]byte(text), &added); err != nil {
		e.errs = append(e.errs, err)
	} else if n := e.find(path...); n != nil {
		n.Content = append(n.Content, added.Content[0].Content...)
	}
}

// changeText replaces the text at a path.
func (e *editor) changeText(change func(string) string, path ...string) {
	if n := e.find(path...); n != nil {
		n.Value = change(n.Value)
	}
}

// publish gives a function an alias, and lets everything else refer to the alias.
func (e *editor) publish(name string, o Options) {
	title := strings.ToUpper(name[:1]) + name[1:]
	id := title + "Function"
	e.add(fmt.Sprintf(functionProperties, o.Preset, title), "Resources", id, "Properties")
	if name == "control" && o.Provisioned > 0 {
		e.add(fmt.Sprintf(controlProperties, o.Provisioned), "Resources", id, "Properties")
	}
	// Lambda publishes a version only of a changed function. The time changes it, also after a rollback.
	e.changeText(func(v string) string { return v + " Deployed " + o.Time.UTC().Format(time.RFC3339) + "." },
		"Resources", id, "Properties", "Description")
	references := 0
	for n := range nodes(e.doc) {
		switch {
		case n.Tag == "!GetAtt" && n.Value == id+".Arn":
			n.Tag, n.Value = "!Ref", id+".Alias"
			references++
		// While the load balancer changes, requests come from the target groups of both templates.
		case n.Tag == "!Sub" && strings.HasSuffix(n.Value, ":targetgroup/${Prefix}-"+name+"/*"):
			n.Value += "," + strings.TrimSuffix(n.Value, "/*") + aliasTargetSuffix + "/*"
		case refersTo(n, id):
			e.errs = append(e.errs, fmt.Errorf("line %d refers to %s instead of its alias; write !GetAtt %[2]s.Arn",
				n.Line, id))
		}
	}
	if references == 0 {
		e.errs = append(e.errs, fmt.Errorf("nothing refers to %s.Arn", id))
	}
}

// refersTo reports whether a node refers to a function in a form that publish does not replace with its alias.
func refersTo(n *yaml.Node, id string) bool {
	switch n.Kind {
	case yaml.SequenceNode:
		return len(n.Content) == 2 && n.Content[0].Value == id && n.Content[1].Value == "Arn"
	case yaml.MappingNode:
		ref := value(n, "Ref")
		return ref != nil && ref.Value == id
	}
	return n.Tag == "!Ref" && n.Value == id || n.Value == id+".Arn" ||
		strings.Contains(n.Value, "${"+id+"}") || strings.Contains(n.Value, "${"+id+".Arn}")
}

// nodes yields a node and all nodes below it.
func nodes(n *yaml.Node) iter.Seq[*yaml.Node] {
	return func(yield func(*yaml.Node) bool) {
		var visit func(*yaml.Node) bool
		visit = func(n *yaml.Node) bool {
			return yield(n) && !slices.ContainsFunc(n.Content, func(child *yaml.Node) bool { return !visit(child) })
		}
		visit(n)
	}
}

// mapping is a part of a template, as the YAML encoder reads it.
type mapping = map[string]any

// pin adds a rule for each parameter, which refuses other values.
func (e *editor) pin(values map[string]string) {
	parameters, rules := e.find("Parameters"), e.find("Rules")
	if parameters == nil || rules == nil {
		return
	}
	for i := 0; i < len(parameters.Content); i += 2 {
		name := parameters.Content[i].Value
		asserts := []mapping{{"Fn::Equals": []any{mapping{"Ref": name}, values[name]}}}
		switch kind := value(parameters.Content[i+1], "Type"); {
		case kind == nil || kind.Value != "CommaDelimitedList":
		case values[name] == "": // whose list is empty, or has one empty member
			asserts = []mapping{{"Fn::EachMemberEquals": []any{mapping{"Ref": name}, ""}}}
		default:
			list := strings.Split(values[name], ",")
			for i := range list {
				list[i] = strings.TrimSpace(list[i]) // as CloudFormation does
			}
			asserts = []mapping{
				{"Fn::EachMemberIn": []any{mapping{"Ref": name}, list}},
				{"Fn::EachMemberIn": []any{list, mapping{"Ref": name}}},
			}
		}
		var assertions []mapping
		for _, assert := range asserts {
			assertions = append(assertions, mapping{"Assert": assert, "AssertDescription": name +
				" differs from its value when this template was generated. Set it in samconfig.toml and run make deploy."})
		}
		var rule yaml.Node
		if err := rule.Encode(mapping{"Pin" + name: mapping{"Assertions": assertions}}); err != nil {
			e.errs = append(e.errs, err)
			return
		}
		rules.Content = append(rules.Content, rule.Content...)
	}
}
