package agents

import (
	"context"
	"net/http"
	"sync"
)

// rechecks is how many agents are looked at side by side, so that a store that is slow for one holds up few others.
const rechecks = 32

// recheck ends the tunnels of agents that may not be connected any more.
func (a *Agents) recheck(ctx context.Context) {
	var wg sync.WaitGroup
	places := make(chan struct{}, rechecks)
	for _, s := range a.registry.all() {
		places <- struct{}{}
		wg.Go(func() {
			defer func() { <-places }()
			a.recheckOne(ctx, s)
		})
	}
	wg.Wait()
}

// recheckOne is recheck for one. An agent whose credential is about to end is asked for the one that it has now, so that its tunnel outlives
// the one that it came with.
func (a *Agents) recheckOne(ctx context.Context, s *session) {
	by := s.by.Load()
	if err := by.Recheck(ctx); err != nil && ctx.Err() == nil {
		a.cfg.Log.Warn("an agent may not be connected any more", "cluster", s.cluster, "error", err.Error())
		_ = s.mux.Close()
		return
	}
	if !by.Ending() {
		return
	}
	token, err := a.ask(ctx, s)
	if err == nil {
		if by, err = a.cfg.Keys.Agent(ctx, token, s.cluster); err == nil {
			s.by.Store(by)
		}
	}
	if err != nil {
		a.cfg.Log.Debug("an agent has no credential to go on with", "cluster", s.cluster, "error", err.Error())
	}
}

// ask returns the credential that an agent has now.
func (a *Agents) ask(ctx context.Context, s *session) (string, error) {
	token, err := s.call(ctx, http.MethodGet, CredentialPath, nil)
	return string(token), err
}
