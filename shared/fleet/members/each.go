package members

import (
	"fmt"
	"net/http"
	"runtime/debug"

	"github.com/clusterpass/clusterpass/shared/cluster"
)

// Many is the number of members beyond which one request reads from each with small buffers.
const Many = cluster.Many

// Each runs call for all targets in parallel, and returns the answers in the order of the targets.
func (p *Pool) Each(targets []Target, call func(i int, t Target) *Answer) []*Answer {
	answers := make([]*Answer, len(targets))
	done := make(chan struct{})
	for i, t := range targets {
		go func() { // ends with its deadline
			defer func() { done <- struct{}{} }()
			defer p.Recover(t.Name, func(e *Failure) { answers[i] = &Answer{Target: t, Err: e} })
			answers[i] = call(i, t)
		}()
	}
	for range targets {
		<-done
	}
	return answers
}

// Recover makes a panic over the response of a member a Failure of that member. Callers defer it in every goroutine
// that reads responses, because a panic would end the process with all its streams.
func (p *Pool) Recover(name string, fail func(*Failure)) {
	if cause := recover(); cause != nil {
		p.cfg.Log.Error("a cluster's response cannot be handled", "cluster", name, "panic", fmt.Sprint(cause),
			"stack", string(debug.Stack()))
		fail(NewFailure(name, http.StatusBadGateway, nil,
			"cluster %q sent a response that the gateway cannot handle; see the gateway's log", name))
	}
}
