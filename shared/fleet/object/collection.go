package object

import (
	"fmt"
	"io"
	"net/http"

	"github.com/clusterpass/clusterpass/shared/fleet/members"
	"github.com/clusterpass/clusterpass/shared/fleet/respond"
	"github.com/clusterpass/clusterpass/shared/status"
)

const maxOptions = 64 << 10 // bytes of DeleteOptions, of which each target gets a copy

// DeleteCollection deletes in every target. Its error lists the clusters that deleted and those that failed. A cluster
// that lacks the kind only costs a warning if another cluster deleted.
func (h *Handler) DeleteCollection(w http.ResponseWriter, targets []members.Target) error {
	body, err := h.readBody()
	if err != nil {
		return err
	}
	if body.Len() > maxOptions {
		return status.New(status.TooLarge, "", "the DeleteOptions are larger than %d KiB",
			maxOptions>>10)
	}
	h.recordClusters(members.Names(targets)...)
	answers := h.Client.Each(targets, func(_ int, t members.Target) *members.Answer {
		data, err := h.bodyFor(t, body)
		if err != nil {
			return &members.Answer{Target: t, Err: h.Client.Fail(h.Client.Context(), t.Name, err)}
		}
		return h.Client.Do(h.Client.Context(), t, members.Call{
			Method: http.MethodDelete, Path: h.Request.Route.Path, Query: h.Request.Query(), Body: data, Write: true,
			Header: http.Header{"Accept": {members.MetadataListAccept}, "Accept-Encoding": {"identity"}},
		}, func(a *members.Answer) error {
			_, _ = io.Copy(io.Discard, a.Body) // the code shows that the deletion is done
			return nil
		})
	})
	good, failures, err := members.Split(answers)
	if err != nil {
		return err
	}
	members.CloseAll(good)
	if len(good) > 0 && !h.Request.Strict {
		members.Warn(w.Header(), members.Without(failures, func(e *members.Failure) bool { return !e.IsNotFound() }))
		failures = members.Without(failures, (*members.Failure).IsNotFound)
	}
	if len(failures) > 0 {
		err := status.From(members.Summary(failures))
		for _, a := range good {
			err.Message += fmt.Sprintf("; done in cluster %q", a.Name)
		}
		return err
	}
	respond.JSON(w, http.StatusOK,
		[]byte(`{"kind":"Status","apiVersion":"v1","metadata":{},"status":"Success","code":200}`+"\n"))
	return nil
}
