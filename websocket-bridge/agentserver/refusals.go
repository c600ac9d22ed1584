package agentserver

import (
	"net/http"
	"time"

	"github.com/clusterpass/clusterpass/shared/limits"
	"github.com/clusterpass/clusterpass/shared/status"
)

// refusal contains the attributes of a refused request of an agent.
type refusal []any

// logRefusal logs a refused request. Any client can send such requests, so that beyond a rate one line counts many.
func (a *Agents) logRefusal(r *http.Request, cluster string, e *status.Error) {
	refused := refusal{
		"cluster", cluster, "reason", string(e.Reason), "error", limits.Cut(e.Message, limits.MaxUnidentified),
	}
	if a.refused.Allows(refused, limits.SourceOf(limits.ParseAddress(r.RemoteAddr)).String(), time.Now()) {
		a.cfg.Log.Info("an agent is refused", refused...)
	}
}

func (a *Agents) logRefusals(minAge time.Duration) {
	if s := a.refused.Summary(time.Now(), minAge); s != nil {
		a.cfg.Log.Info("an agent is refused", append(s.First, "requests", s.Count, "sources", s.Sources)...)
	}
}
