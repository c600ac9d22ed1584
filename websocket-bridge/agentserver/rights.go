package agentserver

import (
	"context"
	"net/http"
	"strings"
	"sync"

	"github.com/clusterpass/clusterpass/shared/passes"
	"github.com/clusterpass/clusterpass/shared/passes/possession"
)

const (
	// Concurrent checks, so that a slow store delays few other agents.
	maxRechecks = 32
	// Concurrent requests to agents, so that silent agents delay few others.
	maxRenewals = 64
)

// recheck closes the tunnels of agents whose credential is no longer valid. It requests newer credentials in the
// background, so that silent agents cannot delay the next recheck.
func (a *Agents) recheck(ctx context.Context) {
	all := a.registry.all()
	runConcurrently(all, maxRechecks, func(s *session) { a.recheckOne(ctx, s) })
	if !a.renewing.CompareAndSwap(false, true) {
		return // the last round is still running
	}
	a.wg.Go(func() {
		defer a.renewing.Store(false)
		runConcurrently(all, maxRenewals, func(s *session) { a.renew(ctx, s) })
	})
}

func runConcurrently(all []*session, n int, do func(*session)) {
	var wg sync.WaitGroup
	places := make(chan struct{}, n)
	for _, s := range all {
		places <- struct{}{}
		wg.Go(func() {
			defer func() { <-places }()
			do(s)
		})
	}
	wg.Wait()
}

func (a *Agents) recheckOne(ctx context.Context, s *session) {
	if err := s.credential.Load().Recheck(ctx); err != nil && ctx.Err() == nil {
		a.cfg.Log.Warn("an agent lost its tunnel: its credential is not known to be valid", "cluster", s.cluster, "error",
			err.Error())
		_ = s.mux.Close()
	}
}

// renew requests a newer credential if the known one ends soon, so that the tunnel can stay open.
func (a *Agents) renew(ctx context.Context, s *session) {
	if ctx.Err() != nil || s.mux.IsClosed() || !s.credential.Load().IsEnding() {
		return
	}
	p, err := a.fetchCredential(ctx, s)
	if err == nil {
		var by *passes.Agent
		if by, err = a.cfg.Verifier.AuthenticateAgent(ctx, s.cluster, p); err == nil {
			s.credential.Store(by)
		}
	}
	if err != nil {
		a.cfg.Log.Debug("an agent has no newer credential", "cluster", s.cluster, "error", err.Error())
	}
	if a.endIfReused(s.opening, err) {
		_ = s.mux.Close() // a handshake with this credential would be refused, too
	}
}

func (a *Agents) fetchCredential(ctx context.Context, s *session) (passes.AgentAuth, error) {
	answer, err := s.call(ctx, http.MethodGet, CredentialPath, nil)
	token, proof, _ := strings.Cut(string(answer), "\n")
	return passes.AgentAuth{Token: token, Proof: proof, Use: possession.Connect}, err
}
