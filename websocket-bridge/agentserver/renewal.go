package agentserver

import (
	"context"
	"errors"
	"net/http"
	"strings"
	"time"

	"github.com/clusterpass/clusterpass/shared/audit"
	"github.com/clusterpass/clusterpass/shared/passes"
	"github.com/clusterpass/clusterpass/shared/passes/possession"
	"github.com/clusterpass/clusterpass/shared/route"
	"github.com/clusterpass/clusterpass/shared/status"
)

const endAgentsTimeout = 10 * time.Second

// ReusesMetric counts uses of credentials that prove a copy.
const ReusesMetric = "clusterpass_agent_credential_reuses_total"

// RecordTo sends audit events of reused credentials to log. A nil log discards them.
func (a *Agents) RecordTo(log *audit.Log) { a.audit.Store(log) }

func (a *Agents) sendRenewal(w http.ResponseWriter, r *http.Request, agent *passes.Agent, request string) error {
	if request == "" {
		return status.New(status.BadRequest, agent.Cluster,
			"the agent's credential is not renewed: the agent sends no %s; upgrade the agent", possession.RequestHeader)
	}
	next, err := a.cfg.Issuer.RenewAgent(r.Context(), agent, request)
	if err != nil {
		return err
	}
	w.Header().Set("Content-Type", "application/jwt")
	w.Header().Set("Cache-Control", "no-store")
	_, _ = w.Write(next.Reveal()) //nolint:gosec // a token that was made here; the agent may be gone
	return nil
}

// endIfReused reports whether err wraps a *passes.ReusedError. If so, it ends all credentials of the cluster's agents,
// and records the reuse. r is the request with the credential, or the request that opened the tunnel.
func (a *Agents) endIfReused(r *http.Request, err error) bool {
	var reused *passes.ReusedError
	if !errors.As(err, &reused) {
		return false
	}
	agent, from := reused.Agent, strings.Join(audit.Sources(r), ", ")
	a.reuses.Inc()
	a.cfg.Log.Error("a replaced credential of an agent was used: the cluster has to join again",
		"cluster", agent.Cluster, "from", from, "error", reused.Error())
	event := a.audit.Load().Begin(r)
	event.User(audit.User{Username: "clusterpass:agent:" + agent.Cluster}, "agent")
	event.Target(agent.Cluster, route.Resource{Verb: "connect"})
	failed := status.From(err)
	event.Decision(false, failed.Message)
	event.Completed(failed.Code(), failed)
	// The client must not be able to prevent this by closing the connection.
	ctx, cancel := context.WithTimeout(context.WithoutCancel(r.Context()), endAgentsTimeout)
	defer cancel()
	if err := a.cfg.Issuer.EndAgents(ctx, agent, passes.Reuse{Time: time.Now(), From: from}); err != nil {
		a.cfg.Log.Error("the credentials of a cluster's agents cannot be ended now",
			"cluster", agent.Cluster, "error", err.Error())
	}
	return true
}
