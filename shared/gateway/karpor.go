package gateway

import (
	"encoding/json"
	"net/http"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// karpor is the discovery document of Karpor's URLs of member clusters. kube-apiserver's aggregator calls a group only
// while it can read that document.
var karpor = metav1.APIResourceList{
	TypeMeta:     metav1.TypeMeta{Kind: "APIResourceList", APIVersion: "v1"},
	GroupVersion: "cluster.karpor.io/v1beta1",
	APIResources: []metav1.APIResource{{
		Name: "clusters/proxy", Kind: "Cluster", Verbs: metav1.Verbs{"create", "delete", "get", "patch", "update"},
	}},
}

func discover(w http.ResponseWriter, r *http.Request, path string) bool {
	if path != "/apis/"+karpor.GroupVersion || r.Method != http.MethodGet {
		return false
	}
	w.Header().Set("Content-Type", "application/json")
	_ = json.NewEncoder(w).Encode(karpor) // the client may be gone
	return true
}
