package fleet_test

import (
	"context"
	"maps"
	"slices"
	"strconv"
	"strings"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/discovery"

	"github.com/clusterpass/clusterpass/shared/fleet/cursor"
	"github.com/clusterpass/clusterpass/shared/waittest"
	"github.com/clusterpass/clusterpass/test/e2e"
)

// TestFleetVersionAhead: informers must see a cluster that was restored from a backup. The fleet responds with 410,
// although API servers keep such watches open.
func TestFleetVersionAhead(t *testing.T) {
	fleet(t, "{apiVersion: v1, kind: ConfigMap}")
	client := e2e.FleetClient(t, nil).CoreV1().ConfigMaps("kube-system")
	var version cursor.Version
	waittest.Until(t, "list of all clusters", func() bool {
		list, err := client.List(t.Context(), metav1.ListOptions{})
		if err == nil {
			version, err = cursor.ParseVersion(list.ResourceVersion)
		}
		return err == nil && len(version) == len(e2e.Members)
	})
	ids := slices.Sorted(maps.Keys(version))
	ahead := version.Clone()
	n, err := strconv.ParseUint(version[ids[1]], 10, 64)
	if err != nil {
		t.Fatal(err)
	}
	ahead[ids[1]] = strconv.FormatUint(n+1_000_000, 10)
	for name, options := range map[string]metav1.ListOptions{
		"not older than": {ResourceVersion: ahead.String(), ResourceVersionMatch: metav1.ResourceVersionMatchNotOlderThan},
		"a version":      {ResourceVersion: ahead.String()},
		"exact":          {ResourceVersion: ahead.String(), ResourceVersionMatch: metav1.ResourceVersionMatchExact},
		"a page":         {Limit: 1, Continue: cursor.Token{Version: ahead, Next: ids[1]}.String()},
	} {
		if list, err := client.List(t.Context(), options); !apierrors.IsResourceExpired(err) {
			t.Errorf("%s: %d objects, %v", name, len(list.Items), err)
		}
	}
	ctx, cancel := context.WithTimeout(t.Context(), e2e.Patience)
	defer cancel()
	w, err := client.Watch(ctx, metav1.ListOptions{ResourceVersion: ahead.String()})
	if err == nil {
		w.Stop()
	}
	if !apierrors.IsResourceExpired(err) {
		t.Errorf("a watch: %v", err)
	}
	if w, err := e2e.DirectClient(t, e2e.Members[1]).CoreV1().ConfigMaps("kube-system").Watch(ctx,
		metav1.ListOptions{ResourceVersion: ahead[ids[1]]}); err != nil {
		t.Logf("this API server refuses such watches: %v", err)
	} else {
		w.Stop()
	}
}

// TestFleetWatchColumns: kubectl get -w must print values below their columns, even if clusters have different ones.
func TestFleetWatchColumns(t *testing.T) {
	const crd = `{apiVersion: apiextensions.k8s.io/v1, kind: CustomResourceDefinition,
metadata: {name: gauges.example.org}, spec: {group: example.org, scope: Namespaced,
names: {kind: Gauge, plural: gauges, singular: gauge}, versions: [{name: v1, served: true, storage: true,
schema: {openAPIV3Schema: {type: object, x-kubernetes-preserve-unknown-fields: true}},
additionalPrinterColumns: [{name: Size, type: string, jsonPath: .size}COLOR]}]}}`
	for m, color := range map[string]string{"member1": "", "member2": ", {name: Color, type: string, jsonPath: .color}"} {
		d := e2e.Direct(m)
		d.Apply(t, strings.Replace(crd, "COLOR", color, 1))
		t.Cleanup(func() { d.Run(t, "delete", "crd", "gauges.example.org") })
		d.Must(t, "wait", "--for=condition=Established", "crd/gauges.example.org", "--timeout=4m")
		waittest.Until(t, m+" serves gauges", func() bool { return d.Run(t, "get", "gauges").Code == 0 })
	}
	k, ns := fleet(t, "{apiVersion: example.org/v1, kind: Gauge}"), e2e.NewNamespace(t, e2e.Members...)
	waittest.Until(t, "fleet serves gauges", func() bool { return k.Run(t, "get", "gauges", "-n", ns).Code == 0 })
	create := func(cluster, name string) {
		t.Helper()
		e2e.Direct(cluster).Apply(t, "{apiVersion: example.org/v1, kind: Gauge, metadata: {name: "+name+", namespace: "+ns+
			"}, size: s-"+name+", color: c-"+name+"}")
	}
	create("member1", "g0")
	s := k.Start(t, e2e.Clusters.BuiltKubectl(), "get", "gauges", "-n", ns, "--watch")
	var columns []string
	// row waits for the row of a gauge. It returns the cells with the columns that kubectl printed last.
	row := func(name string) string {
		t.Helper()
		line := s.WaitForLine(name, func(l string) bool {
			if strings.HasPrefix(l, "NAME") {
				columns = strings.Fields(l)
			}
			return strings.HasPrefix(l, name)
		})
		var out []string
		for i, cell := range strings.Fields(line) {
			if i == len(columns) {
				t.Fatalf("%q under %q", line, columns)
			}
			out = append(out, columns[i]+"="+cell)
		}
		return strings.Join(out, " ")
	}
	if got := row("g0"); got != "NAME=g0 CLUSTER=member1 SIZE=s-g0" { // the last row of the list, before the watch
		t.Error(got)
	}
	for _, tt := range []struct{ cluster, name, want string }{
		{"member1", "g1", "NAME=g1 CLUSTER=member1 SIZE=s-g1"},
		{"member2", "g2", "NAME=g2 CLUSTER=member2 SIZE=s-g2 COLOR=c-g2"},
		{"member1", "g3", "NAME=g3 CLUSTER=member1 SIZE=s-g3"},
		{"member2", "g4", "NAME=g4 CLUSTER=member2 SIZE=s-g4 COLOR=c-g4"},
	} {
		create(tt.cluster, tt.name)
		if got := row(tt.name); got != tt.want {
			t.Errorf("%s, want %s", got, tt.want)
		}
	}
}

// TestKubernetesKinds: the fleet could not find kinds in this version of Kubernetes whose names break client-go's
// rules. It checks the groups without a dot.
func TestKubernetesKinds(t *testing.T) {
	_, lists, err := e2e.DirectClient(t, e2e.Members[0]).Discovery().ServerGroupsAndResources()
	if err != nil && !discovery.IsGroupDiscoveryFailedError(err) { // in a group of an extension
		t.Fatal(err)
	}
	n := 0
	for _, list := range lists {
		gv, err := schema.ParseGroupVersion(list.GroupVersion)
		if err != nil {
			t.Fatal(err)
		}
		if strings.Contains(gv.Group, ".") {
			continue
		}
		for _, r := range list.APIResources {
			if strings.Contains(r.Name, "/") {
				continue
			}
			n++
			if guess, _ := meta.UnsafeGuessKindToResource(gv.WithKind(r.Kind)); guess.Resource != r.Name {
				t.Errorf("%s: kind %s is of %s", list.GroupVersion, r.Kind, r.Name)
			}
		}
	}
	if n < 25 {
		t.Errorf("%d kinds", n)
	}
}
