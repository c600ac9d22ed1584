package request

// commandHeader has the command of kubectl. Some commands read an object, and then related ones without a cluster.
// respond.NewAnswer writes names and selectors for them that select the object's cluster.
const commandHeader = "Kubectl-Command"

// Commands of kubectl that change which cluster answers, or whether one does.
const (
	CommandApply     = "kubectl apply"
	CommandEdit      = "kubectl edit"
	commandReconcile = "kubectl auth reconcile" // checks that a namespace exists, before it creates a role
)

var showsManifest = map[string]bool{CommandApply: true, "kubectl diff": true}

// ShowsManifest reports whether a command's patches have those annotations of its manifest that the object lacks.
func ShowsManifest(command string) bool { return showsManifest[command] }

// Command returns the command of kubectl that sends the request, "" for other clients.
func (r *Request) Command() string { return r.Header.Get(commandHeader) }

// ChecksNamespace reports whether kubectl only checks that a namespace exists, so that any cluster may answer.
func (r *Request) ChecksNamespace() bool {
	isNamespace := r.Resource.APIGroup == "" && r.Resource.Resource == "namespaces" && r.Resource.Verb == "get"
	return isNamespace && r.Command() == commandReconcile
}
