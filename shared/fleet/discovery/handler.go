package discovery

import (
	"net/http"

	"github.com/clusterpass/clusterpass/shared/fleet/members"
	"github.com/clusterpass/clusterpass/shared/fleet/registry"
	"github.com/clusterpass/clusterpass/shared/fleet/request"
	"github.com/clusterpass/clusterpass/shared/fleet/selection"
)

// Handler answers one request.
type Handler struct {
	Caches   *Caches
	Client   *members.Client
	Request  *request.Request
	Selector *selection.Selector
}

// withoutCancel returns a copy whose calls go on after the caller has gone, since others wait for the same result.
func (h *Handler) withoutCancel() *Handler {
	out := *h
	out.Client = h.Client.WithoutCancel()
	return &out
}

// documents reads a document of at most maxSize bytes from each member into bodies. good has the indexes of successes.
func (h *Handler) documents(of []members.Entry, bodies [][]byte, maxSize int64, call members.Call) (
	good []int, failures []*members.Failure, err error,
) {
	targets := make([]members.Target, len(of))
	for i, c := range of {
		targets[i] = members.Target{Entry: c, Scope: registry.Scope{All: true}}
	}
	accept := "application/json"
	if v := call.Header["Accept"]; v != nil {
		accept = v[0]
	}
	answers := h.Client.Each(targets, func(i int, t members.Target) *members.Answer {
		one := call
		one.Method, one.Merged = http.MethodGet, len(of) > members.Many
		one.Header = http.Header{"Accept": {accept}, "Accept-Encoding": {"gzip"}, "If-None-Match": nil}
		return h.Client.Do(h.Client.Context(), t, one, func(a *members.Answer) (err error) {
			bodies[i], err = members.ReadLimited(a.Body, maxSize)
			return err
		})
	})
	for i, a := range answers {
		if a.Err == nil {
			good = append(good, i)
		}
	}
	successful, failures, err := members.Split(answers)
	members.CloseAll(successful)
	h.Client.RememberHung(failures)
	return good, failures, err
}
