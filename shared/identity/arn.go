package identity

import (
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"sync"
)

// ARNRule maps the IAM role or user of an ARN to a user. The fields are named as in EKS's aws-auth.
type ARNRule struct {
	// ARN is arn:aws:iam::123456789012:role/NAME or …:user/NAME. In NAME, "*" matches any characters but "/". The NAME of
	// a role has no path, because STS does not report it.
	ARN string `json:"arn"`
	// Username "" means the ARN of the role or user. {{AccountID}} and {{SessionName}} are replaced. The caller that
	// assumes a role chooses the session's name.
	Username string   `json:"username,omitempty"`
	Groups   []string `json:"groups,omitempty"`
}

// ARNMapping maps AWS identities to users. The first rule that matches applies, and then Accounts.
type ARNMapping struct {
	Rules []ARNRule `json:"rules,omitempty"`
	// Accounts are ids of AWS accounts. Each of their roles and users is a user named by its ARN, without groups.
	Accounts []string `json:"accounts,omitempty"`
}

// arnExpressions are compiled on first use, because compiled package variables would slow down a function's start.
type arnExpressions struct {
	account, rule *regexp.Regexp
	caller        *regexp.Regexp // the ARN in the response of STS
}

var arnRE = sync.OnceValue(func() arnExpressions {
	return arnExpressions{
		account: regexp.MustCompile(`^[0-9]{12}$`),
		rule:    regexp.MustCompile(`^arn:(aws[a-z-]*):iam::([0-9]{12}):(role|user)/([\w+=,.@*/-]+)$`),
		caller: regexp.MustCompile(
			`^arn:(aws[a-z-]*):(iam|sts)::([0-9]{12}):(assumed-role|role|user|federated-user|root)(?:/([\w+=,.@/-]+))?$`),
	}
})

// Validate returns an error that names the first invalid rule.
func (m *ARNMapping) Validate() error {
	for _, a := range m.Accounts {
		if !arnRE().account.MatchString(a) {
			return fmt.Errorf("account %q: want 12 digits", a)
		}
	}
	for _, r := range m.Rules {
		parts := arnRE().rule.FindStringSubmatch(r.ARN)
		switch {
		case parts == nil:
			return fmt.Errorf("rule %q: want arn:aws:iam::123456789012:role/NAME or arn:aws:iam::123456789012:user/NAME", r.ARN)
		case parts[3] == "role" && strings.Contains(parts[4], "/"):
			return fmt.Errorf("rule %q: want the role without its path, %s", r.ARN,
				parts[4][strings.LastIndex(parts[4], "/")+1:])
		case strings.HasPrefix(r.Username, systemPrefix):
			return fmt.Errorf("rule %q: user %q: names that begin with %s are Kubernetes' own", r.ARN, r.Username, systemPrefix)
		}
		for _, g := range r.Groups {
			if err := foreignName(g); err != nil {
				return fmt.Errorf("rule %q: group %q: %w", r.ARN, g, err)
			}
		}
	}
	return nil
}

type caller struct {
	arn       string // as STS reports it
	canonical string // the ARN of the role or user
	account   string
	session   string
}

// parseCaller parses an ARN of STS. The session arn:aws:sts::1:assumed-role/NAME/SESSION belongs to the role
// arn:aws:iam::1:role/NAME.
func parseCaller(arn string) (caller, error) {
	parts := arnRE().caller.FindStringSubmatch(arn)
	if parts == nil {
		return caller{}, errors.New("its ARN cannot be read")
	}
	partition, service, account, kind, name := parts[1], parts[2], parts[3], parts[4], parts[5]
	c := caller{arn: arn, canonical: arn, account: account}
	switch service + ":" + kind {
	case "sts:assumed-role":
		role, session, ok := strings.Cut(name, "/")
		if !ok || role == "" || session == "" || strings.Contains(session, "/") {
			return caller{}, errors.New("its ARN has no role and session")
		}
		c.canonical, c.session = "arn:"+partition+":iam::"+account+":role/"+role, session
	case "iam:user", "iam:role", "sts:federated-user":
		if name == "" {
			return caller{}, errors.New("its ARN has no name")
		}
	case "iam:root":
		if name != "" {
			return caller{}, errors.New("its ARN cannot be read")
		}
	default:
		return caller{}, errors.New("its ARN cannot be read")
	}
	return c, nil
}

func (m *ARNMapping) user(arn string) (*User, error) {
	c, err := parseCaller(arn)
	if err != nil {
		return nil, err
	}
	u := &User{Name: c.canonical, Method: "aws-iam", Extra: map[string][]string{ExtraARN: {c.arn}}}
	i := slices.IndexFunc(m.Rules, func(r ARNRule) bool { return matchARN(r.ARN, c.canonical) })
	if i < 0 {
		if !slices.Contains(m.Accounts, c.account) {
			return nil, errors.New("the gateway's administrator may map it")
		}
		return u, nil
	}
	r := m.Rules[i]
	if r.Username != "" {
		u.Name = strings.NewReplacer("{{AccountID}}", c.account, "{{SessionName}}", c.session).Replace(r.Username)
	}
	if err := foreignName(u.Name); err != nil {
		return nil, fmt.Errorf("the user name that its rule gives cannot be used: %w", err)
	}
	u.Groups = foreignGroups(r.Groups)
	return u, nil
}

func matchARN(pattern, arn string) bool {
	before, after, star := strings.Cut(pattern, "*")
	rest, ok := strings.CutPrefix(arn, before)
	if !ok || !star {
		return ok && rest == ""
	}
	for i := 0; ; i++ {
		if matchARN(after, rest[i:]) {
			return true
		}
		if i == len(rest) || rest[i] == '/' {
			return false
		}
	}
}
