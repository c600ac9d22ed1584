package aws

import (
	"fmt"
	"strings"
	"testing"
)

// TestKept: resources that cannot be restored survive the deletion of the stack. The next stack must not need their
// names, except the table's.
func TestKept(t *testing.T) {
	all := load(t)
	for _, id := range []string{
		"template.yaml Key", "template.yaml Objects", "template.yaml ProxyLogs", "template.yaml FleetLogs",
		"template.yaml ControlLogs", "infra/aws/bridge.yaml Logs", "infra/aws/auditlog.yaml Group",
		"infra/aws/archive.yaml Bucket", "infra/aws/recordings.yaml Bucket",
	} {
		path, name, _ := strings.Cut(id, " ")
		r := all[path].Resources[name]
		if r.DeletionPolicy != "RetainExceptOnCreate" || r.UpdateReplacePolicy != "Retain" {
			t.Errorf("%s goes with the stack, or with a replacement", id)
		}
		group := r.Properties["LogGroupName"]
		if path == "infra/aws/bridge.yaml" {
			group = get(all["template.yaml"].Resources["BridgeService"].Properties["Parameters"], "LogGroup")
		}
		if r.Type == "AWS::Logs::LogGroup" && !strings.Contains(fmt.Sprint(group), "AWS::StackId") {
			t.Errorf("%s is named %v, which the next stack cannot use", id, group)
		}
	}
	bucket := all["infra/aws/archive.yaml"].Resources["Bucket"].Properties
	lock := get(bucket, "ObjectLockConfiguration", "Rule", "DefaultRetention")
	if bucket["ObjectLockEnabled"] != true || fmt.Sprint(render(get(lock, "Mode")), render(get(lock, "Days"))) !=
		"[${Mode}] [${Days}]" {
		t.Errorf("events in the bucket are locked by %v", lock)
	}
	table := all["template.yaml"].Resources["Objects"].Properties
	if get(table, "PointInTimeRecoverySpecification", "PointInTimeRecoveryEnabled") != true ||
		table["DeletionProtectionEnabled"] != true {
		t.Error("the table has no backups, or can be deleted by one call")
	}
}
