package watch

import (
	"testing"

	"github.com/clusterpass/clusterpass/shared/fleet/cursor"
)

// TestObjectVersionIsNoComposite fails if a member could decide where a client resumes the watches of other members.
func TestObjectVersionIsNoComposite(t *testing.T) {
	forged := cursor.Version{1: "999999", 2: "5"}.String()
	for name, p := range map[string]*progress{
		"several members": {version: cursor.Version{1: "100"}},
		"a single member": {single: true},
	} {
		if got := p.objectVersion("")(forged); got != "" {
			t.Errorf("%s: the event has version %s", name, got)
		}
		if got := p.objectVersion("")("abc"); got != "abc" {
			t.Errorf("%s: another version is %q", name, got)
		}
	}
}
