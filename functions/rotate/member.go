package rotate

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/clusterpass/clusterpass/shared/api/cluster/v1alpha1"
	"github.com/clusterpass/clusterpass/shared/cluster"
)

// minLifetime is the minimum lifetime of a token that Kubernetes accepts.
const minLifetime = 10 * time.Minute

// member returns a client for the cluster of the secret, with a version's credential. The caller must close it.
func (r *rotation) member(ctx context.Context, v *version) (*cluster.Member, error) {
	c, err := r.cluster(ctx)
	if err != nil {
		return nil, err
	}
	kc, err := cluster.Validate(c, v.value.Reveal(), nil, time.Now())
	if err != nil {
		return nil, err
	}
	return cluster.NewMember(c, kc, r.Policy, nil), nil
}

// cluster finds the Cluster that refers to the secret. Settings like its proxyURL are not in the kubeconfig.
func (r *rotation) cluster(ctx context.Context) (*v1alpha1.Cluster, error) {
	name, err := r.storeName()
	if err != nil {
		return nil, err
	}
	for cont := ""; ; {
		page, err := r.Objects.List(ctx, v1alpha1.Prefix, 0, cont)
		if err != nil {
			return nil, fmt.Errorf("find its cluster: %w", err)
		}
		for _, o := range page.Objects {
			c, err := v1alpha1.Decode(o.Key, o.Value)
			// An unreadable Cluster cannot be called, so it is not this one.
			if err == nil && c.SecretName() == name && c.OwnsSecret(name) {
				return c, nil
			}
		}
		if cont = page.Continue; cont == "" {
			return nil, fmt.Errorf("no cluster names the secret %q; switch its rotation off, or delete it", name)
		}
	}
}

// minted is a new token with its description by the member.
type minted struct {
	bearer  string
	account string // the user name system:serviceaccount:NAMESPACE:NAME
	expires time.Time
}

const accountPrefix = "system:serviceaccount:"

// mint requests a new token from the member, for the account of the present token.
func mint(ctx context.Context, m *cluster.Member, lifetime time.Duration) (*minted, error) {
	account, err := m.WhoAmI(ctx)
	var refused *cluster.CallError
	if errors.As(err, &refused) && refused.Code == http.StatusUnauthorized {
		return nil,
			fmt.Errorf("%w; its token has expired or its service account is gone, so the cluster must be registered again", err)
	} else if err != nil {
		return nil, err
	}
	namespaced, ok := strings.CutPrefix(account, accountPrefix)
	namespace, name, both := strings.Cut(namespaced, ":")
	if !ok || !both {
		return nil,
			fmt.Errorf("its token is of the user %q, and only those of service accounts can be renewed; switch rotation off",
				account)
	}
	req := tokenRequest{TypeMeta: metav1.TypeMeta{APIVersion: "authentication.k8s.io/v1", Kind: "TokenRequest"}}
	req.Spec.ExpirationSeconds = int64(lifetime.Seconds())
	path := "/api/v1/namespaces/" + url.PathEscape(namespace) + "/serviceaccounts/" + url.PathEscape(name) + "/token"
	err = m.Call(ctx, http.MethodPost, path, &req, &req)
	switch {
	case errors.As(err, &refused) && refused.Code == http.StatusForbidden:
		return nil, fmt.Errorf("%w; grant the account create on its own serviceaccounts/token", err)
	case err != nil:
		return nil, err
	case req.Status.Token == "" || req.Status.Token == m.Credential.Token:
		return nil, errors.New("the member gives no new token")
	}
	return &minted{req.Status.Token, account, req.Status.ExpirationTimestamp.Time}, nil
}

// tokenRequest is the necessary part of authentication.k8s.io/v1 TokenRequest. No audience means the API server's own.
type tokenRequest struct {
	metav1.TypeMeta `json:",inline"`
	Spec            struct {
		ExpirationSeconds int64 `json:"expirationSeconds"`
	} `json:"spec"`
	Status struct {
		Token               string      `json:"token"`
		ExpirationTimestamp metav1.Time `json:"expirationTimestamp"`
	} `json:"status"`
}
