package main

import (
	"cmp"
	"context"
	"fmt"
	"net/http"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/kubernetes/scheme"

	"github.com/clusterpass/clusterpass/shared/waittest"
)

type kind struct {
	gvk          schema.GroupVersionKind
	resource     string
	isNamespaced bool
	isCustom     bool
}

// Objects of harmful kinds change the responses to other requests, so that pairs of writes would differ.
var harmful = []string{
	"ValidatingWebhookConfiguration", "MutatingWebhookConfiguration", "ValidatingAdmissionPolicy",
	"MutatingAdmissionPolicy",
	"ValidatingAdmissionPolicyBinding", "MutatingAdmissionPolicyBinding", "FlowSchema", "PriorityLevelConfiguration",
	"ServiceCIDR", "IPAddress", "ResourceQuota", "LimitRange", "APIService", "StorageVersion", "Namespace",
}

const customGroup = "fleetcheck.example"

var customKinds = []kind{
	{schema.GroupVersionKind{Group: customGroup, Version: "v1", Kind: "Thing"}, "things", true, true},
	{schema.GroupVersionKind{Group: customGroup, Version: "v1", Kind: "World"}, "worlds", false, true},
}

// typedKinds returns the kinds of client-go's scheme that a cluster stores, in one order for all runs.
func typedKinds(m *member) ([]kind, error) {
	client, err := discovery.NewDiscoveryClientForConfig(m.cluster.RESTConfig())
	if err != nil {
		return nil, err
	}
	_, lists, err := client.ServerGroupsAndResources()
	if err != nil {
		return nil, fmt.Errorf("discover the kinds: %w", err)
	}
	var kinds []kind
	for _, list := range lists {
		gv, err := schema.ParseGroupVersion(list.GroupVersion)
		if err != nil {
			return nil, err
		}
		for _, r := range list.APIResources {
			gvk := gv.WithKind(r.Kind)
			isStored := slices.Contains(r.Verbs, "list") && slices.Contains(r.Verbs, "create")
			if isStored && !strings.Contains(r.Name, "/") && scheme.Scheme.Recognizes(gvk) && !slices.Contains(harmful, r.Kind) {
				kinds = append(kinds, kind{gvk, r.Name, r.Namespaced, false})
			}
		}
	}
	slices.SortFunc(kinds, func(a, b kind) int { return cmp.Compare(a.gvk.String(), b.gvk.String()) })
	return kinds, nil
}

func (k kind) collection(namespace string) string {
	path := "/apis/" + k.gvk.Group + "/" + k.gvk.Version
	if k.gvk.Group == "" {
		path = "/api/" + k.gvk.Version
	}
	if k.isNamespaced && namespace != "" {
		path += "/namespaces/" + namespace
	}
	return path + "/" + k.resource
}

func (k kind) object(namespace, name string) string { return k.collection(namespace) + "/" + name }

// Objects of customDefinition may have any fields.
const customDefinition = `{"apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
 "metadata": {"name": "%[1]s.%[2]s"}, "spec": {"group": "%[2]s", "scope": "%[3]s",
 "names": {"plural": "%[1]s", "singular": "%[4]s", "kind": "%[5]s", "listKind": "%[5]sList"},
 "versions": [{"name": "v1", "served": true, "storage": true, "subresources": {"status": {}},
 "schema": {"openAPIV3Schema": {"type": "object", "x-kubernetes-preserve-unknown-fields": true}}}]}}`

// defineCustomKinds creates the definitions in a cluster and waits until the cluster serves them.
func defineCustomKinds(ctx context.Context, m *member) error {
	for _, k := range customKinds {
		scope := "Cluster"
		if k.isNamespaced {
			scope = "Namespaced"
		}
		body := fmt.Sprintf(customDefinition, k.resource, customGroup, scope, strings.ToLower(k.gvk.Kind), k.gvk.Kind)
		r := request{method: "POST", path: "/apis/apiextensions.k8s.io/v1/customresourcedefinitions", body: []byte(body)}
		a, err := m.direct.do(ctx, r)
		if err == nil && !a.isSuccess() {
			err = fmt.Errorf("define %s in %s: %s", k.resource, m.name, head(a.body))
		}
		if err != nil {
			return err
		}
		err = waittest.Poll(ctx, func(ctx context.Context) error {
			return wantCode(ctx, m.direct, k.collection(""), http.StatusOK)
		})
		if err != nil {
			return err
		}
	}
	return nil
}

func wantCode(ctx context.Context, e endpoint, path string, code int) error {
	a, err := e.do(ctx, request{method: "GET", path: path})
	if err == nil && a.code != code {
		err = fmt.Errorf("GET %s: code %d, want %d: %s", path, a.code, code, head(a.body))
	}
	return err
}
