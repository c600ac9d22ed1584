// Package respond writes responses of the fleet to clients, and decides the form of the names in them.
package respond

import (
	"net/http"
	"slices"
	"strconv"

	"github.com/clusterpass/clusterpass/shared/fleet/members"
	"github.com/clusterpass/clusterpass/shared/fleet/naming"
	"github.com/clusterpass/clusterpass/shared/fleet/request"
	"github.com/clusterpass/clusterpass/shared/status"
)

// JSON writes a whole response.
func JSON(w http.ResponseWriter, code int, body []byte) {
	Typed(w, "application/json", code, body)
}

// Typed writes a whole response with a content type.
func Typed(w http.ResponseWriter, contentType string, code int, body []byte) {
	h := w.Header()
	setHeader(h, contentType)
	h.Set("Content-Length", strconv.Itoa(len(body)))
	w.WriteHeader(code)
	_, _ = w.Write(body)
}

// Stream writes the header of a response in JSON whose length is not known.
func Stream(w http.ResponseWriter) {
	setHeader(w.Header(), "application/json")
	w.WriteHeader(http.StatusOK)
}

func setHeader(h http.Header, contentType string) {
	h.Set("Content-Type", contentType)
	h.Set("Cache-Control", "no-cache, private")
	h.Set("X-Content-Type-Options", "nosniff")
}

// Failure passes a member's Status to the client, and returns the error for the log. Without a Status, it writes
// nothing and returns the error for the client.
func Failure(w http.ResponseWriter, e *members.Failure, answer *naming.Answer) error {
	if e.Raw == nil {
		return members.Summary([]*members.Failure{e})
	}
	JSON(w, e.Code, answer.Status(e.Raw))
	return &status.Error{Reason: status.MembersRefused, Cluster: e.Cluster, Message: e.Message, As: e.Status}
}

// Incomplete returns the error of a list or watch for these failures.
func Incomplete(req *request.Request, failures []*members.Failure) error {
	err := members.Summary(failures)
	e := status.From(err)
	if req.Strict && slices.ContainsFunc(failures, (*members.Failure).IsNotFound) {
		e.Message += "; a strict request needs " + req.Resource.Resource + " of every cluster that a ResourceRegistry " +
			"chooses: choose only clusters that have them, by spec.targetCluster of the registries, or by the " +
			"parameter " + request.ClustersParam
	}
	return err
}
