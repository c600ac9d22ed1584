package request

import "strings"

// commandHeader has the command of kubectl. Some commands read an object, and then related ones without a cluster.
// Answers to them therefore have names and selectors that select the object's cluster.
const commandHeader = "Kubectl-Command"

// Commands of kubectl that need other answers.
const (
	CommandApply     = "kubectl apply"
	CommandEdit      = "kubectl edit"
	commandDelete    = "kubectl delete"
	commandDescribe  = "kubectl describe"       // reads what is in the namespace of an object
	commandReconcile = "kubectl auth reconcile" // checks that a namespace exists, before it creates a role
)

// findsPods has the commands that list the pods that an object's selector matches.
var findsPods = map[string]bool{
	"kubectl attach": true, "kubectl exec": true, "kubectl logs": true, "kubectl port-forward": true,
}

// showsManifest has the commands whose patches have the manifest's annotations, unless the stored object has the same.
var showsManifest = map[string]bool{CommandApply: true, "kubectl diff": true}

// ShowsManifest reports whether a command's patches have the annotations of the manifest that the object lacks.
func ShowsManifest(command string) bool { return showsManifest[command] }

// Command returns the command of kubectl that sends the request, "" for other clients.
func (r *Request) Command() string { return r.Header.Get(commandHeader) }

// comparesName reports whether kubectl compares the answer with a manifest. It would patch any other name each time.
func comparesName(r *Request) bool {
	return showsManifest[r.Command()] && r.Cluster == "" && r.Resource.Name != ""
}

// listsToDelete reports whether kubectl delete will delete the listed names. It only waits if it selects one name.
func listsToDelete(r *Request) bool {
	waits := strings.Contains(r.Param("fieldSelector"), "metadata.name")
	return r.Command() == commandDelete && r.Resource.Verb == "list" && r.NamespaceCluster == "" && !waits
}

// ChecksNamespace reports whether kubectl only checks that a namespace exists, so that any cluster may answer.
func (r *Request) ChecksNamespace() bool {
	isNamespace := r.Resource.APIGroup == "" && r.Resource.Resource == "namespaces" && r.Resource.Verb == "get"
	return isNamespace && r.Command() == commandReconcile
}
