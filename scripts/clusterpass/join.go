package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	authenticationv1 "k8s.io/api/authentication/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	corev1 "k8s.io/client-go/applyconfigurations/core/v1"
	rbacv1 "k8s.io/client-go/applyconfigurations/rbac/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/clusterpass/clusterpass/shared/access"
	"github.com/clusterpass/clusterpass/shared/api/cluster/v1alpha1"
	"github.com/clusterpass/clusterpass/shared/registration"
	"github.com/clusterpass/clusterpass/shared/secrets"
	"github.com/clusterpass/clusterpass/shared/version"
)

const (
	joinNamespace = "clusterpass-system" // namespace of the account in a member
	joinTimeout   = time.Minute
	// Maximum time until the account's rights are effective, and the pause between two checks.
	grantTimeout, grantPause = 30 * time.Second, 200 * time.Millisecond
)

// account is a ServiceAccount in a member. Each gateway and cluster has its own, with its own rights.
type account struct {
	name   string
	groups []string // groups that it may impersonate; none means all
}

func (a *app) clusterJoin() *cobra.Command {
	s := &source{identity: string(v1alpha1.Impersonate)}
	var groups []string
	var lifetime time.Duration
	p := &private{}
	cmd := &cobra.Command{
		Use:   "join NAME",
		Short: "Create an account in a cluster that may only impersonate, and register the cluster with it",
		Long: `Create a ServiceAccount with only the rights that the gateway needs, in the cluster of the context, and
register the cluster with a token of it. The context's own credential is used once and not stored.

Name each group of the callers with --group, except system:authenticated. The account may impersonate these groups
alone, and the cluster refuses a caller of any other group (403). This includes the owner of the gateway, who is in
system:masters: such a caller uses kubectl's --as and --as-group.

The account may impersonate any user and service account, with their UIDs and extras. So do not grant critical
rights to users by name. It may also create new tokens for itself, so that its token can be rotated. Each gateway
and each registered name has its own account in the cluster. Joining again with --replace replaces the account's
groups. The command prints the rights of the account.

Without --group the account may impersonate every group, including system:masters. Anyone with its token is then
cluster-admin.

With --pull the cluster is private: agents in the cluster connect to the gateway, and the gateway never dials
the cluster. The command prints a manifest for the agents, including their credential. Apply it in the
cluster.`,
		Example: `  clusterpass cluster join prod --context prod-admin --group dev --group ops
  clusterpass cluster join --pull branch --context branch-admin --group dev \
    --agent-image registry.example.com/clusterpass-agent:v1 | kubectl --context branch-admin apply -f -`,
		Args: oneArg,
		RunE: func(cmd *cobra.Command, args []string) error {
			// Find all errors before the member is changed.
			if lifetime < 10*time.Minute {
				return fmt.Errorf("--token-lifetime %v: want at least 10m, as Kubernetes does", lifetime)
			}
			if err := p.complete(a, s); err != nil {
				return err
			}
			r, err := a.registrar(cmd.Context())
			if err == nil {
				err = r.Precheck(cmd.Context(), args[0], s.replace)
			}
			if err != nil {
				return err
			}
			admin, err := registration.Load(s.kubeconfig, s.context)
			if err != nil {
				return err
			}
			installation, err := r.Installation(cmd.Context())
			if err != nil {
				return err
			}
			acc := account{"clusterpass-" + args[0] + "-" + installation, groups}
			kc, err := join(cmd.Context(), admin, acc, lifetime)
			if err != nil {
				return fmt.Errorf("cluster %q is not joined: %w", args[0], err)
			}
			if err := a.registerJoined(cmd, args[0], kc, s); err != nil {
				return err
			}
			if !p.pull {
				return acc.describe(cmd.OutOrStdout(), args[0])
			}
			if err := errors.Join(acc.describe(cmd.ErrOrStderr(), args[0]), p.noteImage(cmd.ErrOrStderr())); err != nil {
				return err
			}
			return p.print(cmd.Context(), cmd.OutOrStdout(), r, args[0], acc.name)
		},
	}
	s.flags(cmd)
	p.flags(cmd)
	cmd.Flags().StringSliceVar(&groups, "group", nil,
		"group that the account may impersonate; may be repeated (without it: every group, which equals cluster-admin)")
	cmd.Flags().DurationVar(&lifetime, "token-lifetime", 90*24*time.Hour,
		"lifetime of the token; the cluster may grant less")
	return cmd
}

// registerJoined waits until the account's rights are effective, because each API server applies new rights a moment
// after they are written.
func (a *app) registerJoined(cmd *cobra.Command, name string, kubeconfig secrets.Value, s *source) error {
	for deadline := time.Now().Add(grantTimeout); ; time.Sleep(grantPause) {
		var lacking *registration.LackingError
		err := a.register(cmd, name, kubeconfig, s)
		if !errors.As(err, &lacking) || time.Now().After(deadline) || cmd.Context().Err() != nil {
			return err
		}
	}
}

// describe prints the rights that apply grants.
func (acc account) describe(w io.Writer, cluster string) error {
	groups, advice := strings.Join(acc.groups, ", "), ""
	if len(acc.groups) == 0 {
		groups = "any, including " + access.Masters
	}
	if len(acc.groups) == 0 || slices.Contains(acc.groups, access.Masters) {
		advice = fmt.Sprintf("So anyone with its token is cluster-admin. To allow other groups alone: "+
			"clusterpass cluster join %s --replace --group GROUP\n", cluster)
	}
	_, err := fmt.Fprintf(w, `The gateway's account there, %s/%s, may impersonate
  groups:                  %s
  users, service accounts: any, with their UIDs and extras
and create tokens for itself. It has no other right.
%s`, joinNamespace, acc.name, groups, advice)
	return err
}

func join(ctx context.Context, admin secrets.Value, acc account, lifetime time.Duration) (secrets.Value, error) {
	ctx, cancel := context.WithTimeout(ctx, joinTimeout)
	defer cancel()
	cfg, err := clientcmd.RESTConfigFromKubeConfig(admin.Reveal())
	if err != nil {
		return secrets.Value{}, err
	}
	cfg.UserAgent = version.UserAgent()
	// The registration checks this, too, but the account in the cluster must not be created before.
	if found, err := isGateway(ctx, cfg); err == nil && found {
		return secrets.Value{}, registration.GatewayError(cfg.Host)
	}
	client, err := kubernetes.NewForConfig(cfg)
	if err != nil {
		return secrets.Value{}, err
	}
	if err := acc.apply(ctx, client); err != nil {
		return secrets.Value{}, err
	}
	seconds := int64(lifetime / time.Second)
	token, err := client.CoreV1().ServiceAccounts(joinNamespace).CreateToken(ctx, acc.name,
		&authenticationv1.TokenRequest{Spec: authenticationv1.TokenRequestSpec{ExpirationSeconds: &seconds}},
		metav1.CreateOptions{})
	if err != nil {
		return secrets.Value{}, fmt.Errorf("create a token: %w", err)
	}
	return registration.WithToken(admin, token.Status.Token)
}

func (acc account) apply(ctx context.Context, client kubernetes.Interface) error {
	opts := metav1.ApplyOptions{FieldManager: "clusterpass", Force: true}
	core, rbac := client.CoreV1(), client.RbacV1()
	impersonateGroups := rbacv1.PolicyRule().WithAPIGroups("").WithResources("groups").WithVerbs("impersonate")
	if len(acc.groups) > 0 {
		impersonateGroups.WithResourceNames(acc.groups...)
	}
	subject := rbacv1.Subject().WithKind("ServiceAccount").WithNamespace(joinNamespace).WithName(acc.name)
	steps := []struct {
		what string
		do   func() error
	}{
		{"namespace", func() error {
			_, err := core.Namespaces().Apply(ctx, corev1.Namespace(joinNamespace), opts)
			return err
		}},
		{"service account", func() error {
			_, err := core.ServiceAccounts(joinNamespace).Apply(ctx,
				corev1.ServiceAccount(acc.name, joinNamespace).WithAutomountServiceAccountToken(false), opts)
			return err
		}},
		{"cluster role", func() error {
			_, err := rbac.ClusterRoles().Apply(ctx, rbacv1.ClusterRole(acc.name).WithRules(
				rbacv1.PolicyRule().WithAPIGroups("").WithResources("users", "serviceaccounts").WithVerbs("impersonate"),
				impersonateGroups,
				rbacv1.PolicyRule().WithAPIGroups("authentication.k8s.io").WithResources("*").WithVerbs("impersonate"),
			), opts)
			return err
		}},
		{"cluster role binding", func() error {
			_, err := rbac.ClusterRoleBindings().Apply(ctx, rbacv1.ClusterRoleBinding(acc.name).
				WithRoleRef(rbacv1.RoleRef().WithAPIGroup("rbac.authorization.k8s.io").WithKind("ClusterRole").WithName(acc.name)).
				WithSubjects(subject), opts)
			return err
		}},
		{"role", func() error {
			_, err := rbac.Roles(joinNamespace).Apply(ctx, rbacv1.Role(acc.name, joinNamespace).WithRules(
				rbacv1.PolicyRule().WithAPIGroups("").WithResources("serviceaccounts/token").WithResourceNames(acc.name).WithVerbs(
					"create"),
			), opts)
			return err
		}},
		{"role binding", func() error {
			_, err := rbac.RoleBindings(joinNamespace).Apply(ctx, rbacv1.RoleBinding(acc.name, joinNamespace).
				WithRoleRef(rbacv1.RoleRef().WithAPIGroup("rbac.authorization.k8s.io").WithKind("Role").WithName(acc.name)).
				WithSubjects(subject), opts)
			return err
		}},
	}
	for _, s := range steps {
		if err := s.do(); err != nil {
			return fmt.Errorf("create the %s: %w", s.what, err)
		}
	}
	return nil
}
