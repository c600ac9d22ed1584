package discovery

import (
	"encoding/json"
	"mime"
	"net/http"
	"strings"

	discoveryv2 "k8s.io/api/apidiscovery/v2"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/clusterpass/clusterpass/shared/fleet/respond"
)

const discoveryGroup = "apidiscovery.k8s.io"

// aggregatedVersion returns the version of aggregated discovery that a client prefers, or "" for the older documents.
func aggregatedVersion(h http.Header) string {
	for clause := range strings.SplitSeq(strings.Join(h["Accept"], ","), ",") {
		media, params, err := mime.ParseMediaType(strings.TrimSpace(clause))
		isList := params["g"] == discoveryGroup && params["as"] == "APIGroupDiscoveryList"
		if v := params["v"]; err == nil && media == "application/json" && isList && (v == "v2" || v == "v2beta1") {
			return v
		}
	}
	return ""
}

func writeAggregated(w http.ResponseWriter, version string, items []discoveryv2.APIGroupDiscovery) error {
	body, err := json.Marshal(discoveryv2.APIGroupDiscoveryList{
		TypeMeta: metav1.TypeMeta{Kind: "APIGroupDiscoveryList", APIVersion: discoveryGroup + "/" + version}, Items: items,
	})
	if err != nil {
		return err
	}
	contentType := "application/json;g=" + discoveryGroup + ";v=" + version + ";as=APIGroupDiscoveryList"
	respond.Typed(w, contentType, http.StatusOK, append(body, '\n'))
	return nil
}

// document returns the older document for the segments of a path. It is nil, or a nil list, if there is none.
func document(union discoveryv2.APIGroupDiscoveryList, parts []string) any {
	isCore := parts[0] == "api"
	switch {
	case isCore && len(parts) == 1:
		versions := &metav1.APIVersions{
			TypeMeta: metav1.TypeMeta{Kind: "APIVersions"}, Versions: []string{},
			ServerAddressByClientCIDRs: []metav1.ServerAddressByClientCIDR{},
		}
		for _, g := range groupsOf(union, true) {
			for _, v := range g.Versions {
				versions.Versions = append(versions.Versions, v.Version)
			}
		}
		return versions
	case len(parts) == 1:
		list := &metav1.APIGroupList{
			TypeMeta: metav1.TypeMeta{Kind: "APIGroupList", APIVersion: "v1"}, Groups: []metav1.APIGroup{},
		}
		for _, g := range groupsOf(union, false) {
			list.Groups = append(list.Groups, apiGroup(g))
		}
		return list
	case !isCore && len(parts) == 2:
		var doc any
		for _, g := range groupsOf(union, false) {
			if g.Name == parts[1] {
				group := apiGroup(g)
				group.TypeMeta = metav1.TypeMeta{Kind: "APIGroup", APIVersion: "v1"}
				doc = &group
			}
		}
		return doc
	case isCore:
		return resources(union, "", parts[len(parts)-1])
	}
	return resources(union, parts[1], parts[len(parts)-1])
}

func groupsOf(union discoveryv2.APIGroupDiscoveryList, core bool) []discoveryv2.APIGroupDiscovery {
	out := []discoveryv2.APIGroupDiscovery{}
	for _, g := range union.Items {
		if (g.Name == "") == core {
			out = append(out, g)
		}
	}
	return out
}

func apiGroup(g discoveryv2.APIGroupDiscovery) metav1.APIGroup {
	out := metav1.APIGroup{Name: g.Name}
	for _, v := range g.Versions {
		out.Versions = append(out.Versions,
			metav1.GroupVersionForDiscovery{GroupVersion: g.Name + "/" + v.Version, Version: v.Version})
	}
	out.PreferredVersion = out.Versions[0] // every group has a version
	return out
}

func resources(union discoveryv2.APIGroupDiscoveryList, group, version string) *metav1.APIResourceList {
	for _, g := range union.Items {
		for _, v := range g.Versions {
			if g.Name != group || v.Version != version {
				continue
			}
			list := &metav1.APIResourceList{
				TypeMeta:     metav1.TypeMeta{Kind: "APIResourceList", APIVersion: "v1"},
				GroupVersion: strings.TrimPrefix(group+"/"+version, "/"), APIResources: []metav1.APIResource{},
			}
			for _, r := range v.Resources {
				one := metav1.APIResource{
					Name: r.Resource, SingularName: r.SingularResource, Namespaced: r.Scope == discoveryv2.ScopeNamespace,
					Verbs: r.Verbs, ShortNames: r.ShortNames, Categories: r.Categories,
				}
				list.APIResources = append(list.APIResources, withKind(one, r.ResponseKind))
				for _, s := range r.Subresources {
					sub := metav1.APIResource{
						Name: r.Resource + "/" + s.Subresource, Namespaced: one.Namespaced, Verbs: s.Verbs,
					}
					list.APIResources = append(list.APIResources, withKind(sub, s.ResponseKind))
				}
			}
			return list
		}
	}
	return nil
}

func withKind(r metav1.APIResource, kind *metav1.GroupVersionKind) metav1.APIResource {
	if kind != nil {
		r.Kind, r.Group, r.Version = kind.Kind, kind.Group, kind.Version
	}
	return r
}
