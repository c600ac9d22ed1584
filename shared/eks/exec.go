package eks

import (
	"errors"
	"fmt"
	"path"
	"slices"
	"strings"
)

const (
	awsCLI        = "aws"
	authenticator = "aws-iam-authenticator"
)

// cliSession is the session name of the AWS CLI when it assumes a role. A cluster can map it to a user's name.
const cliSession = "EKSGetTokenAuth"

// ParseExec parses an exec entry of a kubeconfig's user. Errors name the unknown flag or variable, never a value.
func ParseExec(command string, args []string, env map[string]string) (*Spec, error) {
	spec := &Spec{}
	if err := spec.setEnv(env); err != nil {
		return nil, err
	}
	var words []string
	var flags map[string]*string
	region := ""
	output := "json"
	switch path.Base(command) {
	case awsCLI:
		spec.SessionName = cliSession
		words = []string{"eks", "get-token"}
		flags = map[string]*string{
			"--cluster-name": &spec.Cluster, "--cluster-id": &spec.Cluster,
			"--role-arn": &spec.RoleARN, "--region": &region, "--output": &output,
		}
	case authenticator:
		words = []string{"token"}
		flags = map[string]*string{
			"--cluster-id": &spec.Cluster, "-i": &spec.Cluster, "--role": &spec.RoleARN, "-r": &spec.RoleARN,
			"--session-name": &spec.SessionName, "-s": &spec.SessionName,
			"--external-id": &spec.ExternalID, "-e": &spec.ExternalID,
		}
	default:
		return nil, fmt.Errorf("command: the gateway runs no program, and %.64q would be one; it answers %q and %q itself",
			command, "aws eks get-token", "aws-iam-authenticator token")
	}
	if err := parseArgs(args, words, flags); err != nil {
		return nil, fmt.Errorf("args: %w", err)
	}
	if output != "json" {
		return nil, errors.New("args: --output: want json, which is what a kubeconfig needs")
	}
	if region != "" {
		spec.Region = region
	}
	if err := spec.validate(); err != nil {
		return nil, err
	}
	return spec, nil
}

func parseArgs(args, words []string, flags map[string]*string) error {
	var got []string
	seen := map[*string]bool{}
	for i := 0; i < len(args); i++ {
		name, value, inOne := strings.Cut(args[i], "=")
		if !strings.HasPrefix(name, "-") {
			got = append(got, args[i])
			continue
		}
		target := flags[name]
		switch {
		case name == "--profile":
			return errors.New("--profile: the gateway has no AWS profiles; remove it, and name the role to use with --role-arn")
		case target == nil:
			return fmt.Errorf("%.64q is not supported", name)
		case seen[target]:
			return fmt.Errorf("%s is given twice, or beside another that means the same", name)
		case !inOne && (i+1 == len(args) || strings.HasPrefix(args[i+1], "-")):
			return fmt.Errorf("%s needs a value", name)
		case !inOne:
			i++
			value = args[i]
		}
		seen[target] = true
		*target = value
	}
	if !slices.Equal(got, words) {
		return fmt.Errorf("want the command %q and nothing else beside flags", strings.Join(words, " "))
	}
	return nil
}

func (s *Spec) setEnv(env map[string]string) error {
	for name, value := range env {
		switch name {
		case "AWS_REGION", "AWS_DEFAULT_REGION":
		case "AWS_STS_REGIONAL_ENDPOINTS":
			if value != "" && value != "regional" && value != "legacy" {
				return fmt.Errorf("env: %s: want regional or legacy", name)
			}
			s.Legacy = value == "legacy"
		case "AWS_PROFILE", "AWS_DEFAULT_PROFILE":
			return fmt.Errorf("env: %s: the gateway has no AWS profiles; remove it, and name the role to use with --role-arn",
				name)
		default:
			return fmt.Errorf("env: %.64q is not supported", name)
		}
	}
	if s.Region = env["AWS_REGION"]; s.Region == "" {
		s.Region = env["AWS_DEFAULT_REGION"]
	}
	return nil
}

// validate rejects values that could change the endpoint or header. Regular expressions would slow down cold starts.
func (s *Spec) validate() error {
	switch {
	case s.Cluster == "":
		return errors.New("args: the cluster's name is missing")
	case !consists(s.Cluster, 1, 253, "._-"):
		return errors.New("args: the cluster's name: want letters, digits and ._-")
	case s.Region != "" && (!consists(s.Region, 1, 63, "-") || s.Region != strings.ToLower(s.Region)):
		return errors.New("region: want one such as eu-west-1")
	case s.RoleARN != "" && !validRole(s.RoleARN):
		return errors.New("args: the role: want an ARN such as arn:aws:iam::111122223333:role/name")
	case s.SessionName != "" && !consists(s.SessionName, 2, 64, "_+=,.@-"):
		return errors.New("args: the session name: want 2 to 64 letters, digits and _+=,.@-")
	case s.ExternalID != "" && !consists(s.ExternalID, 2, 1224, "_+=,.@:/-"):
		return errors.New("args: the external id: want 2 to 1224 letters, digits and _+=,.@:/-")
	}
	return nil
}

// validRole reports whether arn is arn:PARTITION:iam::ACCOUNT:role/PATH.
func validRole(arn string) bool {
	parts := strings.Split(arn, ":")
	if len(parts) != 6 {
		return false
	}
	name, isRole := strings.CutPrefix(parts[5], "role/")
	return parts[0] == "arn" && strings.HasPrefix(parts[1], "aws") && consists(parts[1], 3, 20, "-") &&
		parts[2] == "iam" && parts[3] == "" &&
		len(parts[4]) == 12 && strings.Trim(parts[4], "0123456789") == "" && isRole && consists(name, 1, 576, "_+=,.@/-")
}

// consists reports whether s has shortest to longest bytes, each an ASCII letter, a digit or one of more.
func consists(s string, shortest, longest int, more string) bool {
	return len(s) >= shortest && len(s) <= longest && !strings.ContainsFunc(s, func(r rune) bool {
		return (r < 'a' || r > 'z') && (r < 'A' || r > 'Z') && (r < '0' || r > '9') && !strings.ContainsRune(more, r)
	})
}
