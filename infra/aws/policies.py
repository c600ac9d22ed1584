"""Writes IAM policies for the template, from its translation to CloudFormation.

    policies.py deployer STACK PREFIX ACCOUNT REGION --boundary ARN   policies of a principal that deploys, updates and deletes the stack
    policies.py boundary STACK PREFIX ACCOUNT REGION                  a permissions boundary for all roles of the stack

Each writes policy documents, one a file, and prints the files' names: boundary-STACK.json, or deployer-STACK-1.json and so on. A document
has at most 6,144 characters, the limit of a managed policy. A principal may have ten policies, and a role has one boundary.
--help lists options that limit the policies to resources whose names the template does not choose.
"""

import argparse
import json
import re
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "infra" / "localstack"))
from stack import nested, translate  # noqa: E402

LIMIT = 6144

ROLES = "arn:{p}:iam::{a}:role/{s}-*"
APIS = "arn:{p}:apigateway:{r}::/restapis arn:{p}:apigateway:{r}::/restapis/*"
STACKS = "arn:{p}:cloudformation:{r}:{a}:stack/{s}/* arn:{p}:cloudformation:{r}:{a}:stack/{s}-*"
# The names of buckets are in lower case.
BUCKETS = "arn:{p}:s3:::{s_lower}-*"

# The API calls of CloudFormation for a type of resource, with their ARNs and their condition. A type may have several rows.
# A row for a hosted zone is omitted without the option --zone.
CALLS = {
    "AWS::ApiGateway::RestApi": [("apigateway:GET POST PUT PATCH DELETE", APIS)],
    "AWS::ApiGateway::Deployment": [],  # part of the RestApi, as a stage is
    "AWS::ApiGateway::Stage": [("apigateway:GET PUT POST DELETE", "arn:{p}:apigateway:{r}::/tags/*")],
    "AWS::ApplicationAutoScaling::ScalableTarget": [
        (
            "application-autoscaling:RegisterScalableTarget DeregisterScalableTarget DescribeScalableTargets DescribeScheduledActions "
            "ListTagsForResource TagResource",
            "*",
        ),
        ("iam:CreateServiceLinkedRole", "arn:{p}:iam::{a}:role/aws-service-role/ecs.application-autoscaling.amazonaws.com/*"),
    ],
    "AWS::ApplicationAutoScaling::ScalingPolicy": [
        ("application-autoscaling:PutScalingPolicy DeleteScalingPolicy DescribeScalingPolicies", "*"),
        ("cloudwatch:GetMetricData", "*"),
        # Target tracking creates and deletes its alarms with the rights of the deployer.
        ("cloudwatch:PutMetricAlarm DeleteAlarms", "arn:{p}:cloudwatch:{r}:{a}:alarm:TargetTracking-service/{x}/*"),
    ],
    "AWS::CertificateManager::Certificate": [
        ("acm:RequestCertificate", "*"),
        (
            "acm:DescribeCertificate DeleteCertificate AddTagsToCertificate RemoveTagsFromCertificate ListTagsForCertificate",
            "arn:{p}:acm:{r}:{a}:certificate/*",
        ),
    ],
    "AWS::CloudFormation::Stack": [
        (
            "cloudformation:CreateStack UpdateStack DeleteStack CreateChangeSet ExecuteChangeSet DeleteChangeSet DescribeChangeSet "
            "DescribeStacks DescribeStackEvents DescribeStackResource DescribeStackResources ListStackResources GetTemplate "
            "ContinueUpdateRollback TagResource UntagResource",
            STACKS,
        ),
        ("cloudformation:CreateChangeSet", "arn:{p}:cloudformation:{r}:aws:transform/Serverless-2016-10-31"),
        ("cloudformation:GetTemplateSummary ValidateTemplate", "*"),
        # The stack with the bucket of sam deploy --resolve-s3, and that bucket.
        (
            "cloudformation:CreateChangeSet DescribeChangeSet ExecuteChangeSet DescribeStacks DescribeStackEvents",
            "arn:{p}:cloudformation:{r}:{a}:stack/aws-sam-cli-managed-default*",
        ),
        (
            "s3:CreateBucket GetBucketLocation GetBucketPolicy ListBucket PutBucketPolicy PutBucketPublicAccessBlock PutBucketTagging "
            "PutBucketVersioning PutEncryptionConfiguration GetObject PutObject DeleteObject",
            "arn:{p}:s3:::aws-sam-cli-managed-default*",
        ),
    ],
    "AWS::CloudWatch::Alarm": [
        ("cloudwatch:PutMetricAlarm DeleteAlarms TagResource UntagResource ListTagsForResource", "arn:{p}:cloudwatch:{r}:{a}:alarm:{x}-*"),
        ("cloudwatch:DescribeAlarms", "*"),
    ],
    "AWS::CloudWatch::Dashboard": [
        (
            "cloudwatch:PutDashboard GetDashboard DeleteDashboards TagResource UntagResource ListTagsForResource",
            "arn:{p}:cloudwatch::{a}:dashboard/{x}",
        )
    ],
    "AWS::CodeDeploy::Application": [
        (
            "codedeploy:CreateApplication GetApplication UpdateApplication DeleteApplication ListTagsForResource TagResource UntagResource",
            "arn:{p}:codedeploy:{r}:{a}:application:{s}-*",
        ),
    ],
    "AWS::CodeDeploy::DeploymentGroup": [
        (
            "codedeploy:CreateDeploymentGroup GetDeploymentGroup UpdateDeploymentGroup DeleteDeploymentGroup ListTagsForResource TagResource "
            "UntagResource",
            "arn:{p}:codedeploy:{r}:{a}:deploymentgroup:{s}-*",
        ),
    ],
    "AWS::DynamoDB::Table": [
        (
            "dynamodb:CreateTable DescribeTable UpdateTable DeleteTable DescribeTimeToLive UpdateTimeToLive DescribeContinuousBackups "
            "UpdateContinuousBackups DescribeContributorInsights DescribeKinesisStreamingDestination GetResourcePolicy ListTagsOfResource "
            "TagResource UntagResource",
            "arn:{p}:dynamodb:{r}:{a}:table/{x}-objects",
        )
    ],
    "AWS::EC2::EIP": [("ec2:AllocateAddress ReleaseAddress DescribeAddresses AssociateAddress DisassociateAddress", "*")],
    "AWS::EC2::InternetGateway": [("ec2:CreateInternetGateway DeleteInternetGateway DescribeInternetGateways", "*")],
    "AWS::EC2::NatGateway": [("ec2:CreateNatGateway DeleteNatGateway DescribeNatGateways", "*")],
    "AWS::EC2::Route": [("ec2:CreateRoute DeleteRoute ReplaceRoute", "*")],
    "AWS::EC2::RouteTable": [("ec2:CreateRouteTable DeleteRouteTable DescribeRouteTables", "*")],
    "AWS::EC2::SecurityGroup": [
        (
            "ec2:CreateSecurityGroup DeleteSecurityGroup DescribeSecurityGroups AuthorizeSecurityGroupEgress RevokeSecurityGroupEgress "
            "UpdateSecurityGroupRuleDescriptionsEgress DescribeSecurityGroupRules DescribeInstances",
            "*",
        )
    ],
    "AWS::EC2::SecurityGroupIngress": [
        ("ec2:AuthorizeSecurityGroupIngress RevokeSecurityGroupIngress UpdateSecurityGroupRuleDescriptionsIngress", "*")
    ],
    "AWS::EC2::Subnet": [("ec2:CreateSubnet DeleteSubnet DescribeSubnets ModifySubnetAttribute DescribeNetworkAcls", "*")],
    "AWS::EC2::SubnetRouteTableAssociation": [("ec2:AssociateRouteTable DisassociateRouteTable ReplaceRouteTableAssociation", "*")],
    "AWS::EC2::VPC": [
        (
            "ec2:CreateVpc DeleteVpc DescribeVpcs DescribeVpcAttribute ModifyVpcAttribute DescribeAvailabilityZones "
            "DescribeNetworkInterfaces DescribeNetworkAcls DescribeVpcEncryptionControls CreateTags DeleteTags DescribeTags",
            "*",
        )
    ],
    "AWS::EC2::VPCEndpoint": [("ec2:CreateVpcEndpoint DeleteVpcEndpoints DescribeVpcEndpoints ModifyVpcEndpoint", "*")],
    "AWS::EC2::VPCGatewayAttachment": [("ec2:AttachInternetGateway DetachInternetGateway DescribeInternetGateways DescribeVpnGateways", "*")],
    "AWS::ECS::Cluster": [
        ("ecs:CreateCluster", "*"),
        (
            "ecs:DeleteCluster DescribeClusters UpdateCluster PutClusterCapacityProviders ListTagsForResource TagResource UntagResource",
            "arn:{p}:ecs:{r}:{a}:cluster/{x}",
        ),
        ("iam:CreateServiceLinkedRole", "arn:{p}:iam::{a}:role/aws-service-role/ecs.amazonaws.com/*"),
        ("iam:GetRole", "arn:{p}:iam::{a}:role/aws-service-role/ecs.amazonaws.com/AWSServiceRoleForECS"),
    ],
    "AWS::ECS::Service": [
        (
            "ecs:CreateService UpdateService DeleteService DescribeServices ListServiceDeployments ListTagsForResource TagResource UntagResource",
            "arn:{p}:ecs:{r}:{a}:service/{x}/*",
        ),
        ("ecs:DescribeServiceDeployments StopServiceDeployment", "arn:{p}:ecs:{r}:{a}:service-deployment/{x}/*"),
        # make image and make deploy
        ("ecr:GetAuthorizationToken", "*"),
        (
            "ecr:CreateRepository DescribeRepositories DescribeImages BatchCheckLayerAvailability BatchGetImage GetDownloadUrlForLayer "
            "InitiateLayerUpload UploadLayerPart CompleteLayerUpload PutImage",
            "arn:{p}:ecr:{r}:{a}:repository/{repository}",
        ),
    ],
    "AWS::ECS::TaskDefinition": [
        ("ecs:RegisterTaskDefinition DeregisterTaskDefinition DescribeTaskDefinition", "*"),
        ("ecs:ListTagsForResource TagResource UntagResource", "arn:{p}:ecs:{r}:{a}:task-definition/{x}-bridge:*"),
    ],
    "AWS::ElasticLoadBalancingV2::LoadBalancer": [
        (
            "elasticloadbalancing:DescribeLoadBalancers DescribeLoadBalancerAttributes DescribeListeners DescribeListenerAttributes "
            "DescribeListenerCertificates DescribeRules DescribeTags DescribeTargetGroups DescribeTargetGroupAttributes DescribeTargetHealth "
            "DescribeTrustStores DescribeCapacityReservation",
            "*",
        ),
        (
            "elasticloadbalancing:CreateLoadBalancer DeleteLoadBalancer ModifyLoadBalancerAttributes SetSecurityGroups SetSubnets "
            "SetIpAddressType AddTags RemoveTags",
            "arn:{p}:elasticloadbalancing:{r}:{a}:loadbalancer/app/{x}/*",
        ),
        # CreateLoadBalancer reads the network with the rights of the deployer.
        ("ec2:DescribeAccountAttributes DescribeInternetGateways DescribeSecurityGroups DescribeSubnets DescribeVpcs", "*"),
        ("iam:CreateServiceLinkedRole", "arn:{p}:iam::{a}:role/aws-service-role/elasticloadbalancing.amazonaws.com/*"),
    ],
    "AWS::ElasticLoadBalancingV2::Listener": [
        ("elasticloadbalancing:CreateListener", "arn:{p}:elasticloadbalancing:{r}:{a}:loadbalancer/app/{x}/*"),
        (
            "elasticloadbalancing:CreateRule DeleteListener ModifyListener ModifyListenerAttributes AddTags RemoveTags",
            "arn:{p}:elasticloadbalancing:{r}:{a}:listener/app/{x}/*",
        ),
    ],
    "AWS::ElasticLoadBalancingV2::ListenerRule": [
        (
            "elasticloadbalancing:DeleteRule ModifyRule AddTags RemoveTags",
            "arn:{p}:elasticloadbalancing:{r}:{a}:listener-rule/app/{x}/*",
        ),
        ("elasticloadbalancing:SetRulePriorities", "arn:{p}:elasticloadbalancing:{r}:{a}:listener-rule/app/{x}/*"),
    ],
    "AWS::ElasticLoadBalancingV2::TargetGroup": [
        (
            "elasticloadbalancing:CreateTargetGroup DeleteTargetGroup ModifyTargetGroup ModifyTargetGroupAttributes RegisterTargets "
            "DeregisterTargets AddTags RemoveTags",
            "arn:{p}:elasticloadbalancing:{r}:{a}:targetgroup/{x}-*",
        )
    ],
    "AWS::IAM::ManagedPolicy": [
        (
            "iam:CreatePolicy DeletePolicy GetPolicy GetPolicyVersion CreatePolicyVersion DeletePolicyVersion ListPolicyVersions "
            "ListEntitiesForPolicy TagPolicy UntagPolicy",
            "arn:{p}:iam::{a}:policy/{s}-*",
        )
    ],
    "AWS::IAM::Role": [
        ("iam:DeleteRole GetRole UpdateRole UpdateAssumeRolePolicy TagRole UntagRole ListRolePolicies GetRolePolicy ListAttachedRolePolicies", ROLES),
        # Without DeleteRolePermissionsBoundary: it would permit every other action, through a role without the boundary.
        (
            "iam:CreateRole PutRolePolicy DeleteRolePolicy AttachRolePolicy DetachRolePolicy PutRolePermissionsBoundary",
            ROLES,
            {"StringEquals": {"iam:PermissionsBoundary": "{boundary}"}},
        ),
        ("iam:PassRole", ROLES, {"StringEquals": {"iam:PassedToService": "{services}"}}),
    ],
    "AWS::KMS::Alias": [
        ("kms:CreateAlias UpdateAlias DeleteAlias", "arn:{p}:kms:{r}:{a}:alias/{x}"),
        ("kms:CreateAlias UpdateAlias DeleteAlias", "{key}"),
        ("kms:ListAliases", "*"),
    ],
    "AWS::KMS::Key": [
        ("kms:CreateKey", "*"),
        (
            "kms:DescribeKey EnableKeyRotation DisableKeyRotation GetKeyPolicy GetKeyRotationStatus ListResourceTags PutKeyPolicy "
            "ScheduleKeyDeletion TagResource UntagResource UpdateKeyDescription",
            "{key}",
        ),
        # Services use the key for the deployer: functions' settings, the generated secret, the table and the delivery stream.
        ("kms:CreateGrant RevokeGrant", "{key}", {"Bool": {"kms:GrantIsForAWSResource": "true"}}),
        (
            "kms:Encrypt Decrypt GenerateDataKey",
            "{key}",
            {"StringEquals": {"kms:ViaService": [f"{name}.{{r}}.{{u}}" for name in ("dynamodb", "firehose", "lambda", "secretsmanager")]}},
        ),
    ],
    "AWS::KinesisFirehose::DeliveryStream": [
        (
            "firehose:CreateDeliveryStream DeleteDeliveryStream DescribeDeliveryStream UpdateDestination StartDeliveryStreamEncryption "
            "StopDeliveryStreamEncryption ListTagsForDeliveryStream TagDeliveryStream UntagDeliveryStream",
            "arn:{p}:firehose:{r}:{a}:deliverystream/{x}-audit",
        )
    ],
    "AWS::Lambda::Alias": [
        (
            "lambda:CreateAlias GetAlias UpdateAlias DeleteAlias GetProvisionedConcurrencyConfig PutProvisionedConcurrencyConfig "
            "DeleteProvisionedConcurrencyConfig",
            "arn:{p}:lambda:{r}:{a}:function:{x}-*",
        ),
        ("codedeploy:RegisterApplicationRevision GetApplicationRevision", "arn:{p}:codedeploy:{r}:{a}:application:{s}-*"),
        ("codedeploy:CreateDeployment GetDeployment StopDeployment GetDeploymentGroup", "arn:{p}:codedeploy:{r}:{a}:deploymentgroup:{s}-*"),
        ("codedeploy:GetDeploymentConfig", "arn:{p}:codedeploy:{r}:{a}:deploymentconfig:CodeDeployDefault.Lambda*"),
    ],
    "AWS::Lambda::Function": [
        (
            "lambda:CreateFunction UpdateFunctionCode UpdateFunctionConfiguration DeleteFunction GetFunction GetFunctionConfiguration "
            "GetFunctionCodeSigningConfig GetRuntimeManagementConfig GetFunctionRecursionConfig GetFunctionScalingConfig "
            "PutFunctionConcurrency DeleteFunctionConcurrency ListTags TagResource UntagResource",
            "arn:{p}:lambda:{r}:{a}:function:{x}-*",
        )
    ],
    "AWS::Lambda::Permission": [("lambda:AddPermission RemovePermission GetPolicy", "arn:{p}:lambda:{r}:{a}:function:{x}-*")],
    "AWS::Lambda::Version": [
        (
            "lambda:PublishVersion GetFunctionConfiguration GetProvisionedConcurrencyConfig GetRuntimeManagementConfig ListVersionsByFunction "
            "DeleteFunction",
            "arn:{p}:lambda:{r}:{a}:function:{x}-*",
        )
    ],
    "AWS::Logs::LogGroup": [
        (
            "logs:CreateLogGroup DeleteLogGroup PutRetentionPolicy DeleteRetentionPolicy AssociateKmsKey DisassociateKmsKey TagResource "
            "UntagResource ListTagsForResource DescribeIndexPolicies GetDataProtectionPolicy DeleteDataProtectionPolicy",
            "arn:{p}:logs:{r}:{a}:log-group:/clusterpass/{x}/*",
        ),
        (
            "logs:CreateLogGroup DeleteLogGroup PutRetentionPolicy DeleteRetentionPolicy AssociateKmsKey DisassociateKmsKey TagResource "
            "UntagResource ListTagsForResource DescribeIndexPolicies GetDataProtectionPolicy DeleteDataProtectionPolicy",
            "arn:{p}:logs:{r}:{a}:log-group:/aws/lambda/{x}-*",
        ),
        ("logs:DescribeLogGroups DescribeResourcePolicies", "*"),
        # for the access log of API Gateway
        ("logs:CreateLogDelivery DeleteLogDelivery GetLogDelivery ListLogDeliveries UpdateLogDelivery", "*"),
    ],
    "AWS::Logs::SubscriptionFilter": [
        (
            "logs:PutSubscriptionFilter DeleteSubscriptionFilter DescribeSubscriptionFilters",
            "arn:{p}:logs:{r}:{a}:log-group:/clusterpass/{x}/*",
        )
    ],
    "AWS::Route53::RecordSet": [
        ("route53:ChangeResourceRecordSets ListResourceRecordSets GetHostedZone", "arn:{p}:route53:::hostedzone/{zone}"),
        ("route53:GetChange", "arn:{p}:route53:::change/*"),
    ],
    "AWS::S3::Bucket": [
        (
            "s3:CreateBucket DeleteBucket ListBucket GetBucketObjectLockConfiguration PutBucketObjectLockConfiguration GetBucketVersioning "
            "PutBucketVersioning GetBucketOwnershipControls PutBucketOwnershipControls GetBucketPublicAccessBlock PutBucketPublicAccessBlock "
            "GetEncryptionConfiguration PutEncryptionConfiguration GetLifecycleConfiguration PutLifecycleConfiguration GetBucketTagging "
            "PutBucketTagging",
            BUCKETS,
        ),
        # CloudFormation reads all properties of a bucket, also those that are not set.
        (
            "s3:GetAccelerateConfiguration GetAnalyticsConfiguration GetBucketCORS GetBucketLogging GetBucketNotification GetBucketWebsite "
            "GetIntelligentTieringConfiguration GetInventoryConfiguration GetLifecycleConfiguration GetMetricsConfiguration "
            "GetReplicationConfiguration ListTagsForResource TagResource UntagResource",
            BUCKETS,
        ),
    ],
    "AWS::S3::BucketPolicy": [("s3:GetBucketPolicy PutBucketPolicy DeleteBucketPolicy", BUCKETS)],
    "AWS::SNS::Topic": [
        (
            "sns:CreateTopic DeleteTopic GetTopicAttributes SetTopicAttributes Subscribe Unsubscribe ListSubscriptionsByTopic "
            "ListTagsForResource TagResource UntagResource GetDataProtectionPolicy",
            "arn:{p}:sns:{r}:{a}:{x}-alarms",
        )
    ],
    "AWS::SNS::TopicPolicy": [],  # an attribute of the topic
    "AWS::SecretsManager::Secret": [
        ("secretsmanager:GetRandomPassword", "*"),
        (
            "secretsmanager:CreateSecret DescribeSecret UpdateSecret DeleteSecret GetSecretValue TagResource UntagResource",
            "arn:{p}:secretsmanager:{r}:{a}:secret:CertificateHeader-*",
        ),
    ],
    "AWS::ServiceDiscovery::PrivateDnsNamespace": [
        ("servicediscovery:CreatePrivateDnsNamespace GetOperation ListTagsForResource TagResource UntagResource", "*"),
        (
            "servicediscovery:GetNamespace DeleteNamespace UpdatePrivateDnsNamespace CreateService",
            "arn:{p}:servicediscovery:{r}:{a}:namespace/*",
        ),
        # Cloud Map creates the zone with the rights of the deployer.
        ("ec2:DescribeRegions DescribeVpcs", "*"),
        ("route53:CreateHostedZone AssociateVPCWithHostedZone ListHostedZonesByName", "*"),
        ("route53:GetHostedZone DeleteHostedZone", "arn:{p}:route53:::hostedzone/*"),
    ],
    "AWS::ServiceDiscovery::Service": [
        ("servicediscovery:ListServices", "*"),
        ("servicediscovery:GetService GetServiceAttributes UpdateService DeleteService", "arn:{p}:servicediscovery:{r}:{a}:service/*"),
    ],
    "AWS::WAFv2::WebACL": [
        (
            "wafv2:CreateWebACL UpdateWebACL DeleteWebACL GetWebACL ListTagsForResource TagResource UntagResource",
            "arn:{p}:wafv2:{r}:{a}:regional/webacl/{x}/*",
        ),
    ],
    "AWS::WAFv2::WebACLAssociation": [
        ("wafv2:GetWebACLForResource AssociateWebACL DisassociateWebACL", "*"),
        ("elasticloadbalancing:SetWebACL", "arn:{p}:elasticloadbalancing:{r}:{a}:loadbalancer/app/{x}/*"),
        ("apigateway:SetWebACL", "arn:{p}:apigateway:{r}::/restapis/*"),
    ],
}

# Types of which only make deploy CANARY=... makes resources.
CANARY = {"AWS::CodeDeploy::Application", "AWS::CodeDeploy::DeploymentGroup", "AWS::Lambda::Alias", "AWS::Lambda::Version"}

# ARNs of what the policies of the template refer to.
REFERENCES = {
    "${Objects.Arn}": "arn:{p}:dynamodb:{r}:{a}:table/{x}-objects",
    "${Key.Arn}": "{key}",
    "${Key}": "{key}",
    "${PassKMSKey}": "{pass_key}",
    "${RecordingKey}": "{recording_key}",
    "${CertificateHeader}": "arn:{p}:secretsmanager:{r}:{a}:secret:CertificateHeader-*",
    "${Repository}": "{repository}",
    "${ProxyLogs}": "/clusterpass/{x}/*",
    "${FleetLogs}": "/clusterpass/{x}/*",
    "${ControlLogs}": "/clusterpass/{x}/*",
    "${RotateLogs}": "/aws/lambda/{x}-*",
    "${Logs}": "/clusterpass/{x}/*",
    "${Group}": "/clusterpass/{x}/*",
    "${Bucket.Arn}": BUCKETS,
    "${Delivery.Arn}": "arn:{p}:firehose:{r}:{a}:deliverystream/{x}-audit",
    "${AWS::Partition}": "{p}",
    "${AWS::Region}": "{r}",
    "${AWS::AccountId}": "{a}",
    "${AWS::URLSuffix}": "{u}",
    "${Prefix}": "{x}",
}


def templates(canary):
    root = translate(ROOT / "template.yaml")
    paths = [*nested(root).values(), *(["infra/aws/canary.yaml"] if canary else [])]
    return [root] + [translate(ROOT / path) for path in paths]


def as_list(value):
    return value if isinstance(value, list) else [value]


def text(value):
    """A Ref, Fn::GetAtt or Fn::Sub as the text of Fn::Sub."""
    if isinstance(value, str):
        return value
    if "Ref" in value:
        return "${%s}" % value["Ref"]
    if "Fn::GetAtt" in value:
        return "${%s}" % ".".join(as_list(value["Fn::GetAtt"]))
    return value["Fn::Sub"]


def resolve(value):
    """Replaces references to parameters and resources, in a string or in the values of a condition."""
    if isinstance(value, list):
        return [resolve(item) for item in value]
    if isinstance(value, dict) and not value.keys() & {"Ref", "Fn::GetAtt", "Fn::Sub"}:
        return {key: resolve(item) for key, item in value.items()}
    return re.sub(r"\$\{[^}]+\}", lambda m: REFERENCES[m[0]], text(value))


def deployer(all, canary):
    """The calls of CloudFormation: action, ARN and condition."""
    types = {resource["Type"] for template in all for resource in template["Resources"].values()}
    if missing := types - CALLS.keys():
        sys.exit(f"policies.py does not know the calls for {', '.join(sorted(missing))}")
    if unused := CALLS.keys() - types - CANARY:
        sys.exit(f"policies.py knows calls for types that the template lacks: {', '.join(sorted(unused))}")
    for kind in sorted(types | (CANARY if canary else set())):
        for actions, resources, *condition in CALLS[kind]:
            service, names = actions.split(":")
            for name in names.split():
                for resource in resources.split():
                    yield f"{service}:{name}", resource, condition[0] if condition else {}


def services(all):
    """The services that the roles of the template trust."""
    return sorted(
        statement["Principal"]["Service"]
        for template in all
        for resource in template["Resources"].values()
        if resource["Type"] == "AWS::IAM::Role"
        for statement in resource["Properties"]["AssumeRolePolicyDocument"]["Statement"]
    )


def boundary(all):
    """What the policies of the roles allow: action, ARN and condition. Only actions of KMS have their conditions."""
    for template in all:
        for resource in template["Resources"].values():
            given = resource.get("Properties", {})
            documents = [p["PolicyDocument"] for p in given.get("Policies", [])] if resource["Type"] == "AWS::IAM::Role" else []
            if resource["Type"] == "AWS::IAM::ManagedPolicy":
                documents.append(given["PolicyDocument"])
            for document in documents:
                for statement in document["Statement"]:
                    if statement["Effect"] != "Allow":
                        continue
                    for target in as_list(statement["Resource"]):
                        for action in as_list(statement["Action"]):
                            condition = resolve(statement.get("Condition", {})) if action.startswith("kms:") else {}
                            yield action, resolve(target), condition


def fill(value, values):
    """Replaces names in braces. A string that is one name may become a list."""
    if isinstance(value, dict):
        return {key: fill(item, values) for key, item in value.items()}
    if isinstance(value, list):
        return sorted(fill(item, values) for item in value)
    return values["services"] if value == "{services}" else value.format(**values)


def documents(calls, values):
    """Policy documents with all calls. Statements with equal conditions, and with equal actions or equal ARNs, are joined."""
    by_arn, by_actions = {}, {}
    for action, arn, condition in calls:
        if not any(f"{{{option}}}" in arn and values[option] is None for option in ("zone", "pass_key")):
            key = fill(arn, values), json.dumps(fill(condition, values), sort_keys=True)
            by_arn.setdefault(key, set()).add(action)
    for (arn, condition), actions in by_arn.items():
        by_actions.setdefault((tuple(sorted(actions)), condition), []).append(arn)
    made = []
    for (actions, condition), arns in sorted(by_actions.items()):
        statement = {"Effect": "Allow", "Action": list(actions), "Resource": sorted(arns)}
        if condition != "{}":
            statement["Condition"] = json.loads(condition)
        if not made or len(json.dumps({**made[-1], "Statement": made[-1]["Statement"] + [statement]}, separators=(",", ":"))) > LIMIT:
            made.append({"Version": "2012-10-17", "Statement": []})
        made[-1]["Statement"].append(statement)
    return made


def parse(args):
    parser = argparse.ArgumentParser(description="Writes IAM policies for the template.")
    parser.add_argument("kind", choices=["deployer", "boundary"])
    for name in ("stack", "prefix", "account", "region"):
        parser.add_argument(name, metavar=name.upper())
    parser.add_argument("--boundary", metavar="ARN", help="the permissions boundary of the stack's roles; deployer needs it")
    parser.add_argument("--zone", metavar="ID", help="HostedZoneId; without it, the deployer may not change records")
    parser.add_argument("--key", metavar="ARN", help="the stack's key, once it exists; without it, all keys of account and region")
    parser.add_argument("--pass-key", metavar="ARN", help="PassKMSKey; without it, the boundary denies signatures")
    parser.add_argument("--recording-key", metavar="ARN", help="RecordingKMSKey; without it, roles use the stack's key for recordings")
    parser.add_argument("--repository", metavar="NAME", default="clusterpass-bridge", help="BridgeRepository (%(default)s)")
    parser.add_argument("--canary", action="store_true", help="for make deploy CANARY=..., which needs aliases and CodeDeploy")
    parser.add_argument("--output", metavar="DIR", default=".", help="directory of the files; it is created, and earlier policies are replaced")
    options = parser.parse_args(args)
    if options.kind == "deployer" and not options.boundary:
        parser.error("the deployer needs --boundary: without one, it could give every permission to a role")
    if options.stack == options.kind:
        parser.error(f"STACK: {options.stack} would let the deployer change its own policies, whose names begin so; choose another name")
    if options.boundary and options.boundary.rsplit("/", 1)[-1].startswith(f"{options.stack}-"):
        parser.error(f"--boundary: the name must not begin with {options.stack}-, because the deployer may change such policies")
    return options


def write(options, made):
    """Writes each document into a file of its own, and prints the names of the files."""
    name = f"{options.kind}-{options.stack}"
    if options.kind == "boundary" and len(made) != 1:
        sys.exit(f"the boundary needs {len(made)} policies, and a role can have one")
    directory = Path(options.output)
    directory.mkdir(parents=True, exist_ok=True)
    for earlier in directory.glob(f"{name}-*.json"):
        if re.fullmatch(rf"{re.escape(name)}-[0-9]+", earlier.stem):
            earlier.unlink()
    for number, document in enumerate(made, 1):
        file = directory / (f"{name}.json" if options.kind == "boundary" else f"{name}-{number}.json")
        file.write_text(json.dumps(document, indent=2) + "\n")
        print(file)


def main(args):
    options = parse(args)
    region, all = options.region, templates(options.canary)
    values = {
        "s": options.stack,
        "s_lower": options.stack.lower(),
        "x": options.prefix,
        "a": options.account,
        "r": region,
        "p": "aws-cn" if region.startswith("cn-") else "aws-us-gov" if region.startswith("us-gov-") else "aws",
        "u": "amazonaws.com.cn" if region.startswith("cn-") else "amazonaws.com",
        "boundary": options.boundary,
        "zone": options.zone,
        "pass_key": options.pass_key,
        "repository": options.repository,
        "services": sorted(set(services(all))),
    }
    values["key"] = options.key or "arn:{p}:kms:{r}:{a}:key/*".format(**values)
    values["recording_key"] = options.recording_key or values["key"]
    calls = deployer(all, options.canary) if options.kind == "deployer" else boundary(all)
    write(options, documents(calls, values))


if __name__ == "__main__":
    main(sys.argv[1:])
