package control

import (
	"context"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/duration"
)

// column is a column of kubectl get, after the name.
type column struct {
	name, about string
	wide        bool // only with -o wide
	cell        func(runtime.Object) any
}

type table []column

var age = column{name: "Age", about: "Time since the object was created.", cell: func(obj runtime.Object) any {
	m, err := meta.Accessor(obj)
	if err != nil || m.GetCreationTimestamp().Time.IsZero() {
		return "<unknown>"
	}
	return duration.HumanDuration(time.Since(m.GetCreationTimestamp().Time))
}}

func (t table) ConvertToTable(_ context.Context, obj, options runtime.Object) (*metav1.Table, error) {
	out := &metav1.Table{}
	row := func(obj runtime.Object) error {
		m, err := meta.Accessor(obj)
		if err != nil {
			return err
		}
		cells := []any{m.GetName()}
		for _, c := range t {
			cells = append(cells, c.cell(obj))
		}
		out.Rows = append(out.Rows, metav1.TableRow{Cells: cells, Object: runtime.RawExtension{Object: obj}})
		return nil
	}
	if meta.IsListType(obj) {
		if err := meta.EachListItem(obj, row); err != nil {
			return nil, err
		}
		m, err := meta.ListAccessor(obj)
		if err != nil {
			return nil, err
		}
		out.ResourceVersion, out.Continue, out.RemainingItemCount = m.GetResourceVersion(), m.GetContinue(),
			m.GetRemainingItemCount()
	} else {
		if err := row(obj); err != nil {
			return nil, err
		}
		m, err := meta.CommonAccessor(obj)
		if err != nil {
			return nil, err
		}
		out.ResourceVersion = m.GetResourceVersion()
	}
	if o, ok := options.(*metav1.TableOptions); !ok || !o.NoHeaders {
		out.ColumnDefinitions = []metav1.TableColumnDefinition{{Name: "Name", Type: "string", Format: "name",
			Description: "Name of the object."}}
		for _, c := range t {
			def := metav1.TableColumnDefinition{Name: c.name, Type: "string", Description: c.about}
			if c.wide {
				def.Priority = 1
			}
			out.ColumnDefinitions = append(out.ColumnDefinitions, def)
		}
	}
	return out, nil
}
