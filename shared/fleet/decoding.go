package fleet

import (
	"bytes"
	"context"
	"errors"
	"net/http"

	"github.com/clusterpass/clusterpass/shared/fleet/naming"
	"github.com/clusterpass/clusterpass/shared/fleet/scan"
	"github.com/clusterpass/clusterpass/shared/status"
)

// How many bodies, and objects that are rewritten for kubectl's commands, are decoded at once, each of which may take 130 MiB while it is: that keeps
// a core busy, so that more at once would not be done sooner. Small ones, as nearly all are, do not wait behind them.
const (
	maxDecoding = 4
	smallBody   = 16 << 10
)

// turn waits until so many bytes may be decoded, and returns what says that they were, and that what they became is not held any more.
func (q *ask) turn(bytes int) (end func(), err error) {
	if bytes <= smallBody {
		return func() {}, nil
	}
	select {
	case q.f.decoding <- struct{}{}:
		return func() { <-q.f.decoding }, nil
	case <-q.r.Context().Done():
		return nil, context.Cause(q.r.Context())
	}
}

// decoded returns what do makes of so many bytes of a body, when its turn has come.
func decoded[T any](q *ask, bytes int, cluster string, do func() (T, error)) (out T, err error) {
	end, err := q.turn(bytes)
	if err != nil {
		return out, err
	}
	defer end()
	out, err = do()
	switch {
	case errors.Is(err, scan.ErrTooMany):
		err = status.New(status.TooLarge, cluster, "%w", err)
	case err != nil:
		err = status.New(status.BadRequest, cluster, "%w", err)
	}
	return out, err
}

// forMember is the body as that member wants it.
func (q *ask) forMember(t target, body *naming.Body) ([]byte, error) {
	return decoded(q, body.Work(), t.Name, func() ([]byte, error) { return body.ForMember(t.Name, t.id) })
}

// checkDuplicates treats names that a body has twice as the member would, since the rewritten body has each once.
// fieldValidation=Strict refuses them. Warn, the default, warns. data is the body for the member.
func (q *ask) checkDuplicates(h http.Header, body *naming.Body, data []byte) error {
	duplicates := body.Duplicates()
	if len(duplicates) == 0 || q.r.Method == http.MethodDelete || bytes.Equal(data, body.Bytes()) {
		return nil
	}
	switch q.query.Get("fieldValidation") {
	case "Strict":
		return status.New(status.BadRequest, "", "strict decoding error: %w", errors.Join(duplicates...))
	case "Warn", "":
		for _, one := range duplicates {
			if len(h["Warning"]) < maxWarnings {
				addWarning(h, one.Error())
			}
		}
	}
	return nil
}
