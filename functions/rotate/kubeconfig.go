package rotate

import (
	"encoding/json"
	"errors"
	"slices"

	"k8s.io/apimachinery/pkg/runtime"
	clientcmdv1 "k8s.io/client-go/tools/clientcmd/api/v1"
	"sigs.k8s.io/yaml"

	"github.com/clusterpass/clusterpass/shared/secrets"
)

// origin identifies the secret version that a renewed kubeconfig was made from. It is stored in its user, as an
// extension.
type origin struct {
	Version string `json:"version"` // version of the secret
	Account string `json:"account"`
}

const originName = "clusterpass.io/renewed-from"

// renew returns a copy of the kubeconfig old with another token. The current context's user must have a token.
func renew(old []byte, token string, from origin) (secrets.Value, error) {
	kc, user, err := currentUser(old)
	if err != nil {
		return secrets.Value{}, err
	}
	note, err := json.Marshal(from)
	if err != nil {
		return secrets.Value{}, err
	}
	user.Token = token
	user.Extensions = slices.DeleteFunc(user.Extensions, func(e clientcmdv1.NamedExtension) bool {
		return e.Name == originName
	})
	user.Extensions = append(user.Extensions, clientcmdv1.NamedExtension{
		Name: originName, Extension: runtime.RawExtension{Raw: note},
	})
	out, err := yaml.Marshal(kc)
	if err != nil {
		return secrets.Value{}, errors.New("the kubeconfig cannot be written") // the cause may contain it
	}
	return secrets.NewValue(out), nil
}

// originOf returns the origin that renew stored, or zero.
func originOf(v secrets.Value) origin {
	var o origin
	_, user, err := currentUser(v.Reveal())
	if err != nil {
		return o
	}
	for _, e := range user.Extensions {
		if e.Name == originName {
			_ = json.Unmarshal(e.Extension.Raw, &o) // zero if it is invalid
		}
	}
	return o
}

// currentUser returns a kubeconfig and the user of its current or only context.
func currentUser(data []byte) (*clientcmdv1.Config, *clientcmdv1.AuthInfo, error) {
	kc := &clientcmdv1.Config{}
	if err := yaml.Unmarshal(data, kc); err != nil {
		return nil, nil, errors.New("the kubeconfig cannot be read") // the cause may contain it
	}
	for _, c := range kc.Contexts {
		if c.Name != kc.CurrentContext && (kc.CurrentContext != "" || len(kc.Contexts) != 1) {
			continue
		}
		for i := range kc.AuthInfos {
			if kc.AuthInfos[i].Name == c.Context.AuthInfo {
				return kc, &kc.AuthInfos[i].AuthInfo, nil
			}
		}
	}
	return nil, nil, errors.New("the kubeconfig's current context has no user")
}
