package backup

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	clusterv1alpha1 "github.com/clusterpass/clusterpass/shared/api/cluster/v1alpha1"
	clusterpassv1alpha1 "github.com/clusterpass/clusterpass/shared/api/clusterpass/v1alpha1"
	"github.com/clusterpass/clusterpass/shared/cluster/kubeconfig"
	"github.com/clusterpass/clusterpass/shared/passes"
)

// Notes are what an operator must know about a backup: what is not in it, and what depends on the place.
type Notes struct {
	signer  string              // the key in KMS that signs passes
	private map[string][]string // private clusters, by the URL of their tunnel port
	aws     map[string]bool     // secrets that name a token of AWS
	expired int                 // passes that were left out
}

// see adds what a record shows.
func (n *Notes) see(r Record) {
	switch {
	case r.Object != nil && r.Object.Key == passes.PassKeys:
		n.signer = passes.SignerOf(r.Object.Value)
	case r.Object != nil && strings.HasPrefix(r.Object.Key, clusterv1alpha1.Prefix):
		n.forgetCluster(r.Object.Key)
		c, err := clusterv1alpha1.Decode(r.Object.Key, r.Object.Value)
		if err != nil || c.Spec.SyncMode != clusterv1alpha1.Pull {
			return
		}
		if n.private == nil {
			n.private = map[string][]string{}
		}
		name := strings.TrimPrefix(r.Object.Key, clusterv1alpha1.Prefix)
		n.private[c.Spec.ProxyURL] = append(n.private[c.Spec.ProxyURL], name)
	case r.Deleted != "":
		n.forgetCluster(r.Deleted)
	case r.Secret != nil && strings.HasPrefix(r.Secret.Name, clusterv1alpha1.Prefix):
		kc, err := kubeconfig.Parse(r.Secret.Value.Reveal(), kubeconfig.Options{AllowInsecure: true})
		if err == nil && kc.Credential.EKS != nil {
			if n.aws == nil {
				n.aws = map[string]bool{}
			}
			n.aws[r.Secret.Name] = true
		}
	}
}

func (n *Notes) forgetCluster(key string) {
	name := strings.TrimPrefix(key, clusterv1alpha1.Prefix)
	for url, names := range n.private {
		if names = slices.DeleteFunc(names, func(other string) bool { return other == name }); len(names) == 0 {
			delete(n.private, url)
		} else {
			n.private[url] = names
		}
	}
}

// skipExpired reports whether the object is a pass that has expired. It cannot be used, and Prune will delete it.
func (n *Notes) skipExpired(key string, value []byte, now time.Time) bool {
	var p clusterpassv1alpha1.Pass
	if !strings.HasPrefix(key, clusterpassv1alpha1.PassPrefix) || json.Unmarshal(value, &p) != nil {
		return false
	}
	end := p.Status.ExpirationTimestamp
	isExpired := !end.IsZero() && now.After(end.Add(time.Minute))
	if isExpired {
		n.expired++
	}
	return isExpired
}

// Text returns one sentence for each note.
func (n *Notes) Text() []string {
	var out []string
	if n.signer != "" {
		out = append(out, fmt.Sprintf("a key in AWS KMS signs passes, which the backup does not contain: %s. Passes that it "+
			"signed stay valid. Name it in CLUSTERPASS_PASS_KMS_KEY, or run clusterpass pass rotate-key in the new place",
			n.signer))
	}
	for _, url := range slices.Sorted(maps.Keys(n.private)) {
		out = append(out, fmt.Sprintf("private clusters use the tunnel port %s: %s. If the new bridge has another, "+
			"join each again: clusterpass cluster join --pull --replace NAME --group GROUP --tunnel URL",
			url, strings.Join(n.private[url], ", ")))
	}
	if len(n.aws) > 0 {
		out = append(out, "credentials are tokens of the gateway's AWS identity: "+
			strings.Join(slices.Sorted(maps.Keys(n.aws)), ", ")+". The new place needs an AWS identity with the same rights")
	}
	if n.expired > 0 {
		out = append(out, fmt.Sprintf("expired passes were left out: %d", n.expired))
	}
	return out
}
