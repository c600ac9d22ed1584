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
	// maxRechecks is the number of concurrent checks, so that a slow store for one agent delays few others.
	maxRechecks = 32
	// maxAsks is the number of agents that are asked concurrently for their credential, so that silent ones delay few
	// others.
	maxAsks = 64
)

// recheck closes the tunnels of agents whose credential is no longer valid. Then it starts to ask agents for a newer
// credential if theirs ends soon. It does not wait for them, so that silent agents cannot delay the next recheck.
func (a *Agents) recheck(ctx context.Context) {
	all := a.registry.all()
	sideBySide(all, maxRechecks, func(s *session) { a.recheckOne(ctx, s) })
	if !a.asking.CompareAndSwap(false, true) {
		return // the last round is still running
	}
	a.wg.Go(func() {
		defer a.asking.Store(false)
		sideBySide(all, maxAsks, func(s *session) { a.renew(ctx, s) })
	})
}

// sideBySide calls do for each of all, at most n concurrently, and waits.
func sideBySide(all []*session, n int, do func(*session)) {
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

// recheckOne closes the tunnel of an agent whose credential is no longer valid.
func (a *Agents) recheckOne(ctx context.Context, s *session) {
	if err := s.by.Load().Recheck(ctx); err != nil && ctx.Err() == nil {
		a.cfg.Log.Warn("an agent lost its tunnel: its credential is no longer valid", "cluster", s.cluster, "error",
			err.Error())
		_ = s.mux.Close()
	}
}

// renew asks an agent whose credential ends soon for its current one, so that the tunnel outlives the credential that
// it was opened with.
func (a *Agents) renew(ctx context.Context, s *session) {
	if ctx.Err() != nil || s.mux.IsClosed() || !s.by.Load().Ending() {
		return
	}
	p, err := a.ask(ctx, s)
	if err == nil {
		var by *passes.Agent
		if by, err = a.cfg.Keys.Agent(ctx, s.cluster, p); err == nil {
			s.by.Store(by)
		}
	}
	if err != nil {
		a.cfg.Log.Debug("an agent has no newer credential", "cluster", s.cluster, "error", err.Error())
	}
}

// ask returns the agent's current credential. The response is a token, a line break and the proof.
func (a *Agents) ask(ctx context.Context, s *session) (passes.Presented, error) {
	answer, err := s.call(ctx, http.MethodGet, CredentialPath, nil)
	token, proof, _ := strings.Cut(string(answer), "\n")
	return passes.Presented{Token: token, Proof: proof, Use: possession.Connect}, err
}
