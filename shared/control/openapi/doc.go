// Package openapi has the generated OpenAPI definitions of the gateway's own API. The first command below writes them.
// The second one writes the files of package documents from them. No program contains the definitions.
package openapi

//go:generate go tool openapi-gen --output-dir . --output-pkg github.com/clusterpass/clusterpass/shared/control/openapi --output-file zz_generated.openapi.go --output-model-name-file zz_generated.model_name.go --readonly-pkg k8s.io/api/rbac/v1,k8s.io/api/authentication/v1,k8s.io/api/authorization/v1,k8s.io/apimachinery/pkg/apis/meta/v1,k8s.io/apimachinery/pkg/runtime,k8s.io/apimachinery/pkg/version --report-filename /dev/null ../../api/cluster/v1alpha1 ../../api/clusterpass/v1alpha1 ../../api/search/v1alpha1 k8s.io/api/rbac/v1 k8s.io/api/authentication/v1 k8s.io/api/authorization/v1 k8s.io/apimachinery/pkg/apis/meta/v1 k8s.io/apimachinery/pkg/runtime k8s.io/apimachinery/pkg/version
//go:generate go test ../ -run TestDocuments -update
