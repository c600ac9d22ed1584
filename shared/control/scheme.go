package control

import (
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	utilruntime "k8s.io/apimachinery/pkg/util/runtime"

	clusterv1alpha1 "github.com/clusterpass/clusterpass/shared/api/cluster/v1alpha1"
	clusterpassv1alpha1 "github.com/clusterpass/clusterpass/shared/api/clusterpass/v1alpha1"
	searchv1alpha1 "github.com/clusterpass/clusterpass/shared/api/search/v1alpha1"
	"github.com/clusterpass/clusterpass/shared/passes"
)

type group struct {
	version  schema.GroupVersion
	jsonOnly bool // its types have no protobuf
	types    []runtime.Object
}

var (
	clusterGroup = schema.GroupVersion{Group: clusterv1alpha1.Group, Version: clusterv1alpha1.Version}
	searchGroup  = schema.GroupVersion{Group: searchv1alpha1.Group, Version: searchv1alpha1.Version}
	passGroup    = schema.GroupVersion{Group: clusterpassv1alpha1.Group, Version: clusterpassv1alpha1.Version}
	rbacGroup    = rbacv1.SchemeGroupVersion
	authnGroup   = authenticationv1.SchemeGroupVersion
	authzGroup   = authorizationv1.SchemeGroupVersion
	servedGroups = []group{
		{clusterGroup, true, []runtime.Object{&clusterv1alpha1.Cluster{}, &clusterv1alpha1.ClusterList{}}},
		{searchGroup, true, []runtime.Object{&searchv1alpha1.ResourceRegistry{}, &searchv1alpha1.ResourceRegistryList{}}},
		{passGroup, true, []runtime.Object{&clusterpassv1alpha1.Pass{}, &clusterpassv1alpha1.PassList{},
			&clusterpassv1alpha1.RecordingPolicy{}, &clusterpassv1alpha1.RecordingPolicyList{}}},
		{rbacGroup, false, []runtime.Object{&rbacv1.ClusterRole{}, &rbacv1.ClusterRoleList{}, &rbacv1.ClusterRoleBinding{},
			&rbacv1.ClusterRoleBindingList{}}},
		{authnGroup, false, []runtime.Object{&authenticationv1.SelfSubjectReview{}}},
		{authzGroup, false, []runtime.Object{&authorizationv1.SelfSubjectAccessReview{},
			&authorizationv1.SelfSubjectRulesReview{}}},
	}
)

// newScheme returns a scheme in which the served version of each type is also its internal version. Nothing is
// converted.
func newScheme(maxPassTTL time.Duration) *runtime.Scheme {
	s := servedScheme(maxPassTTL)
	for _, g := range servedGroups {
		s.AddKnownTypes(schema.GroupVersion{Group: g.version.Group, Version: runtime.APIVersionInternal}, g.types...)
	}
	return s
}

func servedScheme(maxPassTTL time.Duration) *runtime.Scheme {
	s := runtime.NewScheme()
	v1 := schema.GroupVersion{Version: "v1"}
	metav1.AddToGroupVersion(s, v1)
	s.AddUnversionedTypes(v1, &metav1.Status{}, &metav1.APIVersions{}, &metav1.APIGroupList{}, &metav1.APIGroup{},
		&metav1.APIResourceList{})
	for _, g := range servedGroups {
		s.AddKnownTypes(g.version, g.types...)
		metav1.AddToGroupVersion(s, g.version)
		utilruntime.Must(s.SetVersionPriority(g.version))
	}
	s.AddTypeDefaultingFunc(&clusterv1alpha1.Cluster{}, func(obj any) {
		if c := obj.(*clusterv1alpha1.Cluster); c.Spec.SyncMode == "" {
			c.Spec.SyncMode = clusterv1alpha1.Push
		}
	})
	s.AddTypeDefaultingFunc(&clusterpassv1alpha1.Pass{},
		func(obj any) { passes.SetDefaults(&obj.(*clusterpassv1alpha1.Pass).Spec, maxPassTTL) })
	s.AddTypeDefaultingFunc(&rbacv1.ClusterRoleBinding{},
		func(obj any) { defaultBinding(obj.(*rbacv1.ClusterRoleBinding)) })
	return s
}

func defaultBinding(b *rbacv1.ClusterRoleBinding) {
	if b.RoleRef.APIGroup == "" {
		b.RoleRef.APIGroup = rbacv1.GroupName
	}
	for i := range b.Subjects {
		if s := &b.Subjects[i]; s.APIGroup == "" && s.Kind != rbacv1.ServiceAccountKind {
			s.APIGroup = rbacv1.GroupName
		}
	}
}

// jsonOnly is a serializer without protobuf, which the types of the gateway's own groups do not support.
type jsonOnly struct{ runtime.NegotiatedSerializer }

func (s jsonOnly) SupportedMediaTypes() []runtime.SerializerInfo {
	var out []runtime.SerializerInfo
	for _, info := range s.NegotiatedSerializer.SupportedMediaTypes() {
		if info.MediaType != runtime.ContentTypeProtobuf {
			out = append(out, info)
		}
	}
	return out
}
