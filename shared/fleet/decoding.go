package fleet

import (
	"bytes"
	"errors"
	"net/http"

	"github.com/clusterpass/clusterpass/shared/fleet/members"
	"github.com/clusterpass/clusterpass/shared/fleet/naming"
	"github.com/clusterpass/clusterpass/shared/fleet/scan"
	"github.com/clusterpass/clusterpass/shared/status"
)

// decoded returns what do makes of so many bytes of a body, when its turn has come.
func decoded[T any](q *ask, bytes int, cluster string, do func() (T, error)) (out T, err error) {
	end, err := q.m.AcquireDecodeSlot(bytes)
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
func (q *ask) forMember(t members.Target, body *naming.Body) ([]byte, error) {
	return decoded(q, body.Work(), t.Name, func() ([]byte, error) { return body.ForMember(t.Name, t.ID) })
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
			if len(h["Warning"]) < members.MaxWarnings {
				members.AddWarning(h, one.Error())
			}
		}
	}
	return nil
}
