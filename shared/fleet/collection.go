package fleet

import (
	"fmt"
	"io"
	"net/http"
	"slices"

	"github.com/clusterpass/clusterpass/shared/status"
)

// maxOptions bounds DeleteOptions, which have some hundred bytes: each target has a body of its own of them.
const maxOptions = 64 << 10

// deleteCollection deletes in every target. It fails if one does, saying which; one that does not have the kind has nothing to delete,
// which costs a warning where another did it.
func (q *ask) deleteCollection(w http.ResponseWriter, targets []target) error {
	body, err := q.body()
	if err != nil {
		return err
	}
	if body.Len() > maxOptions {
		return status.New(status.TooLarge, "", "what says how a collection is to be deleted is larger than %d KiB", maxOptions>>10)
	}
	q.reached(names(targets)...)
	answers := q.each(targets, func(_ int, t target) *answer {
		data, err := q.forMember(t, body)
		if err != nil {
			return &answer{target: t, err: q.failed(q.r.Context(), t.Name, err)}
		}
		return q.call(q.r.Context(), t, outgoing{method: http.MethodDelete, path: q.route.Path, query: q.query, body: data, patient: true,
			header: http.Header{"Accept": {"application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1, application/json"}, "Accept-Encoding": {"identity"}}}, func(a *answer) error {
			_, _ = io.Copy(io.Discard, a.body) // the code said that it is done
			return nil
		})
	})
	good, failures, err := split(answers)
	if err != nil {
		return err
	}
	stopAll(good)
	if len(good) > 0 && !q.strict {
		warn(w.Header(), slices.DeleteFunc(slices.Clone(failures), func(e *failure) bool { return !e.absent() }))
		failures = slices.DeleteFunc(failures, (*failure).absent)
	}
	if len(failures) > 0 {
		err := status.From(summary(failures))
		for _, a := range good {
			err.Message += fmt.Sprintf("; done in cluster %q", a.Name)
		}
		return err
	}
	writeJSON(w, http.StatusOK, []byte(`{"kind":"Status","apiVersion":"v1","metadata":{},"status":"Success","code":200}`+"\n"))
	return nil
}
