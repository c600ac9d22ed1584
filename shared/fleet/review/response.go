package review

import (
	"encoding/json"
	"net/http"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/clusterpass/clusterpass/shared/fleet/request"
	"github.com/clusterpass/clusterpass/shared/fleet/respond"
)

// write responds as kube-apiserver does after a create. A nil spec is left out.
func write(w http.ResponseWriter, of request.SelfReview, spec, status any) error {
	body, err := json.Marshal(struct {
		metav1.TypeMeta `json:",inline"`
		Metadata        struct{} `json:"metadata"`
		Spec            any      `json:"spec,omitempty"`
		Status          any      `json:"status"`
	}{TypeMeta: metav1.TypeMeta{Kind: of.Kind, APIVersion: of.APIVersion()}, Spec: spec, Status: status})
	if err != nil {
		return err
	}
	respond.JSON(w, http.StatusCreated, append(body, '\n'))
	return nil
}
