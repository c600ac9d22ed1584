package object

import (
	"bytes"
	"errors"
	"net/http"

	"github.com/clusterpass/clusterpass/shared/fleet/members"
	"github.com/clusterpass/clusterpass/shared/fleet/naming"
	"github.com/clusterpass/clusterpass/shared/fleet/request"
	"github.com/clusterpass/clusterpass/shared/fleet/scan"
	"github.com/clusterpass/clusterpass/shared/status"
)

const maxBody = 3 << 20 // bytes, as at kube-apiserver

func (h *Handler) readBody() (*naming.Body, error) {
	data, err := request.ReadBody(h.Body, maxBody)
	if err != nil {
		return nil, err
	}
	if len(data) > 0 && !naming.Readable(h.contentType()) {
		return nil, status.New(status.UnsupportedMedia, "", "the fleet reads the cluster from the body, so it accepts "+
			"only JSON, YAML and protobuf, not %.100q", h.contentType())
	}
	references := h.Request.References()
	if h.Request.Method == http.MethodDelete {
		references = naming.Deletion
	}
	return decode(h.Client, len(data), "", func() (*naming.Body, error) {
		return naming.Parse(references, h.contentType(), data)
	})
}

// decode calls do once n bytes of a body may be decoded. Its errors have the code 400 or, for too many values, 413.
func decode[T any](client *members.Client, n int, cluster string, do func() (T, error)) (out T, err error) {
	release, err := client.AcquireDecodeSlot(n)
	if err != nil {
		return out, err
	}
	defer release()
	out, err = do()
	switch {
	case errors.Is(err, scan.ErrTooMany):
		err = status.New(status.TooLarge, cluster, "%w", err)
	case err != nil:
		err = status.New(status.BadRequest, cluster, "%w", err)
	}
	return out, err
}

func (h *Handler) bodyFor(t members.Target, body *naming.Body) ([]byte, error) {
	return decode(h.Client, body.DecodeSize(), t.Name, func() ([]byte, error) { return body.ForMember(t.Name, t.ID) })
}

// checkDuplicates handles duplicate fields by fieldValidation, as the member would. The rewritten body has each once.
func (h *Handler) checkDuplicates(header http.Header, body *naming.Body, data []byte) error {
	duplicates := body.Duplicates()
	if len(duplicates) == 0 || h.Request.Method == http.MethodDelete || bytes.Equal(data, body.Bytes()) {
		return nil
	}
	switch h.Request.Param("fieldValidation") {
	case "Strict":
		return status.New(status.BadRequest, "", "strict decoding error: %w", errors.Join(duplicates...))
	case "Warn", "":
		for _, one := range duplicates {
			if len(header["Warning"]) < members.MaxWarnings {
				members.AddWarning(header, one.Error())
			}
		}
	}
	return nil
}
