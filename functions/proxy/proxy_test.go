package proxy

import (
	"context"
	"encoding/pem"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/clusterpass/clusterpass/shared/assembly"
	"github.com/clusterpass/clusterpass/shared/audit"
	"github.com/clusterpass/clusterpass/shared/clustertest"
	"github.com/clusterpass/clusterpass/shared/lambdahttp"
	"github.com/clusterpass/clusterpass/shared/stores"
	"github.com/clusterpass/clusterpass/shared/waittest"
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

// albEvent is the event of a request that has no credential.
const albEvent = `{"requestContext": {"elb": {"targetGroupArn": ""}}, "httpMethod": "GET",
	"path": "/clusters/m/version", "multiValueHeaders": {"host": ["gateway"]}}`

// hangingSink accepts no event.
type hangingSink struct{}

func (hangingSink) Deliver(ctx context.Context, _ [][]byte) (int, error) {
	<-ctx.Done()
	return 0, ctx.Err()
}

// A delivery must leave time for the response and for the line that counts a lost event.
func TestDeliveryEndsBeforeInvocation(t *testing.T) {
	for name, tt := range map[string]struct {
		left time.Duration // until the end of the invocation; 0 for no end
		want time.Duration // duration of the delivery
	}{
		"seconds are left": {2 * time.Second, 2*time.Second - responseTime},
		"little is left":   {responseTime / 2, 0},
		"no end":           {0, 5 * time.Second}, // the limit of package audit
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				log := audit.New(audit.Config{Sinks: []audit.Sink{hangingSink{}}, Log: slog.New(slog.DiscardHandler)})
				var took time.Duration
				f := lambdahttp.New(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
					q := log.Begin(limitDelivery(r))
					q.User(audit.User{Username: "ann"}, "x509")
					began := time.Now()
					q.Completed(http.StatusOK, nil)
					took = time.Since(began)
				}), lambdahttp.Options{})
				ctx := context.Background()
				if tt.left > 0 {
					var cancel context.CancelFunc
					ctx, cancel = context.WithTimeout(ctx, tt.left)
					defer cancel()
				}
				if _, err := f.Invoke(ctx, []byte(albEvent)); err != nil {
					t.Fatal(err)
				}
				if took != tt.want || log.Stats().Lost != 1 {
					t.Errorf("the delivery took %s, want %s, and %d events are lost", took, tt.want, log.Stats().Lost)
				}
			})
		})
	}
}

// Lambda ends the process at the end of an invocation. A function whose webhook hangs must respond before, and count
// the event.
func TestFunctionRespondsWhileWebhookHangs(t *testing.T) {
	ended := make(chan struct{})
	hook := httptest.NewTLSServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { <-ended }))
	t.Cleanup(func() { close(ended); hook.Close() })
	ca := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: hook.Certificate().Raw})
	file := filepath.Join(t.TempDir(), "kubeconfig")
	if err := os.WriteFile(file, clustertest.Kubeconfig(hook.URL, ca, "{token: sesame}"), 0o600); err != nil {
		t.Fatal(err)
	}
	var log waittest.Buffer
	handler, opts, err := New(t.Context(), &Config{Env: assembly.Env{
		Shared: assembly.Shared{Auditing: assembly.Auditing{AuditWebhook: assembly.AuditWebhook(file)}},
		Store:  stores.Address{Kind: "dir", Where: t.TempDir()},
	}}, Process{IsFrozen: true, LogTo: &log})
	if err != nil {
		t.Fatal(err)
	}
	const invocation, tooLong = 500 * time.Millisecond, 4500 * time.Millisecond // without the limit, a delivery lasts 5 s
	ctx, cancel := context.WithTimeout(t.Context(), invocation)
	defer cancel()
	began := time.Now()
	answer, err := lambdahttp.New(handler, opts).Invoke(ctx, []byte(albEvent))
	if took := time.Since(began); err != nil || !strings.Contains(string(answer), `"statusCode":401`) || took > tooLong {
		t.Errorf("after %s: %s, %v", took, answer, err)
	}
	if !strings.Contains(log.String(), "audit events are lost") {
		t.Errorf("the log does not count the event:\n%s", log.String())
	}
}
