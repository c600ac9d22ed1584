package watch

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"

	"github.com/clusterpass/clusterpass/shared/fleet/cursor"
	"github.com/clusterpass/clusterpass/shared/fleet/members"
	"github.com/clusterpass/clusterpass/shared/fleet/merge"
	"github.com/clusterpass/clusterpass/shared/fleet/scan"
)

// maxSilence is how long a follower waits for the next event of its member. kube-apiserver sends a bookmark each
// minute.
const maxSilence = 5 * time.Minute

// list starts a list with the client's selectors.
func (f *follower) list(ctx context.Context, params url.Values) (*listing, error) {
	l := &listing{}
	call := f.call(params)
	// A client that watches metadata asks for PartialObjectMetadata, but a list has the kind PartialObjectMetadataList.
	accept := strings.ReplaceAll(f.accept, "as=PartialObjectMetadata;", "as=PartialObjectMetadataList;")
	call.Header["Accept"] = []string{accept}
	l.answer = f.client.Do(ctx, f.Target, call, func(a *members.Answer) (err error) {
		l.Source, err = merge.Open(f.Name, members.NewPacedReader(a))
		return err
	})
	if l.answer.Err != nil {
		return nil, l.answer.Err
	}
	return l, nil
}

func (f *follower) newUnwatchableFailure() *members.Failure {
	return members.NewFailure(f.Name, http.StatusMethodNotAllowed, nil,
		"cluster %q cannot be watched: its list of this kind has no resourceVersion; list the kind instead", f.Name)
}

func (f *follower) startLive(ctx context.Context) error {
	l, err := f.list(ctx, url.Values{"limit": {"1"}})
	if err != nil {
		return err
	}
	defer l.close()
	if err := l.Drain(); err != nil {
		return f.client.Fail(ctx, f.Name, err)
	}
	if !cursor.ValidOwn(l.Metadata().ResourceVersion) {
		return f.newUnwatchableFailure()
	}
	f.version = l.Metadata().ResourceVersion
	f.reportStart(nil)
	f.send(ctx, event{from: f, typ: synced, version: f.version, kind: l.kind()})
	return nil
}

func (f *follower) sendInitial(ctx context.Context) error {
	l, err := f.list(ctx, nil)
	if err != nil {
		return err
	}
	defer l.close()
	// The metadata is nil if the member sends it after the objects.
	if m := l.Metadata(); m != nil && !cursor.ValidOwn(m.ResourceVersion) {
		return f.newUnwatchableFailure()
	}
	f.reportStart(nil)
	hasSent := false
	failList := func(err error) error {
		if hasSent {
			return fmt.Errorf("%w: %w", errPartialList, err)
		}
		f.send(ctx, event{from: f, typ: unavailable})
		return err
	}
	for {
		v, err := l.Next()
		if errors.Is(err, io.EOF) {
			break
		} else if err != nil {
			return failList(err)
		}
		if !f.covers(v, l.IsTable()) {
			continue
		}
		hasSent = true
		if l.object = v; !f.sendListed(ctx, added, l) {
			return nil
		}
	}
	if !cursor.ValidOwn(l.Metadata().ResourceVersion) {
		return failList(f.newUnwatchableFailure())
	}
	f.version = l.Metadata().ResourceVersion
	f.send(ctx, event{from: f, typ: synced, version: f.version, kind: l.kind()})
	return nil
}

// sendListed sends an event for l.object, and returns false if ctx has ended. The caller must have checked f.covers.
func (f *follower) sendListed(ctx context.Context, typ string, l *listing) bool {
	e := event{from: f, typ: typ, isRow: l.IsTable(), columns: l.Columns, kind: l.kind()}
	if e.isRow {
		e.object = l.object.Clone()
	} else {
		e.object, e.kind = withKind(l.object, e.kind)
	}
	return f.send(ctx, e)
}

// read delivers events until the member ends its watch. It calls stop if it waits longer than maxSilence for an event.
// Time during which the client does not read is not counted.
func (f *follower) read(ctx context.Context, body io.Reader, stop func()) error {
	idle := time.AfterFunc(maxSilence, stop)
	defer idle.Stop()
	in := scan.NewReader(body, merge.MaxObject)
	in.Scanner.Field = "object"
	var columns []merge.Column
	for {
		idle.Reset(maxSilence)
		text := in.ExpectValue('{')
		idle.Stop()
		if errors.Is(in.Err(), io.EOF) {
			return nil
		} else if in.Err() != nil {
			return members.NewFailure(f.Name, http.StatusBadGateway, in.Err(), "the watch of cluster %q broke off", f.Name)
		}
		in.Limit(merge.MaxObject)
		e, err := f.parse(text, in.Scanner.Found, &columns)
		if err != nil {
			return err
		}
		f.version = e.version
		if !f.send(ctx, e) {
			return nil
		}
	}
}

// parse parses an event. columns has the column definitions of the last Table that had some, and parse updates it. An
// event becomes a bookmark if f.covers excludes the namespace of its object.
func (f *follower) parse(text []byte, found scan.Found, columns *[]merge.Column) (event, error) {
	typ, object, err := eventOf(text, found)
	if err != nil {
		return event{}, f.badEvent(err, "sends an event that cannot be read")
	}
	if typ == "ERROR" {
		code, _ := strconv.Atoi(string(scan.Lookup(object.Text, "code"))) // 0 if there is none
		message := scan.Text(scan.Lookup(object.Text, "message"))
		return event{}, &members.Failure{Cluster: f.Name, Code: code, Message: message}
	}
	own := metadataText(object, false, "resourceVersion")
	if !cursor.ValidOwn(own) {
		return event{}, f.badEvent(nil, "sends an event without a resourceVersion")
	}
	// A client that resumes from an earlier version than it has seen would get events again.
	if f.version != "" && cursor.Before(own, f.version) {
		return event{}, f.badEvent(nil, "sends an event of version %s after one of %s", own, f.version)
	}
	kind, _ := merge.KindOf(object)
	e := event{from: f, typ: typ, object: object, version: own, kind: kind}
	switch typ {
	case bookmark:
		return e, nil
	case added, modified, deleted:
	default:
		return event{}, f.badEvent(nil, "sends an event of type %.20q", typ)
	}
	if merge.IsTable(kind.Kind, kind.APIVersion) {
		row, definitions, err := rowOf(object)
		if err != nil {
			return event{}, f.badEvent(err, "sends an event that cannot be read")
		}
		if len(definitions) > 0 {
			*columns = definitions // only the first event has them
		}
		e.isRow, e.object, e.columns = true, row, *columns
	}
	if !f.covers(e.object, e.isRow) {
		e.typ = bookmark
	}
	return e, nil
}

func (f *follower) badEvent(err error, format string, args ...any) *members.Failure {
	return members.NewFailure(f.Name, http.StatusBadGateway, err, "cluster %q %s", f.Name, fmt.Sprintf(format, args...))
}
