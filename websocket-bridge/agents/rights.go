package agents

import (
	"context"
	"net/http"
	"strings"
	"sync"

	"github.com/clusterpass/clusterpass/shared/passes"
	"github.com/clusterpass/clusterpass/shared/passes/possession"
)

const (
	// rechecks is how many agents are looked at side by side, so that a store that is slow for one holds up few others.
	rechecks = 32
	// asks is how many agents are asked side by side for their credential: those that do not answer hold up few others.
	asks = 64
)

// recheck ends the tunnels of agents that may not be connected any more, and has those asked then whose credential is about to end. It does
// not wait for what they say: who says nothing must not hold up the next recheck.
func (a *Agents) recheck(ctx context.Context) {
	all := a.registry.all()
	sideBySide(all, rechecks, func(s *session) { a.recheckOne(ctx, s) })
	if !a.asking.CompareAndSwap(false, true) {
		return // they are being asked still
	}
	a.wg.Go(func() {
		defer a.asking.Store(false)
		sideBySide(all, asks, func(s *session) { a.renew(ctx, s) })
	})
}

// sideBySide does what is to be done for each of all, for n at a time, and waits for it.
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

// recheckOne is recheck for one.
func (a *Agents) recheckOne(ctx context.Context, s *session) {
	if err := s.by.Load().Recheck(ctx); err != nil && ctx.Err() == nil {
		a.cfg.Log.Warn("an agent may not be connected any more", "cluster", s.cluster, "error", err.Error())
		_ = s.mux.Close()
	}
}

// renew asks an agent whose credential is about to end for the one that it has now, so that its tunnel outlives the one that it came with.
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
		a.cfg.Log.Debug("an agent has no credential to go on with", "cluster", s.cluster, "error", err.Error())
	}
}

// ask returns the credential that an agent has now. The agent answers a token, and after a line break the proof.
func (a *Agents) ask(ctx context.Context, s *session) (passes.Presented, error) {
	answer, err := s.call(ctx, http.MethodGet, CredentialPath, nil)
	token, proof, _ := strings.Cut(string(answer), "\n")
	return passes.Presented{Token: token, Proof: proof, Use: possession.Connect}, err
}
