package fleet_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/clusterpass/clusterpass/test/e2e"
)

// describedObjects are objects of every kind for which kubectl describe also reads other objects.
const describedObjects = `---
{apiVersion: v1, kind: Service, metadata: {name: web, namespace: NS}, spec: {ports: [{name: http, port: 80}]}}
---
{apiVersion: discovery.k8s.io/v1, kind: EndpointSlice, metadata: {name: web-MEMBER, namespace: NS,
  labels: {kubernetes.io/service-name: web}}, addressType: IPv4, endpoints: [{addresses: [10.9.8.NUMBER]}],
  ports: [{name: http, port: 8080}]}
---
{apiVersion: networking.k8s.io/v1, kind: Ingress, metadata: {name: web, namespace: NS},
  spec: {defaultBackend: {service: {name: web, port: {number: 80}}}}}
---
{apiVersion: v1, kind: PersistentVolumeClaim, metadata: {name: data, namespace: NS},
  spec: {accessModes: [ReadWriteOnce], storageClassName: none, resources: {requests: {storage: 1Gi}}}}
---
{apiVersion: v1, kind: Pod, metadata: {name: uses-MEMBER, namespace: NS}, spec: {automountServiceAccountToken: false,
  nodeSelector: {none: such}, containers: [{name: c, image: i}],
  volumes: [{name: v, persistentVolumeClaim: {claimName: data}}]}}
---
{apiVersion: v1, kind: ResourceQuota, metadata: {name: quota-MEMBER, namespace: NS}, spec: {hard: {pods: 10NUMBER}}}
---
{apiVersion: v1, kind: LimitRange, metadata: {name: limits, namespace: NS},
  spec: {limits: [{type: Container, max: {cpu: 7NUMBER}}]}}
---
{apiVersion: apps/v1, kind: Deployment, metadata: {name: web, namespace: NS}, spec: {replicas: NUMBER,
  selector: {matchLabels: {app: web}}, template: {metadata: {labels: {app: web}},
  spec: {automountServiceAccountToken: false, nodeSelector: {none: such}, containers: [{name: c, image: MEMBER,
  resources: {requests: {cpu: 1m}, limits: {cpu: 1m}}}]}}}}
---
{apiVersion: batch/v1, kind: Job, metadata: {name: once, namespace: NS}, spec: {suspend: true,
  template: {spec: {restartPolicy: Never, containers: [{name: c, image: MEMBER}]}}}}
---
{apiVersion: batch/v1, kind: CronJob, metadata: {name: often, namespace: NS}, spec: {suspend: true,
  schedule: "0 0 1 1 *", jobTemplate: {spec: {template: {spec: {restartPolicy: Never,
  containers: [{name: c, image: MEMBER}]}}}}}}
---
{apiVersion: apps/v1, kind: StatefulSet, metadata: {name: db, namespace: NS}, spec: {replicas: 0, serviceName: db,
  selector: {matchLabels: {app: db}}, template: {metadata: {labels: {app: db}},
  spec: {containers: [{name: c, image: MEMBER}]}}}}
---
{apiVersion: apps/v1, kind: DaemonSet, metadata: {name: each, namespace: NS},
  spec: {selector: {matchLabels: {app: each}}, template: {metadata: {labels: {app: each}},
  spec: {nodeSelector: {none: such}, containers: [{name: c, image: MEMBER}]}}}}
---
{apiVersion: autoscaling/v2, kind: HorizontalPodAutoscaler, metadata: {name: web, namespace: NS},
  spec: {maxReplicas: 3, scaleTargetRef: {apiVersion: apps/v1, kind: StatefulSet, name: db}}}
---
{apiVersion: policy/v1, kind: PodDisruptionBudget, metadata: {name: web, namespace: NS}, spec: {minAvailable: 1,
  selector: {matchLabels: {app: web}}}}
---
{apiVersion: v1, kind: ServiceAccount, metadata: {name: robot, namespace: NS}}
---
{apiVersion: v1, kind: ConfigMap, metadata: {name: settings, namespace: NS}, data: {of: MEMBER}}
---
{apiVersion: v1, kind: Secret, metadata: {name: settings, namespace: NS}, stringData: {of: MEMBER}}
---
{apiVersion: networking.k8s.io/v1, kind: NetworkPolicy, metadata: {name: web, namespace: NS}, spec: {podSelector: {}}}
---
{apiVersion: rbac.authorization.k8s.io/v1, kind: Role, metadata: {name: robot, namespace: NS},
  rules: [{apiGroups: [""], resources: [pods], verbs: [get]}]}
---
{apiVersion: rbac.authorization.k8s.io/v1, kind: RoleBinding, metadata: {name: robot, namespace: NS},
  roleRef: {apiGroup: rbac.authorization.k8s.io, kind: Role, name: robot}}
---
{apiVersion: storage.k8s.io/v1, kind: StorageClass, metadata: {name: NS}, provisioner: none/MEMBER}
---
{apiVersion: v1, kind: PersistentVolume, metadata: {name: NS}, spec: {capacity: {storage: 1Gi},
  accessModes: [ReadWriteOnce], storageClassName: NS-MEMBER, hostPath: {path: /MEMBER}}}
`

// TestFleetDescribe: kubectl describe must show events and related objects of one cluster only.
func TestFleetDescribe(t *testing.T) {
	k := fleet(t, `{apiVersion: "*", kind: "*"}`)
	ns := e2e.NewNamespace(t, e2e.Members...)
	kinds := []string{
		"service/web", "ingress/web", "pvc/data", "deployment/web", "job/once", "cronjob/often", "statefulset/db",
		"daemonset/each", "hpa/web", "pdb/web", "serviceaccount/robot",
		"configmap/settings", "secret/settings", "networkpolicy/web", "role/robot", "rolebinding/robot", "limitrange/limits",
		"storageclass/" + ns, "pv/" + ns, "namespace/" + ns,
	}
	eventMessages := map[string]string{} // by involved object and cluster
	for i, m := range e2e.Members {
		d := e2e.Direct(m)
		t.Cleanup(func() { d.Run(t, "delete", "storageclass/"+ns, "pv/"+ns, "--wait=false", "--ignore-not-found") })
		d.Apply(t, strings.TrimPrefix(strings.NewReplacer("NS", ns, "MEMBER", m, "NUMBER", fmt.Sprint(i+1)).Replace(
			describedObjects), "---\n"))
		node := m + "-node"
		for n, object := range append(kinds, "node/"+node) {
			namespace := ns
			fields := strings.Split(d.Must(t, "get", object, "-n", ns, "-o",
				"jsonpath={.kind} {.apiVersion} {.metadata.name} {.metadata.uid} {.metadata.namespace}"), " ")
			if fields[4] == "" {
				namespace = "default"
			}
			if fields[0] == "Node" { // the kubelet names the node as its UID
				fields[3] = node
			}
			eventMessages[object+m] = strings.ReplaceAll(fmt.Sprintf("of the %s in %s", object, m), "/", " ")
			d.Apply(t, fmt.Sprintf("{apiVersion: v1, kind: Event, metadata: {name: %s-%d, namespace: %s}, "+
				"involvedObject: {kind: %s, apiVersion: %s, name: %s, uid: %s, namespace: %q}, "+
				"type: Normal, reason: %s, message: %q, source: {component: test}}",
				ns, n, namespace, fields[0], fields[1], fields[2], fields[3], fields[4], ns, eventMessages[object+m]))
		}
		t.Cleanup(func() { // of cluster-scoped objects
			d.Run(t, "delete", "events", "-n", "default", "--field-selector=reason="+ns)
		})
		d.Must(t, "wait", "deployment/web", "-n", ns, fmt.Sprintf("--for=jsonpath={.status.replicas}=%d", i+1),
			"--timeout=4m")
	}
	withoutEvents := map[string]bool{"secret/settings": true, "networkpolicy/web": true, "role/robot": true,
		"rolebinding/robot": true, "limitrange/limits": true, "namespace/" + ns: true}
	details := map[string][]string{ // N is the cluster's number, M its name
		"service/web": {"10.9.8.N:8080"}, "ingress/web": {"web:80 (10.9.8.N:8080)"}, "pvc/data": {"uses-M@M"},
		"namespace/" + ns: {"quota-M", "10N", "7N"},
		"deployment/web":  {"Replicas: N desired", "(N/N replicas created)"}, "configmap/settings": {"M"},
		"pv/" + ns:           {ns + "-M"},
		"storageclass/" + ns: {"none/M"},
	}
	for form, k := range map[string]e2e.Kubectl{"/fleet": k, "/fleet/@": qualified(t, k)} {
		for i, m := range e2e.Members {
			other := e2e.Members[1-i]
			for _, object := range append(kinds, "node/"+m+"-node") {
				if form != "/fleet" && details[object] == nil {
					continue // kubectl reads nothing but the object and its events
				}
				got := strings.Join(strings.Fields(k.Must(t, "describe", object+"@"+m, "-n", ns)), " ")
				_, name, _ := strings.Cut(object, "/")
				wants := []string{"Name: " + name + "@" + m}
				if !withoutEvents[object] {
					wants = append(wants, eventMessages[object+m])
				}
				for _, w := range details[object] {
					wants = append(wants, strings.NewReplacer("N", fmt.Sprint(i+1), "M", m).Replace(w))
				}
				for _, w := range wants {
					if !strings.Contains(got, w) {
						t.Errorf("%s: describe %s@%s lacks %q:\n%s", form, object, m, w, got)
					}
				}
				if strings.Contains(got, other) || strings.Contains(got, "<error") {
					t.Errorf("%s: describe %s@%s says\n%s", form, object, m, got)
				}
			}
		}
	}
	got := qualified(t, k).Must(t, "describe", "services", "-n", ns)
	for i, m := range e2e.Members {
		e2e.WantText(t, got, "web@"+m, fmt.Sprintf("10.9.8.%d:8080", i+1))
	}
}
