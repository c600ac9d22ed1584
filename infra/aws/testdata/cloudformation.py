# What moto's CloudFormation lacks of what the template uses: Fn::Cidr, the outputs of nested stacks, expressions in listener rules, the
# full names of load balancers, the bodies of REST APIs, names by Cloud Map, secrets and dynamic references to them, delivery streams,
# subscriptions to logs and aliases of functions. It does not know RetainExceptOnCreate.
import ipaddress
import json
import re

from moto.apigateway.models import RestAPI, apigateway_backends
from moto.awslambda.models import LambdaVersion, lambda_backends
from moto.cloudformation import parsing
from moto.cloudformation.models import Stack
from moto.core.common_models import CloudFormationModel
from moto.firehose.models import firehose_backends
from moto.logs.models import logs_backends
from moto.elbv2.models import ELBv2Backend, FakeLoadBalancer, FakeTargetGroup
from moto.secretsmanager.models import secretsmanager_backends
from moto.servicediscovery.models import servicediscovery_backends


def resolved(text, resources):
    def secret(reference):
        backend = secretsmanager_backends[resources._account_id][resources._region_name]
        return backend.get_secret_value(reference[1], None, None)["SecretString"]

    return re.sub(r"\{\{resolve:secretsmanager:(arn:[^${}]+):SecretString\}\}", secret, text)


def clean_json(value, resources, clean=parsing.clean_json):
    if isinstance(value, dict) and "Fn::Cidr" in value:
        block, count, bits = clean_json(value["Fn::Cidr"], resources)
        subnets = ipaddress.ip_network(block).subnets(new_prefix=32 - int(bits))
        return [str(next(subnets)) for _ in range(int(count))]
    cleaned = clean(value, resources)
    return resolved(cleaned, resources) if isinstance(cleaned, str) else cleaned


parsing.clean_json = clean_json
Stack.get_cfn_attribute = lambda self, name: self.output_map[name.removeprefix("Outputs.")].value


def delete(self, delete=parsing.ResourceMap.delete):
    for resource in self._resource_json_map.values():
        if resource.get("DeletionPolicy") == "RetainExceptOnCreate":
            resource["DeletionPolicy"] = "Retain"
    delete(self)


parsing.ResourceMap.delete = delete


def validate_conditions(self, conditions, validate=ELBv2Backend._validate_conditions):
    validate(self, json.loads(json.dumps(conditions).replace('"RegexValues"', '"Values"')))


ELBv2Backend._validate_conditions = validate_conditions


def full_name(resource, attribute, start):
    known = getattr(resource, "get_cfn_attribute", None)

    def get_cfn_attribute(self, name):
        return self.arn[self.arn.index(start) :].removeprefix(":loadbalancer/") if name == attribute else known(self, name)

    resource.get_cfn_attribute = get_cfn_attribute


full_name(FakeLoadBalancer, "LoadBalancerFullName", ":loadbalancer/")
full_name(FakeTargetGroup, "TargetGroupFullName", "targetgroup/")


def with_body(cls, name, resource, account, region, create=RestAPI.create_from_cloudformation_json.__func__, **kwargs):
    api = create(cls, name, resource, account, region, **kwargs)
    body = json.loads(json.dumps(resource["Properties"]["Body"]).replace("x-amazon-apigateway-any-method", "any"))
    apigateway_backends[account][region].put_rest_api(api.id, body, fail_on_warnings=False, mode="overwrite")
    return api


RestAPI.create_from_cloudformation_json = classmethod(with_body)


class Fake:
    """The methods by which moto's CloudFormation knows a resource. A subclass has the attributes service, type and, if it is not Name,
    name_property. moto finds only direct subclasses of CloudFormationModel."""

    name_property = "Name"

    def __init_subclass__(cls):
        cls.__module__ = f"moto.{cls.service}"  # moto asks its models whose they are

    def __init__(self, id, arn=None):
        self.physical_resource_id, self.arn = id, arn

    def get_cfn_attribute(self, name):
        return {"Arn": self.arn, "Id": self.physical_resource_id}[name]

    @classmethod
    def cloudformation_name_type(cls):
        return cls.name_property

    @classmethod
    def cloudformation_type(cls):
        return cls.type


class PrivateDnsNamespace(Fake, CloudFormationModel):
    service, type = "servicediscovery", "AWS::ServiceDiscovery::PrivateDnsNamespace"

    @classmethod
    def create_from_cloudformation_json(cls, name, resource, account, region, **kwargs):
        backend, given = servicediscovery_backends[account][region], resource["Properties"]
        backend.create_private_dns_namespace(given["Name"], name, given["Description"], given["Vpc"], [], {})
        namespace = next(n for n in backend.namespaces.values() if n.name == given["Name"])
        return cls(namespace.id, namespace.arn)


class DiscoveredService(Fake, CloudFormationModel):
    service, type = "servicediscovery", "AWS::ServiceDiscovery::Service"

    @classmethod
    def create_from_cloudformation_json(cls, name, resource, account, region, **kwargs):
        given = resource["Properties"]
        backend = servicediscovery_backends[account][region]
        service = backend.create_service(given["Name"], given["NamespaceId"], name, "", given["DnsConfig"], {}, given["HealthCheckCustomConfig"], [], "DNS")
        return cls(service.id, service.arn)


class GeneratedSecret(Fake, CloudFormationModel):
    """A secret with a value that Secrets Manager generates."""

    service, type = "secretsmanager", "AWS::SecretsManager::Secret"

    @classmethod
    def create_from_cloudformation_json(cls, name, resource, account, region, **kwargs):
        given = resource["Properties"]
        backend, rules = secretsmanager_backends[account][region], given["GenerateSecretString"]
        generated = backend.get_random_password(
            password_length=rules["PasswordLength"],
            exclude_characters="",
            exclude_numbers=False,
            exclude_punctuation=rules["ExcludePunctuation"],
            exclude_uppercase=rules["ExcludeUppercase"],
            exclude_lowercase=False,
            include_space=False,
            require_each_included_type=True,
        )
        backend.create_secret(
            name=name,
            secret_string=json.loads(generated)["RandomPassword"],
            secret_binary=None,
            description=given["Description"],
            tags=None,
            kms_key_id=given["KmsKeyId"],
            client_request_token=None,
            replica_regions=[],
            force_overwrite=False,
        )
        return cls(backend.describe_secret(name).arn)


class DeliveryStream(Fake, CloudFormationModel):
    service, type = "firehose", "AWS::KinesisFirehose::DeliveryStream"
    name_property = "DeliveryStreamName"

    @classmethod
    def create_from_cloudformation_json(cls, name, resource, account, region, **kwargs):
        given, none = resource["Properties"], {}
        target = given["ExtendedS3DestinationConfiguration"]
        key = given["DeliveryStreamEncryptionConfigurationInput"]
        backend = firehose_backends[account][region]
        arn = backend.create_delivery_stream(region, name, given["DeliveryStreamType"], none, key, none, target, none, none, none, none, none, [])
        return cls(name, arn)


class Subscription(Fake, CloudFormationModel):
    service, type = "logs", "AWS::Logs::SubscriptionFilter"
    name_property = "FilterName"

    @classmethod
    def create_from_cloudformation_json(cls, name, resource, account, region, **kwargs):
        given = resource["Properties"]
        logs_backends[account][region].put_subscription_filter(
            given["LogGroupName"], name, given["FilterPattern"], given["DestinationArn"], given["RoleArn"]
        )
        return cls(name)


LambdaVersion.get_cfn_attribute = lambda self, name: str({"Version": self.version}[name])


class Alias(Fake, CloudFormationModel):
    service, type = "awslambda", "AWS::Lambda::Alias"

    @classmethod
    def create_from_cloudformation_json(cls, name, resource, account, region, **kwargs):
        given = resource["Properties"]
        backend = lambda_backends[account][region]
        return cls(backend.create_alias(name, given["FunctionName"], given["FunctionVersion"], "", "").arn)
