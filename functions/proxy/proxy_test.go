package proxy

import (
	"testing"
	"time"

	"github.com/clusterpass/clusterpass/shared/assembly"
	"github.com/clusterpass/clusterpass/shared/stores"
)

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

// A mistake must end the function. With it, no client certificate would be accepted, or those of any target group.
func TestTargetGroupIsChecked(t *testing.T) {
	const arn = "arn:aws:elasticloadbalancing:eu-west-1:111122223333:targetgroup/"
	for v, want := range map[string]bool{
		"": true, arn + "proxy/0123456789abcdef": true, arn + "proxy/*": true, arn + "proxy/*," + arn + "proxy1/*": true,
		"arn:aws-us-gov:elasticloadbalancing:us-gov-west-1:111122223333:targetgroup/proxy/*": true,
		"*": false, ",": false, " ": false, arn + "*": false, arn + "*/*": false, arn + "pro*/1": false,
		arn + "proxy/":   false,
		arn + "proxy/*,": false, arn + "proxy/*, " + arn + "fleet/*": false, " " + arn + "proxy/*": false,
		arn + "proxy/* ": false, arn + "proxy/*\n": false, arn + "proxy/1*": false,
		"arn:aws:elasticloadbalancing:eu-west-1:*:targetgroup/proxy/*":                 false,
		"arn:aws:elasticloadbalancing:eu-west-1:111122223333:loadbalancer/app/proxy/1": false,
	} {
		var g TargetGroup
		if err := g.Decode(v); (err == nil) != want || err == nil && string(g) != v || err != nil && g != "" {
			t.Errorf("%q: %q, %v", v, g, err)
		}
	}
}

// A call that lasts until the time limit of the function must leave time for its audit event. A function that waits for
// no receiver needs none.
func TestMarginForAuditEvents(t *testing.T) {
	for name, tt := range map[string]struct {
		auditing assembly.Auditing
		want     time.Duration
	}{
		"none":            {assembly.Auditing{}, 0},
		"standard output": {assembly.Auditing{Audit: "-"}, 0},
		"log group":       {assembly.Auditing{AuditLogGroup: "/a/b"}, deliveryTime + responseTime},
	} {
		t.Setenv("AWS_REGION", "eu-central-1")
		_, opts, err := New(t.Context(), &Config{Env: assembly.Env{
			Shared: assembly.Shared{Auditing: tt.auditing}, Store: stores.Address{Kind: "dir", Where: t.TempDir()},
		}}, Process{})
		if err != nil || opts.Margin != tt.want {
			t.Errorf("%s: the margin is %s, want %s: %v", name, opts.Margin, tt.want, err)
		}
	}
}
