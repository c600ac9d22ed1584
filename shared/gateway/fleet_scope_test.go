package gateway_test

import (
	"context"
	"net/http"
	"testing"

	"github.com/clusterpass/clusterpass/shared/cluster"
	"github.com/clusterpass/clusterpass/shared/fleet"
	"github.com/clusterpass/clusterpass/shared/gateway"
	"github.com/clusterpass/clusterpass/shared/objects"
)

// objectsOf are a house's, which is not there yet when its fleet is made.
type objectsOf struct{ h **house }

func (o objectsOf) List(ctx context.Context, prefix string, limit int, cont string) (objects.Page, error) {
	return (*o.h).objects.List(ctx, prefix, limit, cont)
}

// governed is a house whose cluster cp answers for what no registry takes in.
func governed(t *testing.T) *house {
	t.Helper()
	var h *house
	h = newHouseFresh(t, nil, cluster.Freshness{}, func(c *gateway.Config) {
		c.Fleet = fleet.New(fleet.Config{Objects: objectsOf{&h}, Members: c.Members, Access: c.Access, Deadline: fleetDeadline, ControlPlane: "cp", Log: c.Log})
	})
	return h
}

// label gives a cluster labels, written as JSON.
func (h *house) label(name, labels string) {
	h.t.Helper()
	o, err := h.objects.Get(h.t.Context(), "clusters/"+name)
	if err == nil {
		value := []byte(`{"metadata":{"name":"` + name + `","labels":` + labels + `}}`)
		_, err = h.objects.Update(h.t.Context(), o.Key, value, o.Revision)
	}
	if err != nil {
		h.t.Fatal(err)
	}
}

// TestFleetSelectedControlPlane holds: a call that asks for some clusters is never the control-plane cluster's because none of them takes part.
func TestFleetSelectedControlPlane(t *testing.T) {
	h := governed(t)
	members := map[string]*fakeMember{"a": newMember(t, sends(200, podList("10"))), "cp": newMember(t, sends(200, podList("10", "x/one")))}
	for name, env := range map[string]string{"a": "dev", "cp": "prod"} {
		h.add(name, members[name].kubeconfig(`{token: t}`), nil)
		h.label(name, `{"env":"`+env+`"}`)
	}
	h.register("pods", podsOfAll)
	for _, method := range []string{"DELETE", "GET"} {
		for _, query := range []string{"?clusterSelector=env%3Ddev", "?clusterSelector=env%3Dprod", "?clusters=a"} {
			wantStatus(t, h.do(method, "/fleet/api/v1/namespaces/x/secrets"+query, nil, ""), 404, "not_global", "no ResourceRegistry")
			wantStatus(t, h.do(method, "/fleet/api/v1/namespaces/x/secrets/one"+query, nil, ""), 404, "not_global", "no ResourceRegistry")
		}
	}
	for name, m := range members {
		for _, got := range m.take() {
			if got.URI != "/api/v1" { // of its kinds it may be asked
				t.Errorf("cluster %s is asked %s %s", name, got.Method, got.URI)
			}
		}
	}
	// Without any of these the call is the control-plane cluster's.
	if resp := h.do("GET", "/fleet/api/v1/namespaces/x/secrets", nil, ""); resp.StatusCode != http.StatusOK || len(members["cp"].arrived()) == 0 {
		t.Errorf("what no registry takes in is answered %s", resp.Status)
	}
}
