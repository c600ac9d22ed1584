package aws

import (
	"fmt"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// An invalid combination of parameters must fail before CloudFormation creates anything.
func TestRules(t *testing.T) {
	tmpl := load(t)["template.yaml"]
	text := fmt.Sprint(tmpl.Rules)
	for _, used := range regexp.MustCompile(`Fn::\w+`).FindAllString(text, -1) {
		if !slices.Contains(
			[]string{
				"Fn::And", "Fn::Contains", "Fn::EachMemberEquals", "Fn::EachMemberIn", "Fn::Equals", "Fn::Not", "Fn::Or",
				"Fn::RefAll", "Fn::ValueOf", "Fn::ValueOfAll",
			}, used) {
			t.Errorf("a rule uses %s, which CloudFormation refuses in rules", used)
		}
	}
	const domain = "DomainName=clusterpass.example.com"
	const certificate = "CertificateArn=arn:aws:acm:eu-central-1:111122223333:certificate/0-1"
	const ownBridge = "BridgeUrl=https://bridge.example.com"
	for _, tt := range []struct {
		parameters []string
		want       string // part of the refusal; "" for none
	}{
		{[]string{domain, certificate, image}, ""},
		{[]string{domain, image, "HostedZoneId=Z1"}, ""},
		{[]string{"FrontDoor=api", domain, certificate, image}, ""},
		{[]string{"FrontDoor=api", "BridgeUrl=https://bridge.example.com"}, ""},
		{[]string{domain, certificate, image, "NatGateways=0", "BridgeMinTasks=1", "BridgeSpot=all"}, ""},
		{[]string{domain, certificate, image, "VpcId=vpc-1", "PublicSubnetIds=subnet-1,subnet-2", "Scheme=internal"}, ""},
		{[]string{domain, certificate, image, "MutualTLS=passthrough"}, ""},
		{[]string{"FrontDoor=api", domain, certificate, image, "AllowedCidr=10.0.0.0/8"}, "FrontDoor alb"},
		{
			[]string{
				"FrontDoor=api", domain, certificate, image, "VpcId=vpc-1", "PublicSubnetIds=subnet-1,subnet-2",
				"Scheme=internal",
			}, "FrontDoor alb",
		},
		{[]string{domain, certificate, image, "AuditLogGroup=own"}, ""},
		{[]string{domain, certificate, image, "AuditLogGroup=own", "Audit="}, "Set Audit to -"},
		{[]string{domain, certificate, image, "Audit="}, ""},
		{[]string{domain, certificate, image, "RecordingDays=30"}, ""},
		{
			[]string{"FrontDoor=api", "BridgeUrl=https://bridge.example.com", "RecordingDays=30"}, "CLUSTERPASS_RECORDINGS",
		},
		{[]string{domain, certificate}, "BridgeDigest"},
		{[]string{image}, "DomainName"},
		{[]string{certificate, image}, "DomainName"},
		{[]string{domain, image}, "CertificateArn, or HostedZoneId"},
		{[]string{domain, certificate, image, "BridgeUrl=https://bridge.example.com"}, "FrontDoor api"},
		{[]string{domain, certificate, image, "MutualTLS=verify"}, "TrustStoreArn"},
		{[]string{domain, certificate, image, "Scheme=internal"}, "VpcId"},
		{[]string{domain, certificate, image, "VpcId=vpc-1"}, "PublicSubnetIds"},
		{[]string{"FrontDoor=api", ownBridge, "VpcId=vpc-1", "PublicSubnetIds=subnet-1,subnet-2"}, "BridgeUrl"},
		{[]string{"FrontDoor=api", ownBridge, "PrivateSubnetIds=subnet-1,subnet-2"}, "VpcId"},
		{[]string{"FrontDoor=api", ownBridge, "ZoneA=us-east-1a", "ZoneB=us-east-1b"}, "BridgeUrl"},
		{[]string{domain, certificate, image, "PublicSubnetIds=subnet-1,subnet-2"}, "VpcId"},
		{[]string{domain, certificate, image, "ZoneA=us-east-1a", "ZoneB=us-gov-east-1b"}, ""},
		{[]string{domain, certificate, image, "ZoneA=us-east-1a"}, "two zones"},
		{[]string{domain, certificate, image, "ZoneB=us-east-1a"}, "two zones"},
		{[]string{domain, certificate, image, "ZoneA=us-east-1a", "ZoneB=us-east-1a"}, "two zones"},
		{
			[]string{
				domain, certificate, image, "VpcId=vpc-1", "PublicSubnetIds=subnet-1,subnet-2", "ZoneA=us-east-1a",
				"ZoneB=us-east-1b",
			}, "new network",
		},
		{
			[]string{
				domain, certificate, "MutualTLS=passthrough", "FrontDoor=api", "BridgeUrl=https://bridge.example.com",
			},
			"MutualTLS",
		},
	} {
		got := strings.Join(tmpl.with(tt.parameters...).refusals(), "; ")
		if (tt.want == "") != (got == "") || !strings.Contains(got, tt.want) {
			t.Errorf("%v: refused by %q, want %q", tt.parameters, got, tt.want)
		}
	}
}
