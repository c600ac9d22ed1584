package fleet

import (
	"strings"

	"github.com/clusterpass/clusterpass/shared/fleet/naming"
)

// Some commands of kubectl read an object, and go on to ask for others that belong to it, by names and selectors which say nothing of a
// cluster. kubectl says which command it is at: what these read leads to the object's own cluster. They write nothing of it back.
const commandHeader = "Kubectl-Command"

// podFinders list the pods that an object's selector chooses.
var podFinders = map[string]bool{"kubectl attach": true, "kubectl exec": true, "kubectl logs": true, "kubectl port-forward": true}

// describes asks for what is in the object's namespace, as the Services of an Ingress, and looks through the pods for a claim's name.
const describes = "kubectl describe"

// Commands that go on with the names that an answer has.
const (
	applies = "kubectl apply"
	deletes = "kubectl delete"
	edits   = "kubectl edit"
)

// command returns the command of kubectl that sends the request, "" of other clients.
func (q *ask) command() string { return q.r.Header.Get(commandHeader) }

// comparesName reports whether the client compares the answer with a manifest, in which the name is bare. With another
// name, kubectl apply would send a patch of the name each time.
func (q *ask) comparesName() bool {
	return showsManifest[q.command()] && q.named == "" && q.res.Name != ""
}

// listsToDelete reports whether kubectl delete lists the objects that it deletes next, by the listed names. To wait for
// the end of one object, it selects that object's name.
func (q *ask) listsToDelete() bool {
	waits := strings.Contains(q.query.Get("fieldSelector"), "metadata.name")
	return q.command() == deletes && q.res.Verb == "list" && q.within == "" && !waits
}

// lead has an answer to such a command lead to its cluster.
func (q *ask) lead(how *naming.Answer) {
	switch command := q.command(); {
	case podFinders[command] && q.res.Verb == "get":
		how.SelectHere()
	case command != describes || !q.qualified():
	case q.res.Verb == "get":
		how.NamespaceHere()
	case q.res.Resource == "pods":
		how.ClaimsHere()
	}
}

// reconciles makes roles and bindings. Before it makes one, it asks whether the namespace exists, and ignores what the
// namespace contains.
const reconciles = "kubectl auth reconcile"

// checksNamespace reports whether the call only looks for a namespace, so that the one of any cluster answers it.
func (q *ask) checksNamespace() bool {
	isNamespace := q.res.APIGroup == "" && q.res.Resource == "namespaces" && q.res.Verb == "get"
	return isNamespace && q.command() == reconciles
}
