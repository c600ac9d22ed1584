package request

import (
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/util/validation"

	"github.com/clusterpass/clusterpass/shared/fleet/naming"
	"github.com/clusterpass/clusterpass/shared/forward"
	"github.com/clusterpass/clusterpass/shared/route"
	"github.com/clusterpass/clusterpass/shared/status"
)

// The fleet's own parameters, which members never receive, and a header with the meaning of strict.
const (
	ClustersParam        = "clusters"        // names, separated by commas
	ClusterSelectorParam = "clusterSelector" // a label selector
	strictParam          = "strict"
	strictHeader         = "X-Clusterpass-Strict"
)

func badRequest(format string, args ...any) error {
	return status.New(status.BadRequest, "", format, args...)
}

// Parse checks the path and the parameters of a request. Names of objects and namespaces still have their @cluster.
func Parse(r *http.Request, c forward.FleetCall) (*Request, error) {
	values, err := url.ParseQuery(c.Query)
	if err != nil {
		return nil, badRequest("the query cannot be understood: %w", err)
	}
	req := &Request{
		Method: r.Method, Header: r.Header, User: c.User, Route: c.Route, Resource: c.Resource, RawQuery: c.Query,
		Strict:          route.TruthyIn(values, strictParam) || isTrue(r.Header.Get(strictHeader)),
		ClusterSelector: ClusterSelector{Labels: labels.Everything()}, query: values,
	}
	if err := checkPath(req.Route.Path, req.Resource); err != nil {
		return nil, badRequest("%w", err)
	}
	if req.Clusters, err = parseClusters(values[ClustersParam]); err != nil {
		return nil, err
	}
	if s := values.Get(ClusterSelectorParam); s != "" {
		if req.Labels, err = labels.Parse(s); err != nil {
			return nil, badRequest("the parameter %s is no label selector: %w", ClusterSelectorParam, err)
		}
	}
	for _, own := range []string{ClustersParam, ClusterSelectorParam, strictParam} {
		if values.Has(own) {
			values.Del(own)
			req.RawQuery = values.Encode()
		}
	}
	if err := req.splitLabelSelector(); err != nil {
		return nil, badRequest("the label selector cannot be understood: %w", err)
	}
	return req, nil
}

func parseClusters(lists []string) ([]string, error) {
	var clusters []string
	for _, list := range lists {
		for name := range strings.SplitSeq(list, ",") {
			if name = strings.TrimSpace(name); name == "" {
				return nil, badRequest("the parameter %s has an empty name: omit the parameter to use all clusters", ClustersParam)
			}
			clusters = append(clusters, name)
		}
	}
	return clusters, nil
}

// splitLabelSelector moves the clusters of the label selector into Clusters. A single one also becomes Cluster, as that
// of name@cluster does, so that kubectl's next requests have qualified names.
func (r *Request) splitLabelSelector() error {
	selector, clusters, err := naming.RewriteLabelSelector(r.query.Get("labelSelector"))
	if err != nil || clusters == nil {
		return err
	}
	if r.Clusters != nil {
		clusters = slices.DeleteFunc(clusters, func(c string) bool { return !slices.Contains(r.Clusters, c) })
	}
	if len(clusters) == 0 {
		return fmt.Errorf("%s and the parameter %s have no cluster in common", naming.ClusterLabel, ClustersParam)
	}
	if r.Clusters = clusters; len(clusters) == 1 {
		r.Cluster = clusters[0]
	}
	if r.query.Set("labelSelector", selector); selector == "" {
		r.query.Del("labelSelector")
	}
	r.RawQuery = r.query.Encode()
	return nil
}

// checkPath refuses paths that no API server serves. Their error would otherwise be that the resource is not global.
func checkPath(path string, res route.Resource) error {
	if !res.IsResource {
		return nil
	}
	var wrong string
	switch core := strings.HasPrefix(path, "/api/"); {
	case !core && len(validation.IsDNS1123Subdomain(res.APIGroup)) > 0:
		wrong = fmt.Sprintf("%q is no API group", res.APIGroup)
	case len(validation.IsDNS1123Label(res.APIVersion)) > 0:
		wrong = fmt.Sprintf("%q is no API version", res.APIVersion)
	case len(validation.IsDNS1123Label(res.Resource)) > 0:
		wrong = fmt.Sprintf("%q is not the name of a resource; use lower case and mostly the plural, such as pods",
			res.Resource)
	default:
		return nil
	}
	return fmt.Errorf("the path %s cannot be understood: %s", path, wrong)
}

func isTrue(v string) bool { return v != "" && v != "0" && !strings.EqualFold(v, "false") }
