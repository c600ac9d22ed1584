package eks

import (
	"slices"
	"strings"
	"testing"
)

const testRole = "arn:aws:iam::111122223333:role/path/reader"

type execTest struct {
	name    string
	command string // with its args
	env     map[string]string
	want    Spec
	wantErr string // part of the error
}

func env(kv ...string) map[string]string {
	m := map[string]string{}
	for i := 0; i < len(kv); i += 2 {
		m[kv[i]] = kv[i+1]
	}
	return m
}

var acceptedExecs = []execTest{
	{name: "as update-kubeconfig writes it",
		command: "aws --region eu-west-1 eks get-token --cluster-name demo --output json",
		want:    Spec{Cluster: "demo", Region: "eu-west-1", SessionName: "EKSGetTokenAuth"}},
	{name: "with a role", command: "/usr/local/bin/aws eks get-token --cluster-name=demo --role-arn=" + testRole +
		" --region=us-gov-west-1",
		want: Spec{Cluster: "demo", Region: "us-gov-west-1", RoleARN: testRole, SessionName: "EKSGetTokenAuth"}},
	{name: "Outposts", command: "aws eks get-token --cluster-id 0d9b4e7f-8b6a-4d0c-9d57-6f1f2a1f0a11",
		want: Spec{Cluster: "0d9b4e7f-8b6a-4d0c-9d57-6f1f2a1f0a11", SessionName: "EKSGetTokenAuth"}},
	{name: "region by env", command: "aws eks get-token --cluster-name demo",
		env:  env("AWS_DEFAULT_REGION", "eu-west-2", "AWS_REGION", "eu-west-3"),
		want: Spec{Cluster: "demo", Region: "eu-west-3", SessionName: "EKSGetTokenAuth"}},
	{name: "the flag wins", command: "aws eks get-token --cluster-name demo --region eu-west-1",
		env:  env("AWS_REGION", "eu-west-3"),
		want: Spec{Cluster: "demo", Region: "eu-west-1", SessionName: "EKSGetTokenAuth"}},
	{name: "legacy endpoint", command: "aws eks get-token --cluster-name demo",
		env:  env("AWS_STS_REGIONAL_ENDPOINTS", "legacy"),
		want: Spec{Cluster: "demo", Legacy: true, SessionName: "EKSGetTokenAuth"}},
	{name: "authenticator", command: "aws-iam-authenticator token -i demo", want: Spec{Cluster: "demo"}},
	{name: "authenticator as eksctl writes it", command: "aws-iam-authenticator token -i demo -r " + testRole,
		env:  env("AWS_STS_REGIONAL_ENDPOINTS", "regional", "AWS_DEFAULT_REGION", "eu-north-1"),
		want: Spec{Cluster: "demo", RoleARN: testRole, Region: "eu-north-1"}},
	{name: "authenticator with everything", command: "aws-iam-authenticator --cluster-id demo token --role " + testRole +
		" --session-name me --external-id x/1",
		want: Spec{Cluster: "demo", RoleARN: testRole, SessionName: "me", ExternalID: "x/1"}},
}

var rejectedExecs = []execTest{
	{name: "another program", command: "gke-gcloud-auth-plugin", wantErr: `"gke-gcloud-auth-plugin"`},
	{name: "almost aws", command: "aws.sh eks get-token --cluster-name demo", wantErr: "command:"},
	{name: "another aws command", command: "aws ecr get-login-password", wantErr: "eks get-token"},
	{name: "no command", command: "aws --cluster-name demo", wantErr: "eks get-token"},
	{name: "a word too many", command: "aws eks get-token hidden --cluster-name demo", wantErr: "eks get-token"},
	{name: "no cluster", command: "aws eks get-token", wantErr: "name is missing"},
	{name: "profile", command: "aws --profile hidden eks get-token --cluster-name demo",
		wantErr: "--profile: the gateway has no AWS profiles"},
	{name: "profile by env", command: "aws eks get-token --cluster-name demo", env: env("AWS_PROFILE", "hidden"),
		wantErr: "AWS_PROFILE: the gateway has no AWS profiles"},
	{name: "keys by env", command: "aws eks get-token --cluster-name demo", env: env("AWS_SECRET_ACCESS_KEY", "hidden"),
		wantErr: `"AWS_SECRET_ACCESS_KEY" is not supported`},
	{name: "endpoint by env", command: "aws eks get-token --cluster-name demo", env: env("AWS_ENDPOINT_URL", "hidden"),
		wantErr: `"AWS_ENDPOINT_URL"`},
	{name: "endpoint", command: "aws --endpoint-url=https://hidden eks get-token --cluster-name demo",
		wantErr: `"--endpoint-url"`},
	{name: "switch", command: "aws --no-verify-ssl eks get-token --cluster-name demo", wantErr: `"--no-verify-ssl"`},
	{name: "other output", command: "aws eks get-token --cluster-name demo --output text", wantErr: "--output"},
	{name: "abbreviation", command: "aws eks get-token --cluster-n demo", wantErr: `"--cluster-n"`},
	{name: "twice", command: "aws eks get-token --cluster-name demo --cluster-name other",
		wantErr: "--cluster-name is given twice"},
	{name: "twice in two words", command: "aws eks get-token --cluster-name demo --cluster-id other",
		wantErr: "--cluster-id is given twice"},
	{name: "no value", command: "aws eks get-token --cluster-name", wantErr: "--cluster-name needs a value"},
	{name: "a flag for a value", command: "aws eks get-token --cluster-name --region",
		wantErr: "--cluster-name needs a value"},
	{name: "region of another host", command: "aws eks get-token --cluster-name demo --region x.hidden.example/",
		wantErr: "region:"},
	{name: "role of a user",
		command: "aws eks get-token --cluster-name demo --role-arn arn:aws:iam::111122223333:user/hidden", wantErr: "role:"},
	{name: "role without an account",
		command: "aws eks get-token --cluster-name demo --role-arn arn:aws:iam::hidden678901:role/x", wantErr: "role:"},
	{name: "role of another service",
		command: "aws eks get-token --cluster-name demo --role-arn arn:aws:sts::111122223333:role/x", wantErr: "role:"},
	{name: "role by its name", command: "aws eks get-token --cluster-name demo --role-arn hidden", wantErr: "role:"},
	{name: "role with a query", command: "aws eks get-token --cluster-name demo --role-arn " + testRole + "?hidden",
		wantErr: "role:"},
	{name: "role of GovCloud",
		command: "aws eks get-token --cluster-name demo --role-arn arn:aws-us-gov:iam::111122223333:role/x",
		want:    Spec{Cluster: "demo", RoleARN: "arn:aws-us-gov:iam::111122223333:role/x", SessionName: "EKSGetTokenAuth"}},
	{name: "cluster with a newline", command: "aws eks get-token --cluster-name demo%0ahidden",
		wantErr: "cluster's name:"},
	{name: "session name", command: "aws-iam-authenticator token -i demo -s a:hidden", wantErr: "session name:"},
	{name: "external id", command: "aws-iam-authenticator token -i demo -e ;hidden", wantErr: "external id:"},
	{name: "endpoints", command: "aws eks get-token --cluster-name demo",
		env: env("AWS_STS_REGIONAL_ENDPOINTS", "hidden"), wantErr: "AWS_STS_REGIONAL_ENDPOINTS"},
	{name: "token only", command: "aws-iam-authenticator token -i demo --token-only", wantErr: `"--token-only"`},
}

func TestParseExec(t *testing.T) {
	for _, tt := range slices.Concat(acceptedExecs, rejectedExecs) {
		t.Run(tt.name, func(t *testing.T) {
			words := strings.Fields(tt.command)
			got, err := ParseExec(words[0], words[1:], tt.env)
			switch {
			case (got == nil) == (err == nil):
				t.Errorf("spec %+v with error %v", got, err)
			case tt.wantErr == "" && err != nil:
				t.Fatal(err)
			case tt.wantErr == "" && *got != tt.want:
				t.Errorf("got %+v\nwant %+v", *got, tt.want)
			case tt.wantErr != "" && (err == nil || !strings.Contains(err.Error(), tt.wantErr)):
				t.Errorf("error %v, want one with %q", err, tt.wantErr)
			case err != nil && strings.Contains(err.Error(), "hidden"):
				t.Errorf("the error shows a value: %v", err)
			}
		})
	}
}

func FuzzParseExec(f *testing.F) {
	f.Add("aws", "--region\neu-west-1\neks\nget-token\n--cluster-name\ndemo\n--output\njson", "AWS_REGION", "eu-west-1")
	f.Add("aws-iam-authenticator", "token\n-i\ndemo\n-r=arn:aws:iam::111122223333:role/x",
		"AWS_STS_REGIONAL_ENDPOINTS", "legacy")
	f.Fuzz(func(t *testing.T, command, args, key, value string) {
		words := strings.Split(args, "\n")
		spec, err := ParseExec(command, words, map[string]string{key: value})
		if (spec == nil) == (err == nil) {
			t.Fatalf("spec %v and error %v", spec, err)
		}
		if err != nil {
			return
		}
		// Accepted values are unchanged parts of the input, and valid in a host name and a header.
		var given []string
		for _, w := range words {
			_, v, _ := strings.Cut(w, "=")
			given = append(given, w, v)
		}
		given = append(given, value, "", cliSession)
		for _, v := range []string{spec.Cluster, spec.Region, spec.RoleARN, spec.SessionName, spec.ExternalID} {
			if !slices.Contains(given, v) {
				t.Errorf("%q is not in the input", v)
			}
			if strings.ContainsFunc(v, func(r rune) bool { return r <= ' ' || r >= 0x7f }) {
				t.Errorf("%q is not valid in a header", v)
			}
		}
		if strings.ContainsAny(spec.Region, "./:@?#") || spec.Cluster == "" {
			t.Errorf("accepted %+v", spec)
		}
	})
}
