package route

import (
	"net/http"
	"strings"
	"testing"
)

var parseCases = []struct {
	path string
	want Route
}{
	{
		"/clusters/member1/api/v1/nodes",
		Route{Kind: Cluster, Cluster: "member1", Prefix: "/clusters/member1", Path: "/api/v1/nodes"},
	},
	{"/clusters/member1", Route{Kind: Cluster, Cluster: "member1", Prefix: "/clusters/member1", Path: "/"}},
	{"/clusters/member1/", Route{Kind: Cluster, Cluster: "member1", Prefix: "/clusters/member1", Path: "/"}},
	{"/clusters/9lives/version", Route{Kind: Cluster, Cluster: "9lives", Prefix: "/clusters/9lives", Path: "/version"}},
	{
		"/clusters/m/api/v1/namespaces/d/services/https%3Aweb%3A443/proxy/a%2Fb/",
		Route{
			Kind: Cluster, Cluster: "m", Prefix: "/clusters/m",
			Path: "/api/v1/namespaces/d/services/https%3Aweb%3A443/proxy/a%2Fb/",
		},
	},
	{
		"/apis/cluster.karmada.io/v1alpha1/clusters/member1/proxy/api/v1/nodes",
		Route{
			Kind: Cluster, Cluster: "member1", Prefix: "/apis/cluster.karmada.io/v1alpha1/clusters/member1/proxy",
			Path: "/api/v1/nodes",
		},
	},
	{
		"/apis/cluster.karmada.io/v1alpha1/clusters/member1/proxy",
		Route{
			Kind: Cluster, Cluster: "member1", Prefix: "/apis/cluster.karmada.io/v1alpha1/clusters/member1/proxy", Path: "/",
		},
	},
	{
		"/apis/cluster.karmada.io/v1alpha1/clusters/member1",
		Route{Kind: Gateway, Path: "/apis/cluster.karmada.io/v1alpha1/clusters/member1"},
	},
	{
		"/apis/cluster.karmada.io/v1alpha1/clusters/member1/status",
		Route{Kind: Gateway, Path: "/apis/cluster.karmada.io/v1alpha1/clusters/member1/status"},
	},
	{
		"/apis/cluster.karmada.io/v1alpha1/clusters/member1/proxyish",
		Route{Kind: Gateway, Path: "/apis/cluster.karmada.io/v1alpha1/clusters/member1/proxyish"},
	},
	{
		"/apis/cluster.karpor.io/v1beta1/clusters/c1/proxy/apis/apps/v1/deployments",
		Route{
			Kind: Cluster, Cluster: "c1", Prefix: "/apis/cluster.karpor.io/v1beta1/clusters/c1/proxy",
			Path: "/apis/apps/v1/deployments",
		},
	},
	{
		"/apis/kusionstack.io/Cluster/cluster1/proxy/api/v1/pods",
		Route{
			Kind: Cluster, Cluster: "cluster1", Prefix: "/apis/kusionstack.io/Cluster/cluster1/proxy", Path: "/api/v1/pods",
		},
	},
	{"/cluster1/api/v1/pods", Route{Kind: Cluster, Cluster: "cluster1", Prefix: "/cluster1", Path: "/api/v1/pods"}},
	{"/1cluster/version", Route{Kind: Cluster, Cluster: "1cluster", Prefix: "/1cluster", Path: "/version"}},
	{"/cluster1/version/", Route{Kind: Cluster, Cluster: "cluster1", Prefix: "/cluster1", Path: "/version/"}},
	{"/cluster1/other", Route{Kind: Gateway, Path: "/cluster1/other"}},
	{
		"/bridge/cluster1/api/v1/pods",
		Route{Kind: Cluster, Cluster: "cluster1", Prefix: "/bridge/cluster1", Path: "/api/v1/pods", Bridge: true},
	},
	{
		"/bridge/clusters/m/version",
		Route{Kind: Cluster, Cluster: "m", Prefix: "/bridge/clusters/m", Path: "/version", Bridge: true},
	},
	{"/bridge", Route{Kind: Gateway, Prefix: "/bridge", Path: "/", Bridge: true}},
	{"/bridge/api", Route{Kind: Gateway, Prefix: "/bridge", Path: "/api", Bridge: true}},
	{"/bridged/api", Route{Kind: Cluster, Cluster: "bridged", Prefix: "/bridged", Path: "/api"}},
	{"/fleet/api/v1/pods", Route{Kind: Fleet, Prefix: "/fleet", Path: "/api/v1/pods"}},
	{"/fleet", Route{Kind: Fleet, Prefix: "/fleet", Path: "/"}},
	{
		"/apis/search.karmada.io/v1alpha1/proxying/karmada/proxy/api/v1/pods",
		Route{Kind: Fleet, Prefix: "/apis/search.karmada.io/v1alpha1/proxying/karmada/proxy", Path: "/api/v1/pods"},
	},
	{"/fleet/@/api/v1/pods", Route{Kind: Fleet, Qualified: true, Prefix: "/fleet/@", Path: "/api/v1/pods"}},
	{"/fleet/@", Route{Kind: Fleet, Qualified: true, Prefix: "/fleet/@", Path: "/"}},
	{"/fleet/@/", Route{Kind: Fleet, Qualified: true, Prefix: "/fleet/@", Path: "/"}},
	{
		"/bridge/fleet/%40/version",
		Route{Kind: Fleet, Qualified: true, Prefix: "/bridge/fleet/%40", Path: "/version", Bridge: true},
	},
	{"/fleet/@/@/api", Route{Kind: Fleet, Qualified: true, Prefix: "/fleet/@", Path: "/@/api"}},
	{"/fleet/@x/api", Route{Kind: Fleet, Prefix: "/fleet", Path: "/@x/api"}},
	{
		"/apis/search.karmada.io/v1alpha1/proxying/karmada/proxy/@/api",
		Route{
			Kind: Fleet, Qualified: true, Prefix: "/apis/search.karmada.io/v1alpha1/proxying/karmada/proxy/@", Path: "/api",
		},
	},
	{
		karmadaFleet + karmadaFleet + "/api",
		Route{
			Kind:   Fleet,
			Prefix: karmadaFleet + karmadaFleet, Path: "/api",
		},
	},
	{
		karmadaFleet + karmadaFleet + "s/api", Route{Kind: Fleet, Prefix: karmadaFleet, Path: karmadaFleet + "s/api"},
	},
	{
		karmadaFleet + "/@" + karmadaFleet + "/@/api",
		Route{Kind: Fleet, Qualified: true, Prefix: karmadaFleet + "/@" + karmadaFleet + "/@", Path: "/api"},
	},
	{
		"/fleet/@/apis/search.karmada.io/v1alpha1/proxying/karmada/proxy",
		Route{
			Kind: Fleet, Qualified: true, Prefix: "/fleet/@/apis/search.karmada.io/v1alpha1/proxying/karmada/proxy", Path: "/",
		},
	},
	{
		"/apis/cluster.karmada.io/v1alpha1/clusters/*/proxy/@/api",
		Route{
			Kind: Fleet, AllClusters: true, Qualified: true, Prefix: "/apis/cluster.karmada.io/v1alpha1/clusters/*/proxy/@",
			Path: "/api",
		},
	},
	{"/clusters/m/@/api", Route{Kind: Cluster, Cluster: "m", Prefix: "/clusters/m", Path: "/@/api"}},
	{
		"/apis/search.karmada.io/v1alpha1/resourceregistries",
		Route{Kind: Gateway, Path: "/apis/search.karmada.io/v1alpha1/resourceregistries"},
	},
	{
		"/apis/cluster.karmada.io/v1alpha1/clusters/*/proxy/api/v1/nodes",
		Route{
			Kind: Fleet, AllClusters: true, Prefix: "/apis/cluster.karmada.io/v1alpha1/clusters/*/proxy", Path: "/api/v1/nodes",
		},
	},
	{
		"/apis/cluster.karmada.io/v1alpha1/clusters/%2a/proxy/api",
		Route{Kind: Fleet, AllClusters: true, Prefix: "/apis/cluster.karmada.io/v1alpha1/clusters/%2a/proxy", Path: "/api"},
	},
	{"/", Route{Kind: Gateway, Path: "/"}},
	{"/api/v1/nodes", Route{Kind: Gateway, Path: "/api/v1/nodes"}},
	{"/version", Route{Kind: Gateway, Path: "/version"}},
	{"/version/api", Route{Kind: Gateway, Path: "/version/api"}},
	{"/clusters", Route{Kind: Gateway, Path: "/clusters"}},
	{"/clusters/", Route{Kind: Gateway, Path: "/clusters/"}},
	{
		"/clusters/m/api/v1/namespaces/d/services/web/proxy//a%2F%2fb",
		Route{Kind: Cluster, Cluster: "m", Prefix: "/clusters/m", Path: "/api/v1/namespaces/d/services/web/proxy//a%2F%2fb"},
	},
}

func TestParse(t *testing.T) {
	for _, tt := range parseCases {
		got, err := Parse(tt.path)
		if err != nil || got != tt.want {
			t.Errorf("Parse(%q)\n got %+v, %v\nwant %+v", tt.path, got, err, tt.want)
		}
	}
}

func TestParseRefuses(t *testing.T) {
	for _, path := range []string{
		"", "clusters/m/api", "*",
		"/clusters/Member1/api", "/clusters/a.b/api", "/clusters/-a/api", "/clusters/a%2Fb/api", "/clusters/*/api",
		"/clusters/%6Dember1/api",
		"/clusters/" + strings.Repeat("a", 64) + "/api",
		"/apis/cluster.karmada.io/v1alpha1/clusters/A/proxy/api",
		"/bridge/bridge/api",
		"/clusters/m/../n/api", "/clusters/m/%2e%2e/n/api", "/clusters/m/.%2E/api", "/clusters/m/./api",
		"/clusters/m/a%2f../api",
		"//clusters/m/api", "/clusters//m/api", "/clusters/m//api/v1", "/fleet//@/api", "/clusters/m/api//", "/clusters/m//",
		"/clusters/m/api/v1//nodes/n/proxy/run", "/clusters/m/api/v1/%2Fnodes/n/proxy/run",
		"/clusters/m/api%2f%2Fv1/nodes/n/proxy/run",
		"/clusters/m/api/v1/nodes//proxy/run", `/clusters/m/api/v1/\\nodes/n/proxy/run`, "/clusters/m/apis//proxy//a",
		"/clusters/m/api/..", "/..", "/.", "/clusters/m/a%5c..%5cb", `/clusters/m/a\..\b`,
	} {
		if got, err := Parse(path); err == nil {
			t.Errorf("Parse(%q) = %+v, want an error", path, got)
		}
	}
}

func TestValidClusterName(t *testing.T) {
	for _, name := range []string{"member1", "1", "9-lives", "karmada"} {
		if err := ValidClusterName(name); err != nil {
			t.Errorf("ValidClusterName(%q) = %v", name, err)
		}
	}
	for _, name := range []string{
		"", "A", "a.b", "a_b", "-a", "a-", "api", "apis", "bridge", "fleet", "version", "clusters", strings.Repeat("a", 64),
	} {
		if ValidClusterName(name) == nil {
			t.Errorf("ValidClusterName(%q) = nil", name)
		}
	}
}

// Agents and clients must never be served under each other's paths.
func TestParseAgent(t *testing.T) {
	for path, want := range map[string]string{
		AgentPath("prod"): "prod|", AgentPath("prod") + AgentCredential: "prod|/credential",
		"/bridge/agent/v1/": "", "/bridge/agent/v1/UP": "", "/bridge/agent/v1/api": "", "/bridge/agent/v1/prod/": "",
		"/bridge/agent/v1/prod/credential/": "",
		"/agent/v1/prod":                    "", "/bridge/agent/v2/prod": "", "/bridge/agent/v1/pr%6Fd": "",
		"/bridge/clusters/agent/v1/prod": "",
	} {
		cluster, tail, ok := ParseAgent(path)
		if ok != (want != "") || ok && cluster+"|"+tail != want {
			t.Errorf("%s: %q %q %v", path, cluster, tail, ok)
		}
		if r, err := Parse(path); ok && (err != nil || r.Kind != Gateway || !r.Bridge) {
			t.Errorf("%s is %+v, %v, too", path, r, err)
		}
		if ok && Match(path, "", nil).To != ToBridge {
			t.Errorf("a front door sends %s elsewhere", path)
		}
	}
	if ValidClusterName("agent") == nil {
		t.Error("a cluster may be called agent")
	}
}

var resourceCases = []struct {
	method, path, query string
	want                Resource
}{
	{"GET", "/version", "", Resource{Verb: "get"}},
	{"GET", "/api/v1", "", Resource{Verb: "get"}},
	{"GET", "/apis/apps/v1", "", Resource{Verb: "get"}},
	{"GET", "/api/v1/nodes", "", Resource{IsResource: true, Verb: "list", APIVersion: "v1", Resource: "nodes"}},
	{
		"GET", "/api/v1/nodes/n%3A1", "",
		Resource{IsResource: true, Verb: "get", APIVersion: "v1", Resource: "nodes", Name: "n:1"},
	},
	{"GET", "/api/v1/pods", "watch=1", Resource{IsResource: true, Verb: "watch", APIVersion: "v1", Resource: "pods"}},
	{
		"GET", "/api/v1/pods", "watch=0&watch=1",
		Resource{IsResource: true, Verb: "list", APIVersion: "v1", Resource: "pods"},
	},
	{"GET", "/api/v1/namespaces", "", Resource{IsResource: true, Verb: "list", APIVersion: "v1", Resource: "namespaces"}},
	{
		"PUT", "/api/v1/namespaces/a/finalize", "",
		Resource{
			IsResource: true, Verb: "update", APIVersion: "v1", Namespace: "a", Resource: "namespaces", Name: "a",
			Subresource: "finalize",
		},
	},
	{
		"GET", "/api/v1/namespaces/a", "",
		Resource{IsResource: true, Verb: "get", APIVersion: "v1", Namespace: "a", Resource: "namespaces", Name: "a"},
	},
	{
		"DELETE", "/apis/apps/v1/namespaces/a/deployments", "",
		Resource{
			IsResource: true, Verb: "deletecollection", APIGroup: "apps", APIVersion: "v1", Namespace: "a",
			Resource: "deployments",
		},
	},
	{
		"PATCH", "/apis/apps/v1/namespaces/a/deployments/d/scale", "",
		Resource{
			IsResource: true, Verb: "patch", APIGroup: "apps", APIVersion: "v1", Namespace: "a", Resource: "deployments",
			Name: "d", Subresource: "scale",
		},
	},
	{
		"GET", "/api/v1/watch/namespaces/a/pods", "",
		Resource{
			IsResource: true, Verb: "watch", HasLegacyPrefix: true, APIVersion: "v1", Namespace: "a", Resource: "pods",
		},
	},
	{
		"GET", "/api/v1/%77atch/nodes/n", "",
		Resource{
			IsResource: true, Verb: "watch", HasLegacyPrefix: true, APIVersion: "v1", Resource: "nodes", Name: "n",
		},
	},
	{
		"GET", "/api/v1/namespaces/watch/pods/p", "watch=1",
		Resource{
			IsResource: true, Verb: "watch", APIVersion: "v1", Namespace: "watch", Resource: "pods", Name: "p",
		},
	},
	{
		"POST", "/api/v1/namespaces/a/pods/p/exec", "command=sh",
		Resource{
			IsResource: true, Verb: "create", APIVersion: "v1", Namespace: "a", Resource: "pods", Name: "p",
			Subresource: "exec",
		},
	},
	{
		"GET", "/api/v1/namespaces/a/services/https:s:1/proxy/x/y", "",
		Resource{
			IsResource: true, Verb: "get", APIVersion: "v1", Namespace: "a", Resource: "services", Name: "https:s:1",
			Subresource: "proxy", Tail: "x/y",
		},
	},
	{
		"POST", "/apis/kusionstack.io/Cluster/c/proxy/api/v1/nodes", "",
		Resource{
			IsResource: true, Verb: "create", APIGroup: "kusionstack.io", APIVersion: "Cluster", Resource: "c", Name: "proxy",
			Subresource: "api", Tail: "v1/nodes",
		},
	},
	{
		"GET", "/api/v1/namespaces/kube-system%2Fsecrets", "",
		Resource{IsResource: true, Verb: "list", APIVersion: "v1", Namespace: "kube-system", Resource: "secrets"},
	},
	{
		"DELETE", "/api/v1/namespaces/default%2Fpods", "",
		Resource{IsResource: true, Verb: "deletecollection", APIVersion: "v1", Namespace: "default", Resource: "pods"},
	},
	{
		"POST", "/api/v1/namespaces/a/pods/p%2Fexec", "",
		Resource{
			IsResource: true, Verb: "create", APIVersion: "v1", Namespace: "a", Resource: "pods", Name: "p",
			Subresource: "exec",
		},
	},
	{"OPTIONS", "/api/v1/pods", "", Resource{IsResource: true, APIVersion: "v1", Resource: "pods"}},
}

func TestParseResource(t *testing.T) {
	for _, tt := range resourceCases {
		if got := ParseResource(tt.method, tt.path, tt.query); got != tt.want {
			t.Errorf("ParseResource(%s %s?%s)\n got %+v\nwant %+v", tt.method, tt.path, tt.query, got, tt.want)
		}
	}
}

var streams = []struct {
	method, path, query string
	header              http.Header
	want                bool
}{
	{"GET", "/api/v1/pods", "", nil, false},
	{"GET", "/api/v1/pods", "watch=true", nil, true},
	{"GET", "/api/v1/pods", "watch=1&timeoutSeconds=5", nil, true},
	{"GET", "/api/v1/pods", "watch", nil, true},
	{"GET", "/api/v1/pods", "watch=", nil, true},
	{"GET", "/api/v1/pods", "watch=maybe", nil, true},
	{"GET", "/api/v1/pods", "w%61tch=1", nil, true},
	{"GET", "/api/v1/pods", "watch=0", nil, false},
	{"GET", "/api/v1/pods", "watch=False", nil, false},
	{"GET", "/api/v1/pods", "labelSelector=watch%3D1", nil, false},
	{"GET", "/api/v1/namespaces/a/pods/p", "watch=1", nil, true},
	{"GET", "/api/v1/watch/pods", "", nil, true},
	{"GET", "/apis/apps/v1/watch/namespaces/a/deployments/d", "", nil, true},
	{"GET", "/api/v1/namespaces/watch/pods", "", nil, false},
	{"GET", "/api/v1/namespaces/a/pods/p/log", "", nil, false},
	{"GET", "/api/v1/namespaces/a/pods/p/log", "follow=true", nil, true},
	{"GET", "/api/v1/namespaces/a/pods/p/log", "follow=false", nil, false},
	{"POST", "/api/v1/namespaces/a/pods/p/exec", "command=ls", nil, true},
	{"GET", "/api/v1/namespaces/a/pods/p/attach", "", nil, true},
	{"POST", "/api/v1/namespaces/a/pods/p/portforward", "", nil, true},
	{"GET", "/api/v1/namespaces/a/services/s:80/proxy/index.html", "", nil, true},
	{"GET", "/api/v1/nodes/n/proxy/metrics", "", nil, true},
	{"GET", "/api/v1/namespaces/a/pods/exec", "", nil, false},
	{"GET", "/api/v1/namespaces/exec/pods", "", nil, false},
	{"GET", "/api/v1/namespaces/a/pods", "", http.Header{"Upgrade": {"websocket"}}, true},
	{"GET", "/version", "watch=1", nil, false},
}

// hidden are streams that Table does not recognize, so that the function must.
var hidden = []struct{ method, path, query string }{
	{"POST", "/api/v1/namespaces/a/pods/p%2Fexec", ""},
	{"GET", "/api/v1/watch%2Fpods", ""},
	{"GET", "/api/v1/namespaces/a/pods/p%2Flog", "follow=1"},
}

func TestRequestIsStream(t *testing.T) {
	for _, tt := range streams {
		if got := NewRequest(tt.method, Route{Path: tt.path}, tt.query, tt.header).IsStream; got != tt.want {
			t.Errorf("%s %s?%s is a stream: %t", tt.method, tt.path, tt.query, got)
		}
	}
}

func TestRequestIsStreamBehindEscapes(t *testing.T) {
	for _, tt := range hidden {
		if !NewRequest(tt.method, Route{Path: tt.path}, tt.query, nil).IsStream {
			t.Errorf("%s %s?%s is no stream", tt.method, tt.path, tt.query)
		}
	}
}

func TestTable(t *testing.T) {
	forms := []struct {
		prefix string
		want   Backend
	}{
		{"/clusters/member1", ToProxy},
		{"/apis/cluster.karmada.io/v1alpha1/clusters/member1/proxy", ToProxy},
		{"/apis/cluster.karpor.io/v1beta1/clusters/member1/proxy", ToProxy},
		{"/apis/kusionstack.io/Cluster/member1/proxy", ToProxy},
		{"/member1", ToProxy},
		{"/fleet", ToFleet},
		{"/fleet/@", ToFleet},
		{"/fleet/%40", ToFleet},
		{"/apis/search.karmada.io/v1alpha1/proxying/karmada/proxy/@", ToFleet},
		{"/apis/cluster.karmada.io/v1alpha1/clusters/*/proxy/@", ToFleet},
		{"/apis/search.karmada.io/v1alpha1/proxying/karmada/proxy", ToFleet},
		{"/apis/cluster.karmada.io/v1alpha1/clusters/*/proxy", ToFleet},
		{"", ToControl},
		{"/bridge/clusters/member1", ToBridge},
	}
	for _, f := range forms {
		for _, s := range streams {
			got := Match(f.prefix+s.path, s.query, s.header).To
			mayStream := strings.Contains(s.query, "watch=") || strings.Contains(s.query, "follow=")
			if s.want && got != ToBridge {
				t.Errorf("%s%s?%s is a stream, goes to %s", f.prefix, s.path, s.query, got)
			} else if !s.want && !mayStream && f.prefix+s.path != "/version" && got != f.want {
				t.Errorf("%s%s?%s goes to %s, want %s", f.prefix, s.path, s.query, got, f.want)
			}
		}
	}
	for _, tt := range []struct {
		path   string
		header http.Header
		want   Backend
	}{
		{"/", nil, ToControl},
		{"/version", nil, ToControl},
		{"/apis/cluster.karmada.io/v1alpha1/clusters/member1", nil, ToControl},
		{"/apis/cluster.karmada.io/v1alpha1/clusters", nil, ToControl},
		{"/clusters/m/api", http.Header{"Content-Length": {"899999"}}, ToProxy},
		{"/clusters/m/api", http.Header{"Content-Length": {"900000"}}, ToBridge},
		{"/clusters/m/api", http.Header{"Content-Length": {"3000000"}}, ToBridge},
		{"/clusters/m/api", http.Header{"Transfer-Encoding": {"chunked"}}, ToBridge},
	} {
		if got := Match(tt.path, "", tt.header).To; got != tt.want {
			t.Errorf("Match(%s, %v) goes to %s, want %s", tt.path, tt.header, got, tt.want)
		}
	}
}

func FuzzParse(f *testing.F) {
	for _, s := range []string{
		"/clusters/m/api/v1/pods", "/bridge/m/version", "/fleet/api", "/fleet/@/api", "/fleet/%40",
		karmadaFleet + "/@" + karmadaFleet + "/@/api", "/apis/cluster.karmada.io/v1alpha1/clusters/*/proxy/api",
		"/clusters/m/%2e%2e/x", "//",
	} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, path string) {
		r, err := Parse(path)
		if err != nil {
			return
		}
		// Prefix and Path together are the input. Only a missing path becomes "/".
		if joined := r.Prefix + r.Path; joined != path && joined != path+"/" {
			t.Fatalf("Parse(%q) = prefix %q, path %q", path, r.Prefix, r.Path)
		}
		if r.Kind == Cluster && !isLabel(r.Cluster) {
			t.Fatalf("Parse(%q) gave cluster %q", path, r.Cluster)
		}
		if prefix, err := Parse(r.Prefix + "/api"); err != nil ||
			r.Kind == Fleet && (prefix.Kind != Fleet || prefix.Qualified != r.Qualified || prefix.Prefix != r.Prefix) {
			t.Fatalf("Parse(%q) gave prefix %q, which with another path is %+v, %v", path, r.Prefix, prefix, err)
		}
		if r.Qualified && r.Kind != Fleet {
			t.Fatalf("Parse(%q) gave %+v", path, r)
		}
		if r.Path[0] != '/' {
			t.Fatalf("Parse(%q) gave path %q", path, r.Path)
		}
		want := map[Kind]Backend{Gateway: ToControl, Cluster: ToProxy, Fleet: ToFleet}[r.Kind]
		if got := Match(path, "", nil).To; got != ToBridge && got != want && (got != ToProxy || r.Kind != Gateway) {
			t.Fatalf("Parse(%q) is of kind %d, the table sends it to %s", path, r.Kind, got)
		}
		ParseResource("GET", r.Path, "")
	})
}
