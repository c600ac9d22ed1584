package aws

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"

	"github.com/clusterpass/clusterpass/functions/proxy"
)

// TestAuditEventsOutliveTheStack fails if the deletion of the stack destroys the audit trail, or prevents another
// deployment.
func TestAuditEventsOutliveTheStack(t *testing.T) {
	if testing.Short() {
		t.Skip("slow: make test runs it")
	}
	a := newAccount(t)
	parameters := []string{
		image, "DomainName=clusterpass.example.com", "CertificateArn=" + a.certificate(), "ClientCA=" + clientCA(t),
		"AuditArchiveDays=30",
	}
	outputs := a.deploy(parameters...)
	programs := []string{"bridge", "control", "fleet", "proxy"}
	groups := a.auditGroups()
	if len(groups) != len(programs) {
		t.Fatalf("the audit events are in %v", groups)
	}
	for _, group := range groups {
		var copies struct {
			SubscriptionFilters []struct{ FilterPattern, DestinationArn string }
		}
		a.json(&copies, "logs", http.MethodPost, "/", "Logs_20140328.DescribeSubscriptionFilters",
			fmt.Sprintf(`{"logGroupName": %q}`, group))
		if len(copies.SubscriptionFilters) != 1 ||
			copies.SubscriptionFilters[0].FilterPattern != `{ $.apiVersion = "audit.k8s.io/v1" }` ||
			!strings.HasSuffix(copies.SubscriptionFilters[0].DestinationArn, ":deliverystream/clusterpass-audit") {
			t.Errorf("%s is copied by %v", group, copies)
		}
	}

	a.query("cloudformation", "2010-05-15", "", "Action", "DeleteStack", "StackName", "test")
	a.call("s3", http.MethodGet, "/"+outputs["AuditBucket"]+"?location", "", "")
	a.call("dynamodb", http.MethodPost, "/", "DynamoDB_20120810.DescribeTable", `{"TableName": "clusterpass-objects"}`)
	if kept := a.auditGroups(); !slices.Equal(kept, groups) {
		t.Errorf("after the deletion of the stack there are %v, want %v", kept, groups)
	}
	if again := a.deploy(append(parameters, "Prefix=again")...); again["AuditBucket"] == outputs["AuditBucket"] {
		t.Errorf("the next stack has the bucket of the first, %s", again["AuditBucket"])
	}
	if both := a.auditGroups(); len(both) != 2*len(programs) {
		t.Errorf("with the next stack there are %v", both)
	}
}

// TestOwnAuditLog: with AuditLogGroup own, each program delivers its events to one log group, before a call ends. They
// are neither on standard output nor deleted with the stack, and the archive has copies.
func TestOwnAuditLog(t *testing.T) {
	if testing.Short() {
		t.Skip("slow: make test runs it")
	}
	a := newAccount(t)
	parameters := []string{
		image, "DomainName=clusterpass.example.com", "CertificateArn=" + a.certificate(), "ClientCA=" + clientCA(t),
		"AuditLogGroup=own", "AuditFailClosed=true", "AuditArchiveDays=30",
	}
	outputs := a.deploy(parameters...)
	group := outputs["AuditLogGroup"]
	if groups := a.auditGroups(); len(groups) != 5 || !slices.Contains(groups, group) {
		t.Fatalf("%q is not one of %q", group, groups)
	}
	for name := range programs {
		if name == "rotate" {
			continue
		}
		env := a.bridgeEnvironment()
		if name != "bridge" {
			env = a.function("clusterpass-" + name).Environment.Variables
		}
		configure(t, name, env)
		if env["CLUSTERPASS_AUDIT"] != "" || env["CLUSTERPASS_AUDIT_LOG_GROUP"] != group ||
			env["CLUSTERPASS_AUDIT_LOG_STREAM_PREFIX"] != name {
			t.Errorf("%s has the settings %v", name, env)
		}
	}
	a.callProxy()
	var events struct {
		Events []struct{ LogStreamName, Message string }
	}
	a.json(&events, "logs", http.MethodPost, "/", "Logs_20140328.FilterLogEvents",
		fmt.Sprintf(`{"logGroupName": %q}`, group))
	var stages []string
	for _, e := range events.Events {
		var event struct{ Stage string }
		if err := json.Unmarshal([]byte(e.Message), &event); err != nil || !strings.HasPrefix(e.LogStreamName, "proxy/") {
			t.Errorf("the log group has %v (%v)", e, err)
		}
		stages = append(stages, event.Stage)
	}
	slices.Sort(stages) // with AuditFailClosed, the first event proves that the group accepts events
	want := []string{"RequestReceived", "ResponseComplete"}
	if !slices.Equal(stages, want) {
		t.Errorf("the log group has events of the stages %q, want %q", stages, want)
	}
	if copies := string(a.call("s3", http.MethodGet, "/"+outputs["AuditBucket"]+"?list-type=2", "", "")); strings.Count(
		copies, "<Key>events/") != len(want) {
		t.Errorf("the bucket has %s", copies)
	}

	a.query("cloudformation", "2010-05-15", "", "Action", "DeleteStack", "StackName", "test")
	if kept := a.auditGroups(); !slices.Contains(kept, group) {
		t.Errorf("after the deletion of the stack there are %q, without %q", kept, group)
	}
	if again := a.deploy(append(parameters, "Prefix=again")...); again["AuditLogGroup"] == group {
		t.Errorf("the next stack has the log group of the first, %s", group)
	}
}

// callProxy sends a request to the function proxy with its settings of the stack.
func (a account) callProxy() {
	t := a.t
	t.Helper()
	cfg := configure(t, "proxy", a.function("clusterpass-proxy").Environment.Variables).(*proxy.Config)
	handler, _, err := proxy.New(t.Context(), cfg, proxy.Process{IsFrozen: true, LogTo: t.Output()})
	if err != nil {
		t.Fatal(err)
	}
	rec := httptest.NewRecorder()
	handler.ServeHTTP(rec, httptest.NewRequest(http.MethodGet, "/clusters/a/api/v1/pods", nil))
	if rec.Code != http.StatusUnauthorized {
		t.Fatalf("the function responds with %d %s", rec.Code, rec.Body)
	}
}

func (a account) auditGroups() []string {
	a.t.Helper()
	var found struct {
		LogGroups []struct{ LogGroupName string }
	}
	a.json(&found, "logs", http.MethodPost, "/", "Logs_20140328.DescribeLogGroups",
		`{"logGroupNamePrefix": "/clusterpass/"}`)
	var names []string
	for _, group := range found.LogGroups {
		names = append(names, group.LogGroupName)
	}
	slices.Sort(names)
	return names
}
