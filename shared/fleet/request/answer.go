package request

import (
	"fmt"
	"mime"
	"strings"

	"github.com/clusterpass/clusterpass/shared/fleet/naming"
	"github.com/clusterpass/clusterpass/shared/status"
)

// IsQualified reports whether names in the answer are name@cluster, as in the request or for kubectl's next request.
func (r *Request) IsQualified() bool {
	if comparesName(r) {
		return false
	}
	return r.Route.Qualified || r.Cluster != "" || r.NamespaceCluster != "" && r.Command() == commandDescribe ||
		listsToDelete(r)
}

// NewAnswer returns the rewriter for objects of a cluster. acquire is called before an object is decoded whole.
func (r *Request) NewAnswer(cluster string, acquire func(bytes int) (release func(), err error)) *naming.Answer {
	answer := naming.NewAnswer(r.References(), cluster, r.IsQualified())
	answer.AcquireDecodeSlot = acquire
	if r.NamespaceCluster != "" {
		answer.QualifyNamespaces()
	}
	r.leadToCluster(answer)
	return answer
}

// AcceptJSON returns the Accept header for members: the JSON forms that the client accepts, in the client's order.
func (r *Request) AcceptJSON() (string, error) {
	lines := r.Header["Accept"]
	if len(lines) == 0 {
		return "application/json", nil
	}
	var out []string
	for clause := range strings.SplitSeq(strings.Join(lines, ","), ",") {
		media, params, err := mime.ParseMediaType(strings.TrimSpace(clause))
		if err != nil || params["q"] == "0" {
			continue
		}
		switch media {
		case "application/json", "application/*", "*/*":
		default:
			continue
		}
		form := "application/json"
		if as := params["as"]; as != "" {
			form += fmt.Sprintf(";as=%s;g=%s;v=%s", as, params["g"], params["v"])
		}
		out = append(out, form)
	}
	if len(out) == 0 {
		return "", status.New(status.NotAcceptable, "", "the fleet responds with application/json, as objects, Table or "+
			"PartialObjectMetadata, because it adds the cluster to each object; the client accepts only %.200q",
			strings.Join(lines, ", "))
	}
	return strings.Join(out, ", "), nil
}

// leadToCluster adds the cluster to the names and selectors that kubectl uses in its next requests.
func (r *Request) leadToCluster(answer *naming.Answer) {
	switch command := r.Command(); {
	case findsPods[command] && r.Resource.Verb == "get":
		answer.AddClusterToSelectors()
	case command != commandDescribe || !r.IsQualified():
	case r.Resource.Verb == "get":
		answer.QualifyNamespaces()
	case r.Resource.Resource == "pods":
		answer.QualifyClaims()
	}
}
