package aws

import (
	"reflect"
	"slices"
	"strings"
	"testing"
)

// TestRecordingsAreWrittenOnce: an attacker who controls a bridge must not be able to replace, delete or read the
// recordings of earlier sessions.
func TestRecordingsAreWrittenOnce(t *testing.T) {
	all := load(t)
	recordings := all["infra/aws/recordings.yaml"]
	for id := range of(all, "AWS::IAM::Role") {
		for _, s := range statementsOf(t, all, id) {
			for _, action := range s.actions {
				isOfBridge := id == "infra/aws/bridge.yaml TaskRole"
				if s.effect == "Allow" && strings.HasPrefix(action, "s3:") && isOfBridge && action != "s3:PutObject" {
					t.Errorf("%s may %s", id, action)
				}
			}
		}
	}
	denied := false
	for _, s := range statements(t, recordings.Resources["BucketPolicy"].Properties["PolicyDocument"]) {
		denied = denied || s.effect == "Deny" && slices.Equal(s.actions, []string{"s3:PutObject"}) &&
			slices.Equal(s.resources, []string{"${Bucket.Arn}/*"}) &&
			reflect.DeepEqual(s.condition, map[string]any{"Null": map[string]any{"s3:if-none-match": "true"}})
	}
	if !denied {
		t.Error("a part of a recording can be replaced")
	}
	rules, _ := get(recordings.Resources["Bucket"].Properties, "LifecycleConfiguration", "Rules").([]any)
	if len(rules) != 1 || get(rules[0], "Status") != "Enabled" ||
		!slices.Equal(render(get(rules[0], "ExpirationInDays")), []string{"${Days}"}) {
		t.Errorf("recordings are deleted by %v", rules)
	}
	given := all["template.yaml"].Resources["BridgeService"].Properties["Parameters"]
	if got := render(get(given, "Recordings")); got[0] != "s3:${Recordings.Outputs.Bucket}" {
		t.Errorf("the bridge records to %s", got)
	}
}
