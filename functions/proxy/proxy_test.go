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
		"arn:aws:elasticloadbalancing:eu-west-1:111122223333:targetgroup/other/*," + arn:        true,
		arn + ",arn:aws:elasticloadbalancing:eu-west-1:111122223333:targetgroup/other/*":        true,
		"arn:aws:elasticloadbalancing:eu-west-1:111122223333:targetgroup/other/*,":              false,
		"*": false,
		",": false,
		"":  false,
	} {
		if g.Is(arn) != want {
			t.Errorf("%q: %t", g, !want)
		}
	}
	for _, g := range []TargetGroup{"", ",", arn + ","} {
		if g.Is("") {
			t.Errorf("%q: no group is one", g)
		}
	}
}
