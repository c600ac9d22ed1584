package passes

import (
	"slices"

	"github.com/go-jose/go-jose/v4"
	"github.com/go-jose/go-jose/v4/jwt"
)

type kind struct {
	description string   // for errors
	typ         string   // in the token's header
	signedBy    string   // the set of keys
	verifiedBy  []string // sets of keys
}

// Earlier versions signed all kinds with the keys of passes, which still verify them. That adds no risk, because a
// thief of those keys can create passes for any user. Only the keys of passes verify passes.
var (
	passToken   = kind{"pass", passType, PassKeys, []string{PassKeys}}
	agentToken  = kind{"agent's credential", "clusterpass-agent+jwt", AgentKeys, []string{AgentKeys, PassKeys}}
	tunnelToken = kind{"token", "clusterpass-tunnel+jwt", TunnelKeys, []string{TunnelKeys, PassKeys}}
	// tunnelPort is not a token, but has the same keys as tunnelToken.
	tunnelPort = kind{"tunnel port's certificate", "", TunnelKeys, tunnelToken.verifiedBy}
)

// passType is also the type of all tokens of earlier versions.
const passType = "JWT"

func (k kind) accepts(t *jwt.JSONWebToken) bool {
	typ, has := t.Headers[0].ExtraHeaders[jose.HeaderType]
	return !has || slices.Contains([]any{passType, k.typ}, typ)
}
