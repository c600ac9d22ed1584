package discovery

import (
	"crypto/sha256"
	"net/http"
	"sync"

	"github.com/clusterpass/clusterpass/shared/cluster"
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

// documents reads a document of at most maxSize bytes from each member into bodies. Equal ones share one slice. good
// has the indexes of successes.
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
	var distinct distinctBodies
	answers := h.Client.Each(targets, func(i int, t members.Target) *members.Answer {
		one := call
		one.Method, one.Buffer = http.MethodGet, cluster.BufferOf(len(of))
		one.Header = http.Header{"Accept": {accept}, "Accept-Encoding": {"gzip"}, "If-None-Match": nil}
		return h.Client.Do(h.Client.Context(), t, one, func(a *members.Answer) error {
			body, err := members.ReadLimited(a.Body, maxSize)
			bodies[i] = distinct.intern(body)
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

// distinctBodies makes equal documents share one slice. Clusters of one version usually send the same ones. It is safe
// for concurrent use.
type distinctBodies struct {
	mu    sync.Mutex
	known map[[sha256.Size]byte][]byte
}

// intern returns an equal document that it got earlier, or body itself.
func (d *distinctBodies) intern(body []byte) []byte {
	digest := sha256.Sum256(body)
	d.mu.Lock()
	defer d.mu.Unlock()
	if earlier, ok := d.known[digest]; ok {
		return earlier
	}
	if d.known == nil {
		d.known = map[[sha256.Size]byte][]byte{}
	}
	d.known[digest] = body
	return body
}

// maxParsed bounds the bytes of the documents whose results parseOnce keeps. A result may be 60 times as large.
const maxParsed = 1 << 20

// parseOnce returns a function that parses equal documents once, if they share one slice. It parses those beyond
// maxParsed each time.
func parseOnce[T any](parse func(doc []byte) (T, error)) func(doc []byte) (T, error) {
	type result struct {
		parsed T
		err    error
	}
	known, size := map[*byte]result{}, 0
	return func(doc []byte) (T, error) {
		if len(doc) == 0 {
			return parse(doc)
		}
		if r, ok := known[&doc[0]]; ok {
			return r.parsed, r.err
		}
		parsed, err := parse(doc)
		if size+len(doc) <= maxParsed {
			size += len(doc)
			known[&doc[0]] = result{parsed, err}
		}
		return parsed, err
	}
}
