package main

import (
	"testing"
	"time"

	"github.com/clusterpass/clusterpass/shared/audit/override"
	"github.com/clusterpass/clusterpass/shared/stores"
)

// TestAuditOverride: an operator can start and end an override. A typing error must not create one without an end.
func TestAuditOverride(t *testing.T) {
	c := clusterpass{"dir:" + t.TempDir()}
	inForce := func(in time.Duration) bool {
		t.Helper()
		var addr stores.Address
		if err := addr.Decode(c.store); err != nil {
			t.Fatal(err)
		}
		st, err := stores.Open(t.Context(), addr)
		if err != nil {
			t.Fatal(err)
		}
		ok, err := override.InForce(t.Context(), st.Objects, time.Now().Add(in))
		if err != nil {
			t.Fatal(err)
		}
		return ok
	}
	for _, args := range [][]string{
		nil, {"--for", "1h"}, {"--for", "1h", "--end"}, {"--for", "-1h", "--reason", "x"}, {"--for", "200h", "--reason", "x"},
	} {
		if out, err := c.run(t, append([]string{"audit", "override"}, args...)...); err == nil || inForce(0) {
			t.Errorf("%v: %s", args, out)
		}
	}
	out, err := c.run(t, "audit", "override", "--for", "1h", "--reason", "the webhook moves")
	if err != nil || !inForce(0) || inForce(2*time.Hour) {
		t.Errorf("%s, %v", out, err)
	}
	if out, err := c.run(t, "audit", "override", "--end"); err != nil || inForce(0) {
		t.Errorf("%s, %v", out, err)
	}
}
