package aws

import (
	"maps"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"testing"
)

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
