// Package discovery answers requests that are for no resource: discovery, OpenAPI, version and health.
//
// A Handler answers one request. Caches reuse a result only for the caller for whom it was built.
//
// Invariants:
//   - The most frequent kind and scope of a resource win, or on a tie those of the cluster that was registered first.
//     The vote of the control-plane cluster outweighs all others.
//   - A member that fails causes a warning, but not in a 304. The request fails instead if it is strict, or if all
//     members fail.
//   - The paths healthz, livez and readyz call no member, and need no grant.
//   - The size of every document of a member is bounded. Discovery and the OpenAPI index also have a bounded number of
//     values. A decoded JSON object of OpenAPI has a bounded number of keys. A protobuf document has a bounded number
//     of entries.
package discovery

import (
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"net/http"
	"slices"
	"strings"

	discoveryv2 "k8s.io/api/apidiscovery/v2"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/clusterpass/clusterpass/shared/fleet/members"
	"github.com/clusterpass/clusterpass/shared/fleet/respond"
	"github.com/clusterpass/clusterpass/shared/fleet/selection"
	"github.com/clusterpass/clusterpass/shared/status"
)

// Serve writes the response. It returns an error only if nothing was written.
func (h *Handler) Serve(w http.ResponseWriter) error {
	path := h.Request.Route.Path
	if h.Request.IsWrite() {
		return status.New(status.NotAllowed, "", "the fleet does not support %s %s", h.Request.Method, path)
	}
	parts := strings.Split(strings.Trim(path, "/"), "/")
	if parts[0] == "healthz" || parts[0] == "livez" || parts[0] == "readyz" {
		w.Header().Set("Content-Type", "text/plain; charset=utf-8")
		_, _ = w.Write([]byte("ok")) // the gateway's own health; a member's is at /clusters/NAME
		return nil
	}
	isDiscovery := parts[0] == "api" && len(parts) <= 2 || parts[0] == "apis" && len(parts) <= 3
	allowed, err := h.Selector.Allowed(h.Client.Context())
	if isDiscovery && errors.Is(err, selection.ErrNoClusters) { // kubectl would print an error five times
		members.AddWarning(w.Header(), err.Error())
		return h.writeDiscovery(w, discoveryv2.APIGroupDiscoveryList{}, parts)
	}
	if err != nil {
		return err
	}
	// The cluster with the least ID of those that respond answers /version, and wins in OpenAPI v2. In other documents it
	// decides ties. The ID is the order of registration.
	slices.SortFunc(allowed, func(a, b members.Entry) int { return cmp.Compare(a.ID, b.ID) })
	switch {
	case isDiscovery:
		return h.discovery(w, allowed, parts)
	case parts[0] == "version" && len(parts) == 1:
		return h.version(w, allowed)
	case parts[0] == "openapi" && len(parts) == 2 && parts[1] == "v2":
		return h.openAPI2(w, allowed)
	case parts[0] == "openapi" && len(parts) > 1 && parts[1] == "v3":
		return h.openAPI(w, allowed, strings.Join(parts[2:], "/"))
	}
	return status.New(status.UnknownPath, "", "the fleet serves nothing at %s; send the request to one cluster at "+
		"/clusters/NAME%s",
		path, path)
}

func (h *Handler) version(w http.ResponseWriter, allowed []members.Entry) error {
	bodies := make([][]byte, len(allowed))
	good, failures, err := h.documents(allowed, bodies, maxIndex, members.Call{Path: "/version"})
	if err != nil {
		return err
	}
	var answer []byte
	for _, i := range good {
		if !isObject(bodies[i]) {
			name := allowed[i].Name
			failures = append(failures, members.NewFailure(name, http.StatusBadGateway, nil,
				"cluster %q sends a version that is not a JSON object", name))
		} else if answer == nil {
			answer = bodies[i]
		}
	}
	if answer == nil || len(failures) > 0 && h.Request.Strict {
		return members.Summary(failures)
	}
	members.Warn(w.Header(), failures)
	respond.JSON(w, http.StatusOK, answer)
	return nil
}

func isObject(text []byte) bool {
	return bytes.HasPrefix(bytes.TrimSpace(text), []byte("{")) && json.Valid(text)
}

// nothingGlobal is the warning for a union without kinds. kubectl prints it before its own error about the unknown
// kind.
const nothingGlobal = "no kind is global: no ResourceRegistry of search.karmada.io/v1alpha1 covers a kind in a " +
	"cluster that you may call; create one, or send the request to one cluster at /clusters/NAME"

func (h *Handler) discovery(w http.ResponseWriter, allowed []members.Entry, parts []string) error {
	union, failures, err := h.union(allowed)
	if err != nil {
		return err
	}
	members.WarnOf(w.Header(), failures, "its kinds are left out")
	if len(union.Items) == 0 && len(failures) == 0 {
		members.AddWarning(w.Header(), nothingGlobal)
	}
	return h.writeDiscovery(w, union, parts)
}

// writeDiscovery writes the part of a union that the path names. It adds the kinds of self-subject reviews, which the
// fleet itself answers.
func (h *Handler) writeDiscovery(w http.ResponseWriter, union discoveryv2.APIGroupDiscoveryList, parts []string) error {
	union = withSelfReviews(union)
	if len(parts) == 1 {
		if v := aggregatedVersion(h.Request.Header); v != "" {
			return writeAggregated(w, v, groupsOf(union, parts[0] == "api"))
		}
	}
	doc := document(union, parts)
	if doc == nil || doc == (*metav1.APIResourceList)(nil) {
		return notGlobal(h.Request.Route.Path)
	}
	body, err := json.Marshal(doc)
	if err != nil {
		return err
	}
	respond.JSON(w, http.StatusOK, append(body, '\n'))
	return nil
}
