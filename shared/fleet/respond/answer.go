package respond

import (
	"strings"

	"github.com/clusterpass/clusterpass/shared/fleet/members"
	"github.com/clusterpass/clusterpass/shared/fleet/naming"
	"github.com/clusterpass/clusterpass/shared/fleet/request"
)

// Commands of kubectl that need other names in answers.
const (
	commandDelete   = "kubectl delete"
	commandDescribe = "kubectl describe" // reads an object, and then others in its namespace
)

// findsPods has the commands that list the pods that an object's selector matches.
var findsPods = map[string]bool{
	"kubectl attach": true, "kubectl exec": true, "kubectl logs": true, "kubectl port-forward": true,
}

// NewAnswer returns the rewriter for objects of a cluster. Objects that it decodes whole need a slot of the client.
func NewAnswer(client *members.Client, req *request.Request, cluster string) *naming.Answer {
	qualified := isQualified(req)
	answer := naming.NewAnswer(req.References(), cluster, qualified, client)
	if req.NamespaceCluster != "" {
		answer.QualifyNamespaces()
	}
	switch command := req.Command(); { // names and selectors that kubectl uses in its next requests
	case findsPods[command] && req.Resource.Verb == "get":
		answer.AddClusterToSelectors()
	case command != commandDescribe || !qualified:
	case req.Resource.Verb == "get":
		answer.QualifyNamespaces()
	case req.Resource.Resource == "pods":
		answer.QualifyClaims()
	}
	return answer
}

// isQualified reports whether names in the answer are name@cluster, as in the request or for kubectl's next request. A
// namespace@cluster already names the cluster. Names there stay as requested, because clients such as helm delete what
// has another name than they applied.
func isQualified(req *request.Request) bool {
	switch {
	case req.Cluster != "":
		return true
	case comparesName(req):
		return false
	case req.NamespaceCluster != "":
		return req.Command() == commandDescribe
	}
	return req.Route.Qualified || listsToDelete(req)
}

// comparesName reports whether kubectl compares the answer with a manifest. It would patch any other name each time.
func comparesName(req *request.Request) bool {
	return request.ShowsManifest(req.Command()) && req.Resource.Name != ""
}

// listsToDelete reports whether kubectl delete will delete the listed names. It only waits if it selects one name.
func listsToDelete(req *request.Request) bool {
	waits := strings.Contains(req.Param("fieldSelector"), "metadata.name")
	return req.Command() == commandDelete && req.Resource.Verb == "list" && !waits
}
