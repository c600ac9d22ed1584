package passes

import (
	"slices"

	"github.com/go-jose/go-jose/v4"
	"github.com/go-jose/go-jose/v4/jwt"
)

// kind is a kind of token. Tokens of different kinds differ in their keys, their audience and their type.
type kind struct {
	description string   // for errors
	typ         string   // in the token's header
	signedBy    string   // the set of keys
	verifiedBy  []string // sets of keys
}

// The kinds of tokens. Earlier versions signed all of them with the keys of passes, which still verify them. That adds
// no risk, because a thief of those keys can create passes for any user. Only the keys of passes verify passes.
var (
	passToken   = kind{"pass", passType, PassKeys, []string{PassKeys}}
	agentToken  = kind{"agent's credential", "clusterpass-agent+jwt", AgentKeys, []string{AgentKeys, PassKeys}}
	tunnelToken = kind{"token", "clusterpass-tunnel+jwt", TunnelKeys, []string{TunnelKeys, PassKeys}}
	// tunnelPort is the certificate of the tunnel port. It is not a token, but has the same keys as tunnelToken.
	tunnelPort = kind{"tunnel port's certificate", "", TunnelKeys, tunnelToken.verifiedBy}
)

// passType is the type in the headers of passes, and of all tokens of earlier versions.
const passType = "JWT"

// accepts reports whether the type in a token's header allows this kind: its own type, passType or none.
func (k kind) accepts(t *jwt.JSONWebToken) bool {
	typ, has := t.Headers[0].ExtraHeaders[jose.HeaderType]
	return !has || slices.Contains([]any{passType, k.typ}, typ)
}
