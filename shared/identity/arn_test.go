package identity

import (
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestARNMapping(t *testing.T) {
	m := &ARNMapping{
		Rules: []ARNRule{
			{ARN: "arn:aws:iam::111122223333:role/admin", Username: "admin", Groups: []string{"admins"}},
			{ARN: "arn:aws:iam::111122223333:role/dev-*", Username: "dev:{{AccountID}}:{{SessionName}}",
				Groups: []string{"dev"}},
			{ARN: "arn:aws:iam::111122223333:role/free", Username: "{{SessionName}}"},
			{ARN: "arn:aws:iam::111122223333:role/*-bot", Groups: []string{"bots"}},
			{ARN: "arn:aws:iam::111122223333:user/ci/*", Groups: []string{"ci"}},
			{ARN: "arn:aws-cn:iam::111122223333:user/ann", Username: "ann"},
		},
		Accounts: []string{"444455556666"},
	}
	if err := m.Validate(); err != nil {
		t.Fatal(err)
	}
	const unmapped = "the gateway's administrator may map it"
	tests := map[string]struct {
		arn, name string
		groups    []string
		wantErr   string
	}{
		"a role":                       {"arn:aws:sts::111122223333:assumed-role/admin/i-1", "admin", []string{"admins"}, ""},
		"a role with more in its name": {arn: "arn:aws:sts::111122223333:assumed-role/admin2/i-1", wantErr: unmapped},
		"a role with more before":      {arn: "arn:aws:sts::111122223333:assumed-role/xadmin/i-1", wantErr: unmapped},
		"a session of that name":       {arn: "arn:aws:sts::111122223333:assumed-role/other/admin", wantErr: unmapped},
		"another account":              {arn: "arn:aws:sts::111122223334:assumed-role/admin/i-1", wantErr: unmapped},
		"another partition":            {arn: "arn:aws-cn:sts::111122223333:assumed-role/admin/i-1", wantErr: unmapped},
		"a user called as the role":    {arn: "arn:aws:iam::111122223333:user/admin", wantErr: unmapped},
		"a template": {"arn:aws:sts::111122223333:assumed-role/dev-x/ann@example.com",
			"dev:111122223333:ann@example.com", []string{"dev"}, ""},
		"the role itself, dev-": {"arn:aws:sts::111122223333:assumed-role/dev-/a", "dev:111122223333:a",
			[]string{"dev"}, ""},
		"a session's own name": {"arn:aws:sts::111122223333:assumed-role/free/ann", "ann", nil, ""},
		"a star before": {"arn:aws:sts::111122223333:assumed-role/x-bot/s",
			"arn:aws:iam::111122223333:role/x-bot", []string{"bots"}, ""},
		"a star does not cross": {arn: "arn:aws:iam::111122223333:user/ci/a/b", wantErr: unmapped},
		"a user in a path": {"arn:aws:iam::111122223333:user/ci/runner",
			"arn:aws:iam::111122223333:user/ci/runner", []string{"ci"}, ""},
		"a user elsewhere":  {"arn:aws-cn:iam::111122223333:user/ann", "ann", nil, ""},
		"an account's user": {"arn:aws:iam::444455556666:user/x/y", "arn:aws:iam::444455556666:user/x/y", nil, ""},
		"an account's role": {"arn:aws:sts::444455556666:assumed-role/r/s", "arn:aws:iam::444455556666:role/r", nil,
			""},
		"an account's root": {"arn:aws:iam::444455556666:root", "arn:aws:iam::444455556666:root", nil, ""},
		"an account's federated user": {"arn:aws:sts::444455556666:federated-user/bob",
			"arn:aws:sts::444455556666:federated-user/bob", nil, ""},
		"the account in a name": {arn: "arn:aws:iam::777788889999:user/444455556666", wantErr: unmapped},
		"no session": {arn: "arn:aws:sts::111122223333:assumed-role/admin",
			wantErr: "its ARN has no role and session"},
		"an empty session": {arn: "arn:aws:sts::111122223333:assumed-role/admin/",
			wantErr: "its ARN has no role and session"},
		"a session with a slash": {arn: "arn:aws:sts::111122223333:assumed-role/admin/a/b",
			wantErr: "its ARN has no role and session"},
		"a role that is no session": {arn: "arn:aws:iam::111122223333:assumed-role/admin/x",
			wantErr: "its ARN cannot be read"},
		"a user of STS":   {arn: "arn:aws:sts::111122223333:user/admin", wantErr: "its ARN cannot be read"},
		"no name":         {arn: "arn:aws:iam::444455556666:user", wantErr: "its ARN has no name"},
		"a short account": {arn: "arn:aws:iam::4444:user/x", wantErr: "its ARN cannot be read"},
		"a line more":     {arn: "arn:aws:iam::444455556666:user/x\n", wantErr: "its ARN cannot be read"},
		"nothing":         {arn: "", wantErr: "its ARN cannot be read"},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			u, err := m.user(tt.arn)
			if tt.wantErr != "" {
				if err == nil || err.Error() != tt.wantErr {
					t.Errorf("got %+v, %v, want %s", u, err, tt.wantErr)
				}
				return
			}
			want := &User{Name: tt.name, Groups: tt.groups, Method: "aws-iam", Extra: map[string][]string{"arn": {tt.arn}}}
			if diff := cmp.Diff(want, u); diff != "" || err != nil {
				t.Errorf("%v\n%s", err, diff)
			}
		})
	}
}

// A caller chooses the name of its session, which must not yield a user name that Kubernetes reserves.
func TestARNMappingToSystemNames(t *testing.T) {
	system := &ARNMapping{Rules: []ARNRule{{ARN: "arn:aws:iam::111122223333:role/r", Username: "{{SessionName}}:masters",
		Groups: []string{"system:masters", "x"}}}}
	if u, err := system.user("arn:aws:sts::111122223333:assumed-role/r/system"); err == nil {
		t.Errorf("a session makes itself %+v", u)
	}
	if u, err := system.user("arn:aws:sts::111122223333:assumed-role/r/s"); err != nil || len(u.Groups) != 1 {
		t.Errorf("%+v, %v", u, err)
	}
}

func TestARNMappingValidate(t *testing.T) {
	const role = "arn:aws:iam::111122223333:role/r"
	const form = ": want arn:aws:iam::123456789012:role/NAME or arn:aws:iam::123456789012:user/NAME"
	for want, m := range map[string]ARNMapping{
		`account "*": want 12 digits`:               {Accounts: []string{"*"}},
		`rule "*"` + form:                           {Rules: []ARNRule{{ARN: "*"}}},
		`rule "arn:aws:iam::*:role/r"` + form:       {Rules: []ARNRule{{ARN: "arn:aws:iam::*:role/r"}}},
		`rule "arn:aws:iam::111122223333:*"` + form: {Rules: []ARNRule{{ARN: "arn:aws:iam::111122223333:*"}}},
		`rule "arn:aws:sts::111122223333:assumed-role/r/s"` + form: {
			Rules: []ARNRule{{ARN: "arn:aws:sts::111122223333:assumed-role/r/s"}}},
		`rule "arn:aws:iam::111122223333:role/a/b/r": want the role without its path, r`: {
			Rules: []ARNRule{{ARN: "arn:aws:iam::111122223333:role/a/b/r"}}},
		`rule "` + role + `": user "system:x": names that begin with system: are Kubernetes' own`: {
			Rules: []ARNRule{{ARN: role, Username: "system:x"}}},
		`rule "` + role + `": group "system:masters": names that begin with system: are Kubernetes' own`: {
			Rules: []ARNRule{{ARN: role, Groups: []string{"system:masters"}}}},
	} {
		if err := m.Validate(); err == nil || err.Error() != want {
			t.Errorf("got  %v\nwant %s", err, want)
		}
	}
}

func FuzzARN(f *testing.F) {
	f.Add("arn:aws:iam::111122223333:role/dev-*", "arn:aws:sts::111122223333:assumed-role/dev-x/s")
	f.Add("arn:aws:iam::111122223333:user/*", "arn:aws:iam::111122223333:user/a/b")
	f.Fuzz(func(t *testing.T, pattern, arn string) {
		m := &ARNMapping{Rules: []ARNRule{{ARN: pattern}}}
		if len(pattern) > 200 || m.Validate() != nil {
			return
		}
		u, err := m.user(arn)
		if err != nil {
			return
		}
		if foreignName(u.Name) != nil || u.Name[:len("arn:aws")] != "arn:aws" {
			t.Errorf("%q is %+v", arn, u)
		}
		account := func(s string) string { return arnRE().caller.FindStringSubmatch(s)[3] }
		if c := arnRE().rule.FindStringSubmatch(pattern); c[2] != account(arn) {
			t.Errorf("%q matches %q of another account", pattern, arn)
		}
	})
}
