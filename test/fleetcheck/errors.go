package main

import (
	"context"
	"fmt"
	"net/http"
	"strings"

	"github.com/clusterpass/clusterpass/shared/waittest"
	"github.com/clusterpass/clusterpass/test/fleetcheck/generate"
)

// refused are requests that the fleet refuses, with the code that docs/reference/fleet.md names. Paths have no prefix.
var refused = []struct {
	name string
	code int
	request
}{
	{"an object that no cluster has", http.StatusNotFound,
		request{method: "GET", path: "/api/v1/namespaces/fleetcheck/configmaps/absent"}},
	{"an object that the named cluster does not have", http.StatusNotFound,
		request{method: "GET", path: "/api/v1/namespaces/fleetcheck/configmaps/absent@member1"}},
	{"a name of a cluster that does not exist", http.StatusNotFound,
		request{method: "GET", path: "/api/v1/namespaces/fleetcheck/configmaps/absent@nowhere"}},
	{"deletion of an object that no cluster has", http.StatusNotFound,
		request{method: "DELETE", path: "/api/v1/namespaces/fleetcheck/configmaps/absent"}},
	{"a new object without a cluster", http.StatusUnprocessableEntity, request{
		method: "POST", path: "/api/v1/namespaces/fleetcheck/configmaps",
		body: []byte(`{"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "nowhere"}}`)}},
	{"a name and an annotation of different clusters", http.StatusUnprocessableEntity, request{
		method: "POST", path: "/api/v1/namespaces/fleetcheck/configmaps",
		body: []byte(`{"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "both@member1",
		 "annotations": {"clusterpass.io/cluster": "member2"}}}`)}},
	{"a body over 3 MiB", http.StatusRequestEntityTooLarge, request{
		method: "POST", path: "/api/v1/namespaces/fleetcheck/configmaps",
		body: []byte(`{"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "big@member1"}, "data": {"a": "` +
			strings.Repeat("a", 4<<20) + `"}}`)}},
	{"a client that takes only protobuf", http.StatusNotAcceptable,
		request{method: "GET", path: "/api/v1/namespaces/fleetcheck/configmaps", accept: typeProtobuf}},
	{"a watch from a version without history", http.StatusGone,
		request{method: "GET", path: "/api/v1/namespaces/fleetcheck/configmaps?watch=true&resourceVersion=5"}},
	{"a label selector that cannot be read", http.StatusBadRequest,
		request{method: "GET", path: "/api/v1/namespaces/fleetcheck/configmaps?labelSelector=a%3D%3D%3Db"}},
	{"a body that is no object", http.StatusBadRequest, request{
		method: "POST", path: "/api/v1/namespaces/fleetcheck/configmaps", body: []byte(`{"apiVersion": "v1", `)}},
}

func (r *runner) compareErrors(ctx context.Context) error {
	for _, one := range refused {
		f := generate.Pick(r.src, forms)
		req := one.request
		req.path = f.prefix + req.path
		r.note("%s: %s %s", one.name, req.method, req.path)
		var fault error
		err := waittest.Poll(ctx, func(ctx context.Context) error {
			a, err := r.gateway.do(ctx, req)
			if err != nil {
				return err
			}
			if isUnavailable(a.code) {
				return fmt.Errorf("%s: code %d: %s", one.name, a.code, head(a.body))
			}
			if a.code != one.code {
				const text = "%s: %s %s: code %d, want %d: %s"
				fault = fmt.Errorf(text, one.name, req.method, req.path, a.code, one.code, head(a.body))
				return nil
			}
			_, fault = a.status()
			return nil
		})
		if fault != nil {
			return fault
		}
		if err != nil {
			return err
		}
	}
	return nil
}
