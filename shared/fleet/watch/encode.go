package watch

import (
	"bytes"
	"encoding/json"
	"fmt"
	"slices"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/clusterpass/clusterpass/shared/fleet/merge"
	"github.com/clusterpass/clusterpass/shared/status"
)

func appendError(out []byte, err error) []byte {
	e := status.From(err)
	st := metav1.Status{
		TypeMeta: metav1.TypeMeta{Kind: "Status", APIVersion: "v1"}, Status: metav1.StatusFailure, Message: e.Message,
		Code: int32(e.Code()), Reason: e.Kubernetes(),
	}
	text, err := json.Marshal(map[string]any{"type": "ERROR", "object": st})
	if err != nil {
		panic(err) // a Status always marshals
	}
	return append(append(out, text...), '\n')
}

func (w *watcher) appendBookmark(out []byte, annotations map[string]string) []byte {
	object := map[string]any{"metadata": map[string]any{"resourceVersion": w.delivered(), "creationTimestamp": nil}}
	if annotations != nil {
		object["metadata"].(map[string]any)["annotations"] = annotations
	}
	if kind := w.votes.bookmark; kind.Kind != "" {
		object["kind"], object["apiVersion"] = kind.Kind, kind.APIVersion
	}
	text, err := json.Marshal(map[string]any{"type": bookmark, "object": object})
	if err != nil {
		panic(err) // strings always marshal
	}
	return append(append(out, text...), '\n')
}

// appendObject appends an event as one line. With a line end in an object, a member could forge events of others.
func (w *watcher) appendObject(out []byte, m *followed, e event) ([]byte, error) {
	begin := len(out)
	out, err := w.appendObjectAsSent(out, m, e)
	for _, end := range []byte("\r\n") {
		for at := begin; ; at++ {
			i := bytes.IndexByte(out[at:], end)
			if i < 0 {
				break
			}
			at += i
			out[at] = ' '
		}
	}
	return append(out, '\n'), err
}

func (w *watcher) appendObjectAsSent(out []byte, m *followed, e event) ([]byte, error) {
	resumable := w.resumable(m.ID)
	m.answer.SetVersion(w.objectVersion(resumable))
	out = append(append(append(out, `{"type":"`...), e.typ...), `","object":`...)
	if e.isRow {
		return w.appendTable(out, m, e, resumable)
	}
	out, err := m.answer.Append(out, e.object)
	return append(out, '}'), err
}

// appendTable appends a table of one row. It announces new columns with their first row.
func (w *watcher) appendTable(out []byte, m *followed, e event, resumable string) ([]byte, error) {
	layout := w.layout
	isSameColumn := func(a, b merge.Column) bool { return a.Name == b.Name }
	if m.layout == nil || !slices.EqualFunc(m.columns, e.columns, isSameColumn) {
		if m.columns = e.columns; layout == nil {
			w.layout = merge.NewLayout(e.columns)
		} else {
			w.layout = layout.With(e.columns)
		}
	}
	definitions := "[]" // as before
	if w.layout != layout {
		definitions = string(w.layout.Definitions())
	}
	if m.layout != w.layout {
		m.layout, m.rows = w.layout, w.layout.For(m.Name, e.columns, m.answer)
	}
	out = fmt.Appendf(out, `{"kind":"Table","apiVersion":"meta.k8s.io/v1","metadata":{"resourceVersion":%q},`+
		`"columnDefinitions":%s,"rows":[`, resumable, definitions)
	out, err := m.rows.Append(out, e.object)
	return append(out, "]}}"...), err
}
