package fleet

import (
	"fmt"
	"io"
	"net/http"
	"slices"

	"github.com/clusterpass/clusterpass/shared/fleet/members"
	"github.com/clusterpass/clusterpass/shared/status"
)

// maxOptions bounds DeleteOptions, which have some hundred bytes: each target has a body of its own of them.
const maxOptions = 64 << 10

// deleteCollection deletes in every target. It fails if one does, saying which; one that does not have the kind has nothing to delete,
// which costs a warning where another did it.
func (q *ask) deleteCollection(w http.ResponseWriter, targets []members.Target) error {
	body, err := q.body()
	if err != nil {
		return err
	}
	if body.Len() > maxOptions {
		return status.New(status.TooLarge, "", "what says how a collection is to be deleted is larger than %d KiB", maxOptions>>10)
	}
	q.reached(members.Names(targets)...)
	answers := q.m.Each(targets, func(_ int, t members.Target) *members.Answer {
		data, err := q.forMember(t, body)
		if err != nil {
			return &members.Answer{Target: t, Err: q.m.Fail(q.r.Context(), t.Name, err)}
		}
		return q.m.Do(q.r.Context(), t, members.Call{Method: http.MethodDelete, Path: q.route.Path, Query: q.query, Body: data, Write: true,
			Header: http.Header{"Accept": {"application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1, application/json"}, "Accept-Encoding": {"identity"}}}, func(a *members.Answer) error {
			_, _ = io.Copy(io.Discard, a.Body) // the code said that it is done
			return nil
		})
	})
	good, failures, err := members.Split(answers)
	if err != nil {
		return err
	}
	members.CloseAll(good)
	if len(good) > 0 && !q.strict {
		members.Warn(w.Header(), slices.DeleteFunc(slices.Clone(failures), func(e *members.Failure) bool { return !e.IsNotFound() }))
		failures = slices.DeleteFunc(failures, (*members.Failure).IsNotFound)
	}
	if len(failures) > 0 {
		err := status.From(members.Summary(failures))
		for _, a := range good {
			err.Message += fmt.Sprintf("; done in cluster %q", a.Name)
		}
		return err
	}
	writeJSON(w, http.StatusOK, []byte(`{"kind":"Status","apiVersion":"v1","metadata":{},"status":"Success","code":200}`+"\n"))
	return nil
}
