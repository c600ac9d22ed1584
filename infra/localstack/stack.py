"""Deploys the template to whatever AWS_ENDPOINT_URL is, an emulator mostly, without sam: `make localstack` and tests run it.

On AWS itself use `make deploy`. What sam does there is done here by its own translator: functions become CloudFormation, nested templates and
zips go to a bucket, and the stack is created or updated.

    stack.py translate TEMPLATE              prints a template as CloudFormation, as template.yaml, and its nested ones by their paths
    stack.py deploy STACK KEY=VALUE ...      deploys it with these parameters and prints the outputs

DIST names another directory than dist, where make build puts the functions. TEMPLATE names another template than template.yaml to deploy.
"""

import hashlib
import json
import os
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
TEMPLATE = Path(os.environ.get("TEMPLATE", ROOT / "template.yaml"))
DIST = Path(os.environ.get("DIST", ROOT / "dist"))
GOARCH = {"arm64": "arm64", "x86_64": "amd64"}


def translate(path, bucket="bucket", key=lambda function: function):
    """Returns a template as CloudFormation. key names a function's zip in the bucket."""
    os.environ.setdefault("AWS_DEFAULT_REGION", os.environ.get("AWS_REGION", "eu-central-1"))  # the translator needs one
    from samtranslator.translator.transform import transform
    from samtranslator.yaml_helper import yaml_parse

    template = yaml_parse(Path(path).read_text())
    if "Transform" not in template:
        return template
    template.get("Globals", {}).get("Function", {}).pop("CodeUri", None)
    for name, resource in template["Resources"].items():
        if resource["Type"] == "AWS::Serverless::Function":
            function = name.removesuffix("Function").lower()
            resource["Properties"]["CodeUri"] = {"Bucket": bucket, "Key": key(function)}
    return transform(template, {}, None)


def nested(template):
    """The nested stacks of a template: logical id and path."""
    return {
        name: resource["Properties"]["TemplateURL"]
        for name, resource in template["Resources"].items()
        if resource["Type"] == "AWS::CloudFormation::Stack"
    }


def reasons(cloudformation, stack, name=""):
    """The reasons for which resources of a stack and of its nested stacks have failed, by their paths."""
    lines = []
    for page in cloudformation.get_paginator("describe_stack_events").paginate(StackName=stack):
        for e in page["StackEvents"]:
            child = e.get("PhysicalResourceId", "")
            if not e["ResourceStatus"].endswith("_FAILED"):
                continue
            if e["ResourceType"] == "AWS::CloudFormation::Stack" and child not in ("", e["StackId"]):
                lines += reasons(cloudformation, child, f"{name}{e['LogicalResourceId']}.")
            if "ResourceStatusReason" in e:
                lines.append(f"{name}{e['LogicalResourceId']}: {e['ResourceStatusReason']}")
    return lines


def deploy(stack, parameters):
    import boto3
    from botocore.config import Config
    from botocore.exceptions import ClientError, WaiterError

    s3 = boto3.client("s3", config=Config(s3={"addressing_style": "path"}))
    cloudformation = boto3.client("cloudformation")
    bucket = f"{stack}-deploy"
    region = s3.meta.region_name
    try:
        where = {} if region == "us-east-1" else {"CreateBucketConfiguration": {"LocationConstraint": region}}
        s3.create_bucket(Bucket=bucket, **where)
    except ClientError as e:
        if e.response["Error"]["Code"] != "BucketAlreadyOwnedByYou":
            raise

    def upload(name, data):
        key = f"{hashlib.sha256(data).hexdigest()[:16]}-{name}"  # changed content has another key, so that CloudFormation updates the function
        s3.put_object(Bucket=bucket, Key=key, Body=data)
        return key

    def url(key):
        """Not the bucket's own host name, which emulators do not resolve."""
        return f"https://s3.{region}.amazonaws.com/{bucket}/{key}"

    architecture = parameters.get("Architecture", "arm64")

    def zip_of(function):
        path = DIST / GOARCH[architecture] / f"{function}.zip"
        if not path.exists():
            sys.exit(f"{path} is missing: run make build")
        return upload(path.name, path.read_bytes())

    template = translate(TEMPLATE, bucket, zip_of)
    for name, path in nested(template).items():
        key = upload(Path(path).name, json.dumps(translate(ROOT / path)).encode())
        template["Resources"][name]["Properties"]["TemplateURL"] = url(key)
    key = upload("template.json", json.dumps(template).encode())
    request = {
        "StackName": stack,
        "TemplateURL": url(key),
        "Parameters": [{"ParameterKey": k, "ParameterValue": v} for k, v in parameters.items()],
        "Capabilities": ["CAPABILITY_IAM", "CAPABILITY_NAMED_IAM", "CAPABILITY_AUTO_EXPAND"],
    }
    try:
        cloudformation.describe_stacks(StackName=stack)
        exists = True
    except ClientError:
        exists = False
    try:
        (cloudformation.update_stack if exists else cloudformation.create_stack)(**request)
        cloudformation.get_waiter("stack_update_complete" if exists else "stack_create_complete").wait(StackName=stack)
    except ClientError as e:
        if "No updates are to be performed" not in str(e):
            raise
    except WaiterError:
        sys.exit("\n".join([f"the stack {stack} fails:", *reasons(cloudformation, stack)]))
    for output in cloudformation.describe_stacks(StackName=stack)["Stacks"][0].get("Outputs", []):
        print(f"{output['OutputKey']}={output['OutputValue']}")


def main(args):
    if len(args) == 2 and args[0] == "translate":
        template = translate(args[1])
        templates = {"template.yaml": template} | {path: translate(ROOT / path) for path in nested(template).values()}
        json.dump(templates, sys.stdout)
    elif len(args) >= 2 and args[0] == "deploy" and all("=" in a for a in args[2:]):
        if not os.environ.get("AWS_ENDPOINT_URL"):
            sys.exit("AWS_ENDPOINT_URL is not set. For AWS itself use make deploy.")
        deploy(args[1], dict(a.split("=", 1) for a in args[2:]))
    else:
        sys.exit(__doc__)


if __name__ == "__main__":
    main(sys.argv[1:])
