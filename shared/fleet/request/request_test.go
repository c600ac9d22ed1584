package request

import (
	"testing"

	"github.com/clusterpass/clusterpass/shared/identity"
	"github.com/clusterpass/clusterpass/shared/route"
)

// TestObjectKeyCoversNamespace fails if a read of one object could use the location of another.
func TestObjectKeyCoversNamespace(t *testing.T) {
	one := &Request{User: &identity.User{Name: "alice"}, Resource: route.Resource{Name: "web", Namespace: "a"}}
	other := *one
	other.Resource.Namespace = "b"
	if one.ObjectKey() == other.ObjectKey() {
		t.Error("two objects have one key")
	}
	other = *one
	other.User = &identity.User{Name: "bob"}
	if one.ObjectKey() == other.ObjectKey() {
		t.Error("two callers have one key")
	}
}

// TestDerivedRequestsLeaveTheFirst fails if one part of the gateway could change the request that another part answers.
func TestDerivedRequestsLeaveTheFirst(t *testing.T) {
	first := &Request{}
	query := first.Query()
	query.Set("watch", "true")
	second := first.WithPath("/api").WithCluster("a").WithQuery(query)
	if first.Route.Path != "" || first.Cluster != "" || first.HasParam("watch") {
		t.Errorf("the first became %+v", first)
	}
	if second.Route.Path != "/api" || second.Cluster != "a" || second.Param("watch") != "true" {
		t.Errorf("the second is %+v", second)
	}
}
