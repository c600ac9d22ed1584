package proxy

import "testing"

func TestTargetGroup(t *testing.T) {
	const arn = "arn:aws:elasticloadbalancing:eu-west-1:111122223333:targetgroup/proxy/0123456789abcdef"
	for g, want := range map[TargetGroup]bool{
		arn: true,
		"arn:aws:elasticloadbalancing:eu-west-1:111122223333:targetgroup/proxy/*":               true,
		"arn:aws:elasticloadbalancing:eu-west-1:111122223333:targetgroup/pro/*":                 false,
		"arn:aws:elasticloadbalancing:eu-west-1:111122223333:targetgroup/pro*":                  false,
		"arn:aws:elasticloadbalancing:eu-west-1:999999999999:targetgroup/proxy/*":               false,
		"arn:aws:elasticloadbalancing:eu-west-1:111122223333:targetgroup/proxy/0123456789abcde": false,
		"*": false,
		"":  false,
	} {
		if g.Is(arn) != want {
			t.Errorf("%q: %t", g, !want)
		}
	}
	if TargetGroup("").Is("") {
		t.Error("no group is one")
	}
}
