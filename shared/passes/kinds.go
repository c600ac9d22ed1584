package passes

import (
	"slices"

	"github.com/go-jose/go-jose/v4"
	"github.com/go-jose/go-jose/v4/jwt"
)

// kind is a kind of token. Tokens of different kinds differ in their keys, their audience and their type.
type kind struct {
	what       string   // in errors
	typ        string   // in the token's header
	signedBy   string   // the set of keys
	verifiedBy []string // sets of keys
}

// The kinds of tokens. The keys of passes signed all of them before the others had keys of their own. They still may:
// whoever has them can make any caller's credential. The reverse is never true: only the keys of passes verify a pass.
var (
	passToken   = kind{"pass", passType, PassKeys, []string{PassKeys}}
	agentToken  = kind{"agent's credential", "clusterpass-agent+jwt", AgentKeys, []string{AgentKeys, PassKeys}}
	tunnelToken = kind{"token", "clusterpass-tunnel+jwt", TunnelKeys, []string{TunnelKeys, PassKeys}}
	// The certificate of the tunnel port is no token, and has the same keys.
	tunnelPort = kind{"tunnel port's certificate", "", TunnelKeys, tunnelToken.verifiedBy}
)

// passType is the type of passes, and of all tokens by earlier versions.
const passType = "JWT"

// accepts reports whether a token has the type of this kind, or none.
func (k kind) accepts(t *jwt.JSONWebToken) bool {
	typ, has := t.Headers[0].ExtraHeaders[jose.HeaderType]
	return !has || slices.Contains([]any{passType, k.typ}, typ)
}
