package list

import (
	"errors"
	"fmt"
	"io"
	"sync"
	"time"

	"github.com/clusterpass/clusterpass/shared/fleet/cursor"
	"github.com/clusterpass/clusterpass/shared/fleet/members"
	"github.com/clusterpass/clusterpass/shared/fleet/merge"
	"github.com/clusterpass/clusterpass/shared/fleet/respond"
)

type writer struct {
	*page
	out     *sink
	stop    func() // ends the calls of all parts
	written int    // number of objects so far
	chunk   chunk  // the one that writePart fills
}

func (w *writer) write(parts []*part) error {
	metadataFirst := w.limit == 0
	for _, one := range parts {
		if one.request != nil { // its list will have another version
			metadataFirst = false
			continue
		}
		metadataFirst = metadataFirst && one.Metadata() != nil
		if err := w.recordVersion(one); err != nil {
			return err
		}
	}
	isTable := parts[0].IsTable()
	layout := w.setTransforms(parts, isTable)
	w.out.text("{")
	if metadataFirst {
		w.writeListMetadata(parts, merge.Metadata{})
		w.out.text(",")
	}
	if isTable {
		w.out.text(`"columnDefinitions":`)
		_ = w.out.bytes(layout.Definitions()) // flush returns the error
		w.out.text(`,"rows":[`)
	} else {
		w.out.text(`"items":[`)
	}
	end, err := w.objects(parts)
	if err != nil {
		return err
	}
	w.out.text("]")
	if !metadataFirst {
		w.out.text(",")
		w.writeListMetadata(parts, end)
	}
	w.out.text("}\n")
	return w.out.flush()
}

// writeListMetadata writes kind, apiVersion and metadata of the list.
func (w *writer) writeListMetadata(parts []*part, m merge.Metadata) {
	m.ResourceVersion = w.version.ClientForm(w.single)
	w.out.head(majority(parts).Source, m)
}

func (w *writer) setTransforms(parts []*part, isTable bool) *merge.Layout {
	var layout *merge.Layout
	if isTable {
		layout = merge.NewLayout(columnsOf(parts)...)
	}
	for _, one := range parts {
		a := respond.NewAnswer(w.client, w.req, one.Name)
		one.transform, one.namespace = a.Append, a.Namespace
		if isTable {
			one.transform = layout.For(one.Name, one.Columns, a).Append
		}
	}
	return layout
}

func (p *page) recordVersion(one *part) error {
	m := one.Metadata()
	if m == nil {
		return nil
	}
	if v, ok := p.version[one.ID]; ok && v != m.ResourceVersion {
		return fmt.Errorf("cluster %q returned a list at version %q instead of %s", one.Name, m.ResourceVersion, v)
	}
	if cursor.ValidOwn(m.ResourceVersion) { // some aggregated APIs have none
		p.version[one.ID] = m.ResourceVersion
	}
	return nil
}

// objects writes objects up to the limit. It returns the continue token and the count of the objects that follow.
func (w *writer) objects(parts []*part) (end merge.Metadata, err error) {
	if w.limit == 0 {
		if len(w.later) > 0 { // selectNext leaves none; otherwise the list would look complete
			return end, fmt.Errorf("%d clusters are left out of a list without pages", len(w.later))
		}
		return end, w.writeRounds(parts)
	}
	for i, one := range parts {
		more, err := w.writePart(one, w.limit-w.written)
		if err != nil {
			return end, err
		}
		if more || one.Metadata().Continue != "" {
			return w.endWithin(parts, i)
		}
	}
	if len(w.later) == 0 {
		return end, nil
	}
	next := cursor.Token{
		Version: w.version, Next: w.later[0].ID, Remaining: w.remaining(nil, 0, w.written),
		PageMembers: pageMembers(w.limit, len(parts), w.written),
	}
	return metadataOf(next), nil
}

// writePart writes up to n objects of a part. It reports whether there may be more.
func (w *writer) writePart(one *part, n int) (more bool, err error) {
	for n > 0 {
		one.fill(&w.chunk, n)
		n -= w.chunk.objects
		if more, err := w.writeChunk(one, &w.chunk); !more {
			return false, err
		}
	}
	return true, nil
}

// writeRounds writes the objects of all parts in rounds. A round has roundSizeOf objects of each active part. At most
// maxActive parts are active at once. Of maxStarted parts, the first objects are read.
func (w *writer) writeRounds(parts []*part) error {
	isWhole, done := false, make(chan struct{})
	var running sync.WaitGroup
	defer func() {
		if close(done); !isWhole {
			w.stop() // unblocks spools that read
		}
		running.Wait()
	}()
	waiting := parts
	begin := func(started []*spool) []*spool {
		for len(started) < maxStarted && len(waiting) > 0 {
			s := newSpool(waiting[0], roundSizeOf(len(parts)))
			running.Go(func() { s.run(w.client.Pool, done) })
			started, waiting = append(started, s), waiting[1:]
		}
		return started
	}
	for started := begin(nil); len(started) > 0; started = begin(started) {
		unfinished := started[:0]
		for i, s := range started {
			if i >= maxActive {
				unfinished = append(unfinished, s)
				continue
			}
			more, err := w.writeRound(s)
			switch {
			case err != nil:
				return err
			case more:
				unfinished = append(unfinished, s)
			case s.Metadata().Continue != "":
				return fmt.Errorf("cluster %q returned a page instead of the whole list", s.Name)
			}
		}
		clear(started[len(unfinished):]) // releases their chunks
		started = unfinished
	}
	isWhole = true
	return nil
}

func (w *writer) writeRound(s *spool) (more bool, err error) {
	for n := 0; n < s.round; {
		c := <-s.ready // run sends chunks until one has last or err set
		n += c.objects
		if more, err := w.writeChunk(s.part, c); !more {
			return false, err
		}
		if cap(c.text) > 8*chunkSize { // release the memory of a large object
			c.text = nil
		}
		s.spare <- c
	}
	return true, nil
}

func (w *writer) writeChunk(one *part, c *chunk) (more bool, err error) {
	if c.err != nil {
		return false, c.err
	}
	if w.written > 0 && c.objects > 0 {
		w.out.text(",")
	}
	w.written += c.objects
	if err := w.out.bytes(c.text); err != nil {
		return false, err
	}
	if c.last {
		return false, w.recordVersion(one)
	}
	return true, nil
}

// endWithin ends a page in part i. It needs only the versions of the later parts. If a version comes after the
// objects, the objects are skipped.
func (w *writer) endWithin(parts []*part, i int) (end merge.Metadata, err error) {
	one := parts[i]
	read := one.Read
	if _, err := one.next(); err != nil && !errors.Is(err, io.EOF) {
		return end, err
	}
	if err := w.readVersions(parts[i:]); err != nil {
		return end, err
	}
	t := cursor.Token{Version: w.version, PageMembers: pageMembers(w.limit, i+1, w.written)}
	switch m := one.Metadata(); {
	case one.Read > read: // the page lacks an object of the part
		t.Next, t.Continue, t.Skip = one.ID, one.token, read
	case m.Continue != "" && w.single && one.skip <= one.Read && !isFleetToken(m.Continue):
		return merge.Metadata{Continue: m.Continue, RemainingItemCount: one.remaining()}, nil
	case m.Continue != "":
		t.Next, t.Continue, t.Skip = one.ID, m.Continue, max(0, one.skip-one.Read)
	case i+1 < len(parts):
		t.Next = parts[i+1].ID
	case len(w.later) > 0:
		t.Next = w.later[0].ID
	default:
		return end, nil // the list is complete
	}
	t.Remaining = w.remaining(parts[i:], read, w.written)
	return metadataOf(t), nil
}

// pageMembers estimates how many members fill a page: the current page has that many objects from used members. It
// returns 0 for an estimate up to minPageMembers, which tokens omit.
func pageMembers(limit, used, objects int) int {
	if n := limit * used / max(1, objects); n > minPageMembers {
		return n
	}
	return 0
}

func metadataOf(t cursor.Token) merge.Metadata {
	m := merge.Metadata{Continue: t.String()}
	if t.Remaining > 0 {
		m.RemainingItemCount = &t.Remaining
	}
	return m
}

func (p *page) readVersions(parts []*part) error {
	late := time.AfterFunc(members.StallTimeout, func() { // a hostile member may send forever
		for _, other := range parts {
			other.Stop()
		}
	})
	defer late.Stop()
	for _, other := range parts {
		if other.Metadata() == nil {
			if err := other.Drain(); err != nil {
				return err
			}
		}
		if err := p.recordVersion(other); err != nil {
			return err
		}
		if _, ok := p.version[other.ID]; !ok {
			return fmt.Errorf("cluster %q lists without a resourceVersion, so its list has no pages", other.Name)
		}
	}
	return nil
}
