package main

import (
	"bytes"
	"fmt"
	"strings"

	"sigs.k8s.io/yaml"

	"github.com/clusterpass/clusterpass/shared/route"
)

// Limits of an ALB: evaluations in one rule, and characters in one expression.
const (
	maxEvaluations = 5
	maxExpression  = 128
)

const head = `# Generated from shared/route's Table by make aws-rules; a test compares them. Do not edit.
`

type m = map[string]any

// Template returns a CloudFormation template with a listener rule for each row of the table except the last. The last
// one matches everything and is the listener's default. Each backend's target group is a parameter.
func Template() ([]byte, error) {
	parameters := m{"Listener": m{"Type": "String", "Description": "ARN of the listener."}}
	resources := m{}
	for i, row := range route.Table[:len(route.Table)-1] {
		parameters[targetGroup(row.To)] = m{
			"Type": "String", "Description": "ARN of the target group of " + string(row.To) + ".",
		}
		conditions, err := conditions(row)
		if err != nil {
			return nil, fmt.Errorf("row %s: %w", row.Name, err)
		}
		resources[resourceName(row.Name)] = m{
			"Type": "AWS::ElasticLoadBalancingV2::ListenerRule",
			"Properties": m{
				"ListenerArn": m{"Ref": "Listener"},
				"Priority":    (i + 1) * 10,
				"Conditions":  conditions,
				"Actions":     []m{{"Type": "forward", "TargetGroupArn": m{"Ref": targetGroup(row.To)}}},
			},
		}
	}
	if last := route.Table[len(route.Table)-1]; last.Path+last.Query+last.Header != "" {
		return nil, fmt.Errorf("the last row, %s, does not match everything", last.Name)
	}
	text, err := yaml.Marshal(m{
		"AWSTemplateFormatVersion": "2010-09-09",
		"Description":              "Clusterpass: rules of the load balancer's listener.",
		"Parameters":               parameters,
		"Resources":                resources,
		// Resources that use this output wait for the rules. ECS refuses a target group without a load balancer.
		"Outputs": m{"BridgeTargets": m{"Value": m{"Ref": targetGroup(route.ToBridge)}}},
	})
	return append([]byte(head), bytes.TrimLeft(text, "\n")...), err
}

func conditions(row route.Rule) ([]m, error) {
	var cs []m
	if row.Path != "" {
		cs = append(cs, m{"Field": "path-pattern", "PathPatternConfig": m{"RegexValues": []string{anchored(row.Path)}}})
	}
	if row.Query != "" { // an ALB has no expressions here; "*" also matches an empty value
		cs = append(cs, m{"Field": "query-string", "QueryStringConfig": m{"Values": []m{{"Key": row.Query, "Value": "*"}}}})
	}
	if row.Header != "" {
		config := m{"HttpHeaderName": row.Header}
		if row.Value == "" {
			config["Values"] = []string{"*"}
		} else {
			config["RegexValues"] = []string{anchored(row.Value)}
		}
		cs = append(cs, m{"Field": "http-header", "HttpHeaderConfig": config})
	}
	if len(cs) == 0 || len(cs) > maxEvaluations {
		return nil, fmt.Errorf("%d conditions, an ALB allows 1 to %d", len(cs), maxEvaluations)
	}
	for _, expr := range []string{row.Path, row.Value} {
		if n := len(anchored(expr)); n > maxExpression {
			return nil, fmt.Errorf("an expression of %d characters, an ALB allows %d", n, maxExpression)
		}
	}
	return cs, nil
}

func anchored(expr string) string { return "^(" + expr + ")$" }

func targetGroup(b route.Backend) string { return title(string(b)) + "TargetGroup" }

func resourceName(name string) string {
	var b strings.Builder
	for part := range strings.SplitSeq(name, "-") {
		b.WriteString(title(part))
	}
	return b.String()
}

func title(s string) string { return strings.ToUpper(s[:1]) + s[1:] }
