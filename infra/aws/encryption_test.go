package aws

import (
	"fmt"
	"slices"
	"strings"
	"testing"
)

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
