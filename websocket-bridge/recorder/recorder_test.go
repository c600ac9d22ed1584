package recorder

import (
	"net/http/httptest"
	"testing"

	"github.com/clusterpass/clusterpass/shared/forward"
	"github.com/clusterpass/clusterpass/shared/gateway"
	"github.com/clusterpass/clusterpass/shared/identity"
)

// TestImpersonatorIsRecorded fails if the header of a recording does not name the person behind --as.
func TestImpersonatorIsRecorded(t *testing.T) {
	c := &gateway.StreamCall{Call: &forward.Call{User: &identity.User{Name: "ann", Impersonator: "bob"}}}
	if i := infoOf(httptest.NewRequest("GET", "/", nil), c); i.User != "ann" || i.Caller() != "ann, impersonated by bob" {
		t.Errorf("header %+v", i)
	}
	c.User = &identity.User{Name: "ann"}
	if i := infoOf(httptest.NewRequest("GET", "/", nil), c); i.Caller() != "ann" {
		t.Errorf("header %+v", i)
	}
}
