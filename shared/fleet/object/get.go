package object

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"

	"github.com/clusterpass/clusterpass/shared/fleet/cursor"
	"github.com/clusterpass/clusterpass/shared/fleet/members"
	"github.com/clusterpass/clusterpass/shared/fleet/merge"
	"github.com/clusterpass/clusterpass/shared/fleet/naming"
	"github.com/clusterpass/clusterpass/shared/fleet/respond"
	"github.com/clusterpass/clusterpass/shared/status"
)

// Get responds with the only object of the requested name.
func (h *Handler) Get(w http.ResponseWriter, targets []members.Target) error {
	accept, err := h.Request.AcceptJSON()
	if err != nil {
		return err
	}
	object, failures, err := (&finder{h.Client, h.Request}).find(targets, func(t members.Target) (members.Call, error) {
		return h.getCall(t, accept)
	})
	if err != nil {
		return err
	}
	if object == nil {
		return h.notFound(w, failures)
	}
	if h.refusesEdit() {
		return refuseBare(h.Request, object.Name)
	}
	h.recordClusters(object.Name)
	members.Warn(w.Header(), failures)
	out, err := h.rewrite(object)
	if err != nil {
		return &status.Error{Reason: status.Aborted, Cluster: object.Name, Err: err,
			Message: fmt.Sprintf("the answer of cluster %q cannot be read: %v", object.Name, err)}
	}
	members.PassWarnings(w.Header(), []*members.Answer{object.Answer})
	respond.JSON(w, object.Response.StatusCode, out)
	return nil
}

func (h *Handler) getCall(t members.Target, accept string) (members.Call, error) {
	query := h.Request.Query()
	if v := query.Get("resourceVersion"); cursor.Composite(v) {
		asked, err := cursor.ParseVersion(v)
		if err != nil {
			return members.Call{}, status.New(status.BadRequest, t.Name, "%w", err)
		}
		if own, ok := asked[t.ID]; ok {
			query.Set("resourceVersion", own)
		} else { // the version covers nothing of the member, so that any version of it is new enough
			query.Del("resourceVersion")
		}
	}
	return members.Call{
		Method: http.MethodGet, Path: h.Request.Route.Path, Query: query,
		Header: http.Header{"Accept": {accept}, "Accept-Encoding": {"identity"}},
	}, nil
}

// rewrite annotates all objects but Kubernetes' own Status and Table. Custom resources may have these names, too.
func (h *Handler) rewrite(m *match) ([]byte, error) {
	object, err := merge.ObjectOf(m.body)
	if err != nil {
		return nil, err
	}
	answer := h.newAnswer(m.Name)
	kind, hasKind := merge.KindOf(object)
	switch {
	case hasKind && kind.Kind == "":
		return nil, errors.New("its kind is missing, duplicate or invalid")
	case kind.Kind == "Status" && kind.APIVersion == "v1":
		return answer.Status(object.Text), nil
	case merge.IsTable(kind.Kind, kind.APIVersion):
		return rewriteTable(m.Name, object.Text, answer)
	}
	return answer.Append(nil, object)
}

// rewriteTable accepts one row, since the cells of more could use many times the bytes that the member sent.
func rewriteTable(cluster string, body []byte, answer *naming.Answer) ([]byte, error) {
	s, err := merge.Open(cluster, strings.NewReader(string(body)))
	if err != nil {
		return nil, err
	}
	layout := merge.NewLayout(s.Columns)
	rows := layout.For(cluster, s.Columns, answer)
	head := s.AppendHead(nil)
	var list []byte
	for n := 0; ; n++ {
		row, err := s.Next()
		if errors.Is(err, io.EOF) {
			break
		} else if err != nil {
			return nil, err
		}
		if n > 0 {
			return nil, fmt.Errorf("the table of cluster %q has more than one row", cluster)
		}
		if list, err = rows.Append(list, row); err != nil {
			return nil, err
		}
	}
	m, err := json.Marshal(s.Metadata())
	if err != nil {
		return nil, err
	}
	return fmt.Appendf(nil, `{%s"metadata":%s,"columnDefinitions":%s,"rows":[%s]}`+"\n",
		head, m, layout.Definitions(), list), nil
}
