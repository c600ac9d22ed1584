package main

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"

	"github.com/google/uuid"
	"github.com/spf13/cobra"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	utilyaml "k8s.io/apimachinery/pkg/util/yaml"
	"sigs.k8s.io/yaml"

	clusterpassv1alpha1 "github.com/clusterpass/clusterpass/shared/api/clusterpass/v1alpha1"
	searchv1alpha1 "github.com/clusterpass/clusterpass/shared/api/search/v1alpha1"
	"github.com/clusterpass/clusterpass/shared/objects"
	"github.com/clusterpass/clusterpass/shared/recording/policy"
)

func (a *app) apply() *cobra.Command {
	return a.fileCommand("apply", "Write roles, bindings, registries and recording policies into the store",
		`Write ClusterRoles and ClusterRoleBindings (rbac.authorization.k8s.io/v1) into the store. They define who may call
which cluster. A call to cluster c needs a verb on the resource clusters/proxy of cluster.karmada.io with the
resourceName c. The HTTP method determines the verb: get, create, update, patch or delete. Exec, attach, port-forward
and other upgrades need create. ResourceRegistries (search.karmada.io/v1alpha1) define which kinds of which clusters
the fleet serves. RecordingPolicies (clusterpass.io/v1alpha1) define which sessions are recorded. A change is effective
within seconds.`, applyObject)
}

func (a *app) delete() *cobra.Command {
	return a.fileCommand("delete", "Delete roles, bindings, registries and recording policies from the store",
		"Delete the ClusterRoles, ClusterRoleBindings, ResourceRegistries and RecordingPolicies of a file from the store.",
		deleteObject)
}

func (a *app) fileCommand(use, short, long string,
	do func(context.Context, objects.Store, *object) (string, error)) *cobra.Command {
	var file string
	cmd := &cobra.Command{
		Use: use + " -f FILE", Short: short, Long: long, Args: cobra.NoArgs,
		Example: "  clusterpass " + use + " -f cluster-proxy-rbac.yaml\n  cat roles.yaml | clusterpass " + use + " -f -",
		RunE: func(cmd *cobra.Command, _ []string) error {
			in := cmd.InOrStdin()
			if file != "-" {
				f, err := os.Open(file)
				if err != nil {
					return err
				}
				defer func() { _ = f.Close() }()
				in = f
			}
			all, err := parseObjects(in)
			if err != nil {
				return err
			}
			r, err := a.registrar(cmd.Context())
			if err != nil {
				return err
			}
			for _, o := range all {
				done, err := do(cmd.Context(), r.Objects, o)
				if err != nil {
					return fmt.Errorf("%s: %w", o.what(), err)
				}
				if _, err := fmt.Fprintf(cmd.OutOrStdout(), "%s %s\n", o.what(), done); err != nil {
					return err
				}
			}
			return nil
		},
	}
	cmd.Flags().StringVarP(&file, "filename", "f", "", "YAML or JSON file, or - for standard input")
	_ = cmd.MarkFlagRequired("filename") // the flag exists
	return cmd
}

type object struct {
	prefix, kind string
	meta         *metav1.ObjectMeta
	value        any
}

func (o *object) key() string  { return o.prefix + o.meta.Name }
func (o *object) what() string { return o.kind + "/" + o.meta.Name }

// parseObjects refuses all documents if one is invalid.
func parseObjects(in io.Reader) ([]*object, error) {
	var out []*object
	docs := utilyaml.NewYAMLReader(bufio.NewReader(in))
	for n := 1; ; n++ {
		doc, err := docs.Read()
		if errors.Is(err, io.EOF) {
			break
		} else if err != nil {
			return nil, err
		}
		if len(bytes.TrimSpace(doc)) == 0 {
			continue
		}
		o, err := parseObject(doc)
		if err != nil {
			return nil, fmt.Errorf("document %d: %w", n, err)
		}
		out = append(out, o)
	}
	if len(out) == 0 {
		return nil, errors.New("there is no object in the file")
	}
	return out, nil
}

func parseObject(doc []byte) (*object, error) {
	var t metav1.TypeMeta
	if err := yaml.Unmarshal(doc, &t); err != nil {
		return nil, err
	}
	rbac := rbacv1.SchemeGroupVersion.String()
	var o *object
	switch t.APIVersion + " " + t.Kind {
	case rbac + " ClusterRole":
		r := &rbacv1.ClusterRole{}
		o = &object{"clusterroles/", "clusterrole", &r.ObjectMeta, r}
	case rbac + " ClusterRoleBinding":
		b := &rbacv1.ClusterRoleBinding{}
		o = &object{"clusterrolebindings/", "clusterrolebinding", &b.ObjectMeta, b}
	case searchv1alpha1.APIVersion + " " + searchv1alpha1.Kind:
		r := &searchv1alpha1.ResourceRegistry{}
		o = &object{searchv1alpha1.Prefix, "resourceregistry", &r.ObjectMeta, r}
	case clusterpassv1alpha1.APIVersion + " " + clusterpassv1alpha1.RecordingPolicyKind:
		p := &clusterpassv1alpha1.RecordingPolicy{}
		o = &object{clusterpassv1alpha1.RecordingPolicyPrefix, "recordingpolicy", &p.ObjectMeta, p}
	default:
		return nil, fmt.Errorf("apiVersion %q, kind %q: want ClusterRole or ClusterRoleBinding of %s, ResourceRegistry of "+
			"%s, or RecordingPolicy of %s", t.APIVersion, t.Kind, rbac, searchv1alpha1.APIVersion,
			clusterpassv1alpha1.APIVersion)
	}
	if err := yaml.UnmarshalStrict(doc, o.value); err != nil {
		return nil, err
	}
	if o.meta.Name == "" {
		return nil, errors.New("metadata.name is missing; is the indentation right?")
	}
	switch v := o.value.(type) {
	case *rbacv1.ClusterRoleBinding:
		return o, checkBinding(v)
	case *clusterpassv1alpha1.RecordingPolicy:
		if errs := policy.Validate(&v.Spec); len(errs) > 0 {
			return nil, errs.ToAggregate()
		}
	}
	return o, nil
}

func checkBinding(b *rbacv1.ClusterRoleBinding) error {
	if b.RoleRef.APIGroup != rbacv1.GroupName || b.RoleRef.Kind != "ClusterRole" || b.RoleRef.Name == "" {
		return fmt.Errorf("roleRef: want apiGroup %s, kind ClusterRole and a name", rbacv1.GroupName)
	}
	for i := range b.Subjects {
		s := &b.Subjects[i]
		switch s.Kind {
		case rbacv1.UserKind, rbacv1.GroupKind:
			s.APIGroup = rbacv1.GroupName // the default in Kubernetes, too
		case rbacv1.ServiceAccountKind:
			if s.Namespace == "" {
				return fmt.Errorf("subjects[%d].namespace is missing", i)
			}
		default:
			return fmt.Errorf("subjects[%d].kind %q: want User, Group or ServiceAccount", i, s.Kind)
		}
		if s.Name == "" {
			return fmt.Errorf("subjects[%d].name is missing", i)
		}
	}
	return nil
}

func applyObject(ctx context.Context, store objects.Store, o *object) (string, error) {
	old, err := store.Get(ctx, o.key())
	switch {
	case errors.Is(err, objects.ErrNotFound):
		o.meta.UID, o.meta.CreationTimestamp = types.UID(uuid.NewString()), metav1.Now().Rfc3339Copy()
		value, err := json.Marshal(o.value)
		if err == nil {
			_, err = store.Create(ctx, o.key(), value)
		}
		return "created", err
	case err != nil:
		return "", err
	}
	var before struct {
		Metadata metav1.ObjectMeta `json:"metadata"`
		RoleRef  *rbacv1.RoleRef   `json:"roleRef"`
	}
	if err := json.Unmarshal(old.Value, &before); err != nil {
		return "", fmt.Errorf("read what is stored: %w", err)
	}
	if b, ok := o.value.(*rbacv1.ClusterRoleBinding); ok && before.RoleRef != nil && *before.RoleRef != b.RoleRef {
		return "", errors.New("roleRef cannot be changed; delete the binding first")
	}
	o.meta.UID, o.meta.CreationTimestamp = before.Metadata.UID, before.Metadata.CreationTimestamp
	value, err := json.Marshal(o.value)
	if err != nil {
		return "", err
	}
	if bytes.Equal(value, old.Value) {
		return "unchanged", nil
	}
	_, err = store.Update(ctx, o.key(), value, old.Revision)
	return "configured", err
}

func deleteObject(ctx context.Context, store objects.Store, o *object) (string, error) {
	old, err := store.Get(ctx, o.key())
	if err == nil {
		_, err = store.Delete(ctx, o.key(), old.Revision)
	}
	if errors.Is(err, objects.ErrNotFound) {
		return "is not there", nil
	}
	return "deleted", err
}
