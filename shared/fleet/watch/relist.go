package watch

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"strings"

	"github.com/clusterpass/clusterpass/shared/fleet/cursor"
	"github.com/clusterpass/clusterpass/shared/fleet/members"
)

// relist sends the changes since f.version if that history is gone, as after a restart of the API server. Until etcd is
// compacted, the member can list f.version. relist reads that list and a current one side by side, and buffers neither.
func (f *follower) relist(ctx context.Context) error {
	then, err := f.listComparable(ctx, url.Values{"resourceVersion": {f.version}, "resourceVersionMatch": {"Exact"}})
	var e *members.Failure
	if errors.As(err, &e) && (e.IsExpired() || e.Code == http.StatusBadRequest) { // some aggregated APIs lack such lists
		return fmt.Errorf("%w: %w", errHistoryLost, err)
	} else if err != nil {
		return err
	}
	defer then.close()
	now, err := f.listComparable(ctx, url.Values{})
	if err != nil {
		return err
	}
	defer now.close()
	if err := f.checkVersions(then, now); err != nil {
		return err
	}
	hasSent, err := f.difference(ctx, then, now)
	if err == nil { // the metadata of a CustomResourceDefinition's list follows the objects
		err = f.checkVersions(then, now)
	}
	if err != nil && hasSent {
		return fmt.Errorf("%w: %w", errPartialList, err)
	} else if err != nil {
		return err
	}
	f.version = now.Metadata().ResourceVersion
	f.send(ctx, event{from: f, typ: bookmark, version: f.version, kind: now.kind()})
	return nil
}

// listComparable starts a list whose rows have at least the metadata of their objects.
func (f *follower) listComparable(ctx context.Context, params url.Values) (*listing, error) {
	if f.req.Param("includeObject") == "None" {
		params.Set("includeObject", "Metadata")
	}
	return f.list(ctx, params)
}

// checkVersions fails if a list has another version than required, as from an API server that ignores Exact. Metadata
// that is not read yet passes.
func (f *follower) checkVersions(then, now *listing) error {
	if m := then.Metadata(); m != nil && m.ResourceVersion != f.version {
		return fmt.Errorf("%w: the list of version %s has version %q", errHistoryLost, f.version, m.ResourceVersion)
	}
	m := now.Metadata()
	switch {
	case m == nil:
	case !cursor.ValidOwn(m.ResourceVersion):
		return fmt.Errorf("%w: its list has no resourceVersion", errHistoryLost)
	case cursor.Before(m.ResourceVersion, f.version):
		return fmt.Errorf("%w: it is at version %s, after %s", errHistoryLost, m.ResourceVersion, f.version)
	}
	return nil
}

// difference sends the events that change then into now, without versions. hasSent is true if an event may have been
// sent, even if it fails later.
func (f *follower) difference(ctx context.Context, then, now *listing) (hasSent bool, err error) {
	for _, l := range []*listing{then, now} {
		if err := l.advance(); err != nil {
			return false, err
		}
	}
	for !then.atEnd || !now.atEnd {
		order := compare(then, now)
		var buffer [2]change
		for _, c := range order.changes(buffer[:0], then, now) {
			if !f.covers(c.object.object, c.object.IsTable()) {
				continue
			}
			hasSent = true
			if !f.sendListed(ctx, c.typ, c.object) {
				return hasSent, context.Cause(ctx)
			}
		}
		if order <= 0 {
			if err := then.advance(); err != nil {
				return hasSent, err
			}
		}
		if order >= 0 {
			if err := now.advance(); err != nil {
				return hasSent, err
			}
		}
	}
	return hasSent, nil
}

// order is negative if the first list's current key is before the second's, and 0 if both are equal.
type order int

// compare requires that at most one of the lists is at its end.
func compare(then, now *listing) order {
	switch {
	case now.atEnd:
		return -1
	case then.atEnd:
		return 1
	}
	return order(strings.Compare(then.at.key, now.at.key))
}

type change struct {
	typ    string
	object *listing
}

// changes appends the events for the current objects. An object with another uid replaces that of the same name.
func (o order) changes(dst []change, then, now *listing) []change {
	switch {
	case o < 0:
		return append(dst, change{deleted, then})
	case o > 0:
		return append(dst, change{added, now})
	case then.at.uid != now.at.uid:
		return append(dst, change{deleted, then}, change{added, now})
	case then.at.version != now.at.version:
		return append(dst, change{modified, now})
	}
	return dst
}
