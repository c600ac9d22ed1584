package naming

import (
	"slices"
	"strings"
	"sync"
)

// Reference is a field whose value may end in @cluster, or is a resourceVersion. Body rewrites the value for a member.
type Reference struct {
	// Group and Resource are those of the URL, "*" for every resource. A subresource follows the resource and a slash.
	Group, Resource string
	Kind            string
	// Path has the names of fields, with dots between. [] follows a list, {} a map whose values are references.
	Path string
	// Wire has the numbers of the same fields in protobuf. The values of a map are field 2 of its entries.
	Wire string
	// To has the kinds of the named object, with commas between them. "any" means every kind, and "itself" the object
	// that has the field.
	To          string
	Scope       Scope  // where the named object is
	SiblingKind string // the Reference applies only if the field kind beside it has this value; "" means always
	Distinct    bool   // removes elements of the list that are equal after the rewrite
}

// Scope is where the object of a Reference is.
type Scope string

// The values of Scope.
const (
	ScopeNamespace Scope = "namespace" // in the namespace of the object with the reference
	ScopeCluster   Scope = "cluster"   // in no namespace
	ScopeBeside    Scope = "beside"    // in the namespace that a field beside the name has
	// ScopeSelf is for the name, namespace and labels of the object itself. Body.ReferencedClusters ignores them.
	ScopeSelf    Scope = "self"
	scopeVersion Scope = "version" // a resourceVersion, which the member's own replaces
)

const (
	rbac          = "rbac.authorization.k8s.io"
	reviewGroup   = "authorization.k8s.io"
	hookGroup     = "admissionregistration.k8s.io"
	everyGroup    = "*"
	everyResource = "*"
)

// metadataReferences returns the rows of every kind, also of kinds without a row of their own.
func metadataReferences() []Reference {
	return rowsOf(everyGroup, everyResource, "*",
		refer("metadata.name", "1.1", "itself", ScopeSelf),
		refer("metadata.namespace", "1.3", "Namespace", ScopeSelf),
		refer("metadata.labels{}", "1.11.2", "itself", ScopeSelf),
		refer("metadata.ownerReferences[].name", "1.13.3", "any", ScopeNamespace),
		refer("metadata.resourceVersion", "1.6", "itself", scopeVersion),
	)
}

func deletionReferences() []Reference {
	return rowsOf(everyGroup, everyResource, "DeleteOptions",
		refer("preconditions.resourceVersion", "2.2", "itself", scopeVersion),
	)
}

func kindReferences() []Reference {
	return slices.Concat(
		bindingReferences("rolebindings", "RoleBinding", "Role, ClusterRole", ScopeNamespace),
		bindingReferences("clusterrolebindings", "ClusterRoleBinding", "ClusterRole", ScopeCluster),

		rowsOf("", "serviceaccounts", "ServiceAccount",
			refer("secrets[].name", "2.3", "Secret", ScopeNamespace),
			refer("imagePullSecrets[].name", "3.1", "Secret", ScopeNamespace),
		),
		rowsOf("", "serviceaccounts/token", "TokenRequest",
			refer("spec.boundObjectRef.name", "2.3.3", "Pod, Secret, Node", ScopeNamespace),
		),

		rowsOf("autoscaling", "horizontalpodautoscalers", "HorizontalPodAutoscaler",
			refer("spec.scaleTargetRef.name", "2.1.2", "any", ScopeNamespace),
		),
		rowsOf("policy", "poddisruptionbudgets", "PodDisruptionBudget",
			refer("spec.selector.matchLabels{}", "2.2.1.2", "Pod", ScopeSelf),
		),
		rowsOf("", "pods/eviction", "Eviction",
			refer("deleteOptions.preconditions.resourceVersion", "2.2.2", "Pod", scopeVersion),
		),
		rowsOf("", "pods/binding", "Binding",
			refer("target.name", "2.3", "Node", ScopeCluster),
		),
		rowsOf("", "bindings", "Binding",
			refer("target.name", "2.3", "Node", ScopeCluster),
		),

		rowsOf("", "persistentvolumeclaims", "PersistentVolumeClaim",
			refer("spec.volumeName", "2.3", "PersistentVolume", ScopeCluster),
			refer("spec.storageClassName", "2.5", "StorageClass", ScopeCluster),
			refer("spec.dataSource.name", "2.7.3", "any", ScopeNamespace),
			refer("spec.dataSourceRef.name", "2.8.3", "any", ScopeBeside),
			refer("spec.dataSourceRef.namespace", "2.8.4", "Namespace", ScopeCluster),
		),
		rowsOf("", "persistentvolumes", "PersistentVolume",
			refer("spec.claimRef.name", "2.4.3", "PersistentVolumeClaim", ScopeBeside),
			refer("spec.claimRef.namespace", "2.4.2", "Namespace", ScopeCluster),
			refer("spec.storageClassName", "2.6", "StorageClass", ScopeCluster),
		),
		rowsOf("storage.k8s.io", "volumeattachments", "VolumeAttachment",
			refer("spec.nodeName", "2.3", "Node", ScopeCluster),
			refer("spec.source.persistentVolumeName", "2.2.1", "PersistentVolume", ScopeCluster),
		),

		serviceAndWorkloadReferences(),
	)
}

func serviceAndWorkloadReferences() []Reference {
	return slices.Concat(
		rowsOf("", "services", "Service",
			refer("spec.selector{}", "2.2.2", "Pod", ScopeSelf),
		),
		rowsOf("discovery.k8s.io", "endpointslices", "EndpointSlice",
			refer("endpoints[].targetRef.name", "2.4.3", "any", ScopeBeside),
			refer("endpoints[].targetRef.namespace", "2.4.2", "Namespace", ScopeCluster),
			refer("endpoints[].nodeName", "2.6", "Node", ScopeCluster),
		),
		rowsOf("", "endpoints", "Endpoints",
			refer("subsets[].addresses[].targetRef.name", "2.1.2.3", "any", ScopeBeside),
			refer("subsets[].addresses[].targetRef.namespace", "2.1.2.2", "Namespace", ScopeCluster),
			refer("subsets[].addresses[].nodeName", "2.1.4", "Node", ScopeCluster),
			refer("subsets[].notReadyAddresses[].targetRef.name", "2.2.2.3", "any", ScopeBeside),
			refer("subsets[].notReadyAddresses[].targetRef.namespace", "2.2.2.2", "Namespace", ScopeCluster),
			refer("subsets[].notReadyAddresses[].nodeName", "2.2.4", "Node", ScopeCluster),
		),
		rowsOf("networking.k8s.io", "ingresses", "Ingress",
			refer("spec.defaultBackend.service.name", "2.1.4.1", "Service", ScopeNamespace),
			refer("spec.rules[].http.paths[].backend.service.name", "2.3.2.1.1.2.4.1", "Service", ScopeNamespace),
			refer("spec.tls[].secretName", "2.2.2", "Secret", ScopeNamespace),
			refer("spec.ingressClassName", "2.4", "IngressClass", ScopeCluster),
		),
		rowsOf("networking.k8s.io", "networkpolicies", "NetworkPolicy",
			refer("spec.podSelector.matchLabels{}", "2.1.1.2", "Pod", ScopeSelf),
		),
		rowsOf(hookGroup, "validatingwebhookconfigurations", "ValidatingWebhookConfiguration",
			refer("webhooks[].clientConfig.service.name", "2.2.1.2", "Service", ScopeBeside),
			refer("webhooks[].clientConfig.service.namespace", "2.2.1.1", "Namespace", ScopeCluster),
		),
		rowsOf(hookGroup, "mutatingwebhookconfigurations", "MutatingWebhookConfiguration",
			refer("webhooks[].clientConfig.service.name", "2.2.1.2", "Service", ScopeBeside),
			refer("webhooks[].clientConfig.service.namespace", "2.2.1.1", "Namespace", ScopeCluster),
		),

		rowsOf("", "replicationcontrollers", "ReplicationController",
			refer("spec.selector{}", "2.2.2", "Pod", ScopeSelf),
		),
		rowsOf("apps", "deployments", "Deployment",
			refer("spec.selector.matchLabels{}", "2.2.1.2", "Pod", ScopeSelf),
		),
		rowsOf("apps", "replicasets", "ReplicaSet",
			refer("spec.selector.matchLabels{}", "2.2.1.2", "Pod", ScopeSelf),
		),
		rowsOf("apps", "statefulsets", "StatefulSet",
			refer("spec.selector.matchLabels{}", "2.2.1.2", "Pod", ScopeSelf),
			refer("spec.serviceName", "2.5", "Service", ScopeNamespace),
		),
		rowsOf("apps", "daemonsets", "DaemonSet",
			refer("spec.selector.matchLabels{}", "2.1.1.2", "Pod", ScopeSelf),
		),
		rowsOf("batch", "jobs", "Job",
			refer("spec.selector.matchLabels{}", "2.4.1.2", "Pod", ScopeSelf),
		),
		rowsOf("batch", "cronjobs", "CronJob",
			refer("spec.jobTemplate.metadata.labels{}", "2.5.1.11.2", "Job", ScopeSelf),
		),

		rowsOf(reviewGroup, "selfsubjectrulesreviews", "SelfSubjectRulesReview",
			refer("spec.namespace", "2.1", "Namespace", ScopeCluster),
		),
		eventReferences("", "involvedObject", "2", "13"),
		eventReferences("events.k8s.io", "regarding", "8", "9"),
		reviewReferences("selfsubjectaccessreviews", "SelfSubjectAccessReview"),
		reviewReferences("subjectaccessreviews", "SubjectAccessReview"),
		reviewReferences("localsubjectaccessreviews", "LocalSubjectAccessReview"),
	)
}

func rowsOf(group, resource, kind string, rows ...Reference) []Reference {
	for i := range rows {
		rows[i].Group, rows[i].Resource, rows[i].Kind = group, resource, kind
	}
	return rows
}

func refer(path, wire, to string, scope Scope) Reference {
	return Reference{Path: path, Wire: wire, To: to, Scope: scope}
}

// bindingReferences returns the rows of a binding. Names of users and groups may contain an @ and stay unchanged.
func bindingReferences(resource, kind, role string, scope Scope) []Reference {
	rows := rowsOf(rbac, resource, kind,
		refer("roleRef.name", "3.3", role, scope),
		refer("subjects[].namespace", "2.4", "Namespace", ScopeCluster),
		refer("subjects[].name", "2.3", "ServiceAccount", ScopeBeside),
	)
	rows[1].Distinct, rows[2].Distinct, rows[2].SiblingKind = true, true, "ServiceAccount"
	return rows
}

// eventReferences returns the rows of an Event. about and number name the field with the event's object.
func eventReferences(group, about, number, related string) []Reference {
	return rowsOf(group, "events", "Event",
		refer(about+".name", number+".3", "any", ScopeBeside),
		refer(about+".namespace", number+".2", "Namespace", ScopeCluster),
		// kubectl describe node also selects events with the node's name as uid: older kubelets wrote events so.
		refer(about+".uid", number+".4", "Node", ScopeCluster),
		refer("related.name", related+".3", "any", ScopeBeside),
		refer("related.namespace", related+".2", "Namespace", ScopeCluster),
	)
}

func reviewReferences(resource, kind string) []Reference {
	return rowsOf(reviewGroup, resource, kind,
		refer("spec.resourceAttributes.name", "2.1.7", "any", ScopeBeside),
		refer("spec.resourceAttributes.namespace", "2.1.1", "Namespace", ScopeCluster),
	)
}

// podReferences returns the rows of a pod. Their paths are those in a Pod and in a template of one.
func podReferences() []Reference {
	return slices.Concat(rowsOf("", "pods", "Pod",
		refer("spec.nodeName", "2.10", "Node", ScopeCluster),
		refer("spec.serviceAccountName", "2.8", "ServiceAccount", ScopeNamespace),
		refer("spec.serviceAccount", "2.9", "ServiceAccount", ScopeNamespace),
		refer("spec.imagePullSecrets[].name", "2.15.1", "Secret", ScopeNamespace),
		refer("spec.priorityClassName", "2.24", "PriorityClass", ScopeCluster),
		refer("spec.runtimeClassName", "2.29", "RuntimeClass", ScopeCluster),
		refer("spec.volumes[].configMap.name", "2.1.2.19.1.1", "ConfigMap", ScopeNamespace),
		refer("spec.volumes[].secret.secretName", "2.1.2.6.1", "Secret", ScopeNamespace),
		refer("spec.volumes[].persistentVolumeClaim.claimName", "2.1.2.10.1", "PersistentVolumeClaim", ScopeNamespace),
		refer("spec.volumes[].projected.sources[].configMap.name", "2.1.2.26.1.3.1.1", "ConfigMap", ScopeNamespace),
		refer("spec.volumes[].projected.sources[].secret.name", "2.1.2.26.1.1.1.1", "Secret", ScopeNamespace),
		refer("spec.containers[].name", "2.2.1", "itself", ScopeSelf),
	), containerReferences("spec.containers[]", "2.2"), containerReferences("spec.initContainers[]", "2.20"))
}

func containerReferences(path, wire string) []Reference {
	return rowsOf("", "pods", "Pod",
		refer(path+".env[].valueFrom.configMapKeyRef.name", wire+".7.3.3.1.1", "ConfigMap", ScopeNamespace),
		refer(path+".env[].valueFrom.secretKeyRef.name", wire+".7.3.4.1.1", "Secret", ScopeNamespace),
		refer(path+".envFrom[].configMapRef.name", wire+".19.2.1.1", "ConfigMap", ScopeNamespace),
		refer(path+".envFrom[].secretRef.name", wire+".19.3.1.1", "Secret", ScopeNamespace),
	)
}

type template struct{ Group, Resource, Kind, Path, Wire string }

var podTemplates = []template{
	{"", "podtemplates", "PodTemplate", "template", "2"},
	{"", "replicationcontrollers", "ReplicationController", "spec.template", "2.3"},
	{"apps", "deployments", "Deployment", "spec.template", "2.3"},
	{"apps", "replicasets", "ReplicaSet", "spec.template", "2.3"},
	{"apps", "statefulsets", "StatefulSet", "spec.template", "2.3"},
	{"apps", "daemonsets", "DaemonSet", "spec.template", "2.2"},
	{"batch", "jobs", "Job", "spec.template", "2.6"},
	{"batch", "cronjobs", "CronJob", "spec.jobTemplate.spec.template", "2.5.2.6"},
}

func inTemplates() (rows []Reference) {
	labels := Reference{Path: "metadata.labels{}", Wire: "1.11.2", To: "Pod", Scope: ScopeSelf}
	pod := append(podReferences(), labels)
	for _, t := range podTemplates {
		for _, r := range pod {
			r.Group, r.Resource, r.Kind = t.Group, t.Resource, t.Kind
			r.Path, r.Wire = t.Path+"."+r.Path, t.Wire+"."+r.Wire
			rows = append(rows, r)
		}
	}
	return rows
}

// References are the rows for one resource. They are safe for concurrent use.
type References struct {
	requests *field // by the names of fields
	answers  *field // without metadata and versions
	wire     *wire  // by the numbers of fields, without metadata
	listed   bool   // the resource has rows of its own
}

// Deletion has the References of the body of a DELETE.
var Deletion = referencesOf(deletionReferences(), false)

// byResource maps a group and a resource to its References. All other resources are unlisted. The first use builds it
// and its rows, because the table would be a tenth of a cold start.
var (
	byResource = sync.OnceValue(index)
	unlisted   = referencesOf(metadataReferences(), false)
)

func index() map[[2]string]*References {
	rows := map[[2]string][]Reference{}
	for _, r := range slices.Concat(kindReferences(), podReferences(), inTemplates()) {
		key := [2]string{r.Group, r.Resource}
		rows[key] = append(rows[key], r)
	}
	shared := metadataReferences()
	out := map[[2]string]*References{}
	for key, own := range rows {
		out[key] = referencesOf(append(own, shared...), true)
	}
	return out
}

// sameKind lists the subresources whose bodies are of the resource's own kind.
var sameKind = []string{"", "status", "finalize", "ephemeralcontainers", "resize"}

// ReferencesOf returns the rows for the bodies of a resource or its subresource.
func ReferencesOf(group, resource, subresource string) *References {
	if !slices.Contains(sameKind, subresource) {
		resource += "/" + subresource
	}
	if r := byResource()[[2]string{group, resource}]; r != nil {
		return r
	}
	return unlisted
}

func referencesOf(rows []Reference, listed bool) *References {
	r := &References{&field{}, &field{}, &wire{}, listed}
	for i := range rows {
		row := &rows[i]
		r.requests.add(row)
		if strings.HasPrefix(row.Path, metadataPath) {
			continue
		}
		r.wire.add(row)
		if row.Scope != scopeVersion {
			r.answers.add(row)
		}
	}
	return r
}

const metadataPath = "metadata."
