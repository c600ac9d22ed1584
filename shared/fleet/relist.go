package fleet

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/clusterpass/clusterpass/shared/fleet/cursor"
	"github.com/clusterpass/clusterpass/shared/fleet/members"
	"github.com/clusterpass/clusterpass/shared/fleet/merge"
	"github.com/clusterpass/clusterpass/shared/fleet/scan"
)

// errLost is for a member that cannot say what it had at a version, or not in order: only a new list of the client's says what went since.
var errLost = errors.New("the member does not say what it had then")

// relist catches up where a member's history is gone, as it is once its API server began anew. What the client has of it is what it had at
// f.version, and that it can still list for as long as its etcd is not compacted, some minutes. That list and one of now are read side by
// side, in the order of their keys, so that nothing is to be held, and the difference is sent as events.
func (f *follower) relist(ctx context.Context, q *ask) error {
	then, err := f.list(ctx, q, url.Values{"resourceVersion": {f.version}, "resourceVersionMatch": {"Exact"}})
	var e *members.Failure
	if errors.As(err, &e) && (e.IsExpired() || e.Code == http.StatusBadRequest) { // some aggregated APIs know no such lists
		return fmt.Errorf("%w: %w", errLost, err)
	} else if err != nil {
		return err
	}
	defer then.close()
	now, err := f.list(ctx, q, url.Values{})
	if err != nil {
		return err
	}
	defer now.close()
	some, err := f.difference(ctx, then, now)
	if err == nil && !cursor.ValidOwn(now.Metadata().ResourceVersion) {
		err = fmt.Errorf("%w: its list has no resourceVersion", errLost)
	}
	if err != nil && some {
		return fmt.Errorf("%w: %w", errHalf, err)
	} else if err != nil {
		return err
	}
	f.version = now.Metadata().ResourceVersion
	f.send(ctx, event{from: f, kind: "BOOKMARK", version: f.version, typ: now.typ()})
	return nil
}

// difference sends as events what makes the one list the other, and reports whether there were some. Like the objects of a list they have
// the member's own version: what an event covers is known when the last one is sent.
func (f *follower) difference(ctx context.Context, then, now *listing) (some bool, err error) {
	for _, l := range []*listing{then, now} {
		if err := l.advance(); err != nil {
			return false, err
		}
	}
	send := func(kind string, l *listing) bool {
		some = true
		return f.sendListed(ctx, kind, l)
	}
	for !then.over || !now.over {
		gone := now.over || !then.over && then.at.key < now.at.key
		came := then.over || !now.over && now.at.key < then.at.key
		both := !gone && !came
		if replaced := both && then.at.uid != now.at.uid; gone || replaced {
			if !send("DELETED", then) {
				return some, context.Cause(ctx)
			}
			came = replaced
		}
		switch {
		case came && !send("ADDED", now):
			return some, context.Cause(ctx)
		case both && !came && then.at.version != now.at.version && !send("MODIFIED", now):
			return some, context.Cause(ctx)
		}
		if gone || both {
			if err := then.advance(); err != nil {
				return some, err
			}
		}
		if !gone {
			if err := now.advance(); err != nil {
				return some, err
			}
		}
	}
	return some, nil
}

// sendListed sends a list's object as an event; false if the watch ends.
func (f *follower) sendListed(ctx context.Context, kind string, l *listing) bool {
	if !f.takes(l.object, l.IsTable()) {
		return true
	}
	e := event{from: f, kind: kind, table: l.IsTable(), columns: l.Columns, typ: l.typ()}
	if e.table {
		e.object = l.object.Clone()
	} else {
		e.object, e.typ = withKind(l.object, e.typ)
	}
	return f.send(ctx, e)
}

// listing is a member's list that is read object by object.
type listing struct {
	*merge.Source
	answer *members.Answer
	object merge.Object // valid until advance
	at     identified
	over   bool // there is none any more
}

// identified says which object one is, and which version of it.
type identified struct{ key, uid, version string }

// list begins to list the member, with the client's selectors and these parameters; with nil as the client sees it, and otherwise so that
// each row says which object it is.
func (f *follower) list(ctx context.Context, q *ask, params url.Values) (*listing, error) {
	l := &listing{}
	out := f.outgoing(q, params)
	if out.Query.Get("includeObject") == "None" && params != nil {
		out.Query.Set("includeObject", "Metadata")
	}
	// A list has a name of its own for this form.
	out.Header["Accept"] = []string{strings.ReplaceAll(f.w.accept, "as=PartialObjectMetadata;", "as=PartialObjectMetadataList;")}
	l.answer = q.m.Do(ctx, f.Target, out, func(a *members.Answer) (err error) {
		l.Source, err = merge.Open(f.Name, members.NewPacedReader(a))
		return err
	})
	if l.answer.Err != nil {
		return nil, l.answer.Err
	}
	return l, nil
}

func (l *listing) close() { members.CloseAll([]*members.Answer{l.answer}) }

// advance goes on to the next object. Their keys must grow, as those of lists from etcd do.
func (l *listing) advance() error {
	before, first := l.at.key, l.Read == 0
	var err error
	if l.object, err = l.Next(); errors.Is(err, io.EOF) {
		l.over = true
		return nil
	} else if err != nil {
		return err
	}
	if l.at, err = identify(l.object, l.IsTable()); err != nil {
		err = fmt.Errorf("%w: %w", errLost, err)
	} else if !first && l.at.key <= before {
		err = fmt.Errorf("%w: %q follows %q in its list", errLost, l.at.key, before)
	}
	return err
}

// typ is the kind of the list's objects.
func (l *listing) typ() metav1.TypeMeta {
	return metav1.TypeMeta{Kind: strings.TrimSuffix(l.Kind, "List"), APIVersion: l.APIVersion}
}

// identify reads of an object, or row, which one it is.
func identify(o merge.Object, row bool) (identified, error) {
	metadata := metadataOf(o, row)
	text := func(name string) string { return scan.Text(scan.Lookup(metadata, name)) }
	if text("name") == "" {
		return identified{}, errors.New("an object of the list has no name")
	}
	return identified{text("namespace") + "/" + text("name"), text("uid"), text("resourceVersion")}, nil
}
