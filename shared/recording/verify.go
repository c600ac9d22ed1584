package recording

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"
)

// Report is the result of Verify.
type Report struct {
	Info     *Info // nil if part 0 has a Fault
	Parts    int   // stored parts
	Size     int64 // bytes of the parts
	Duration time.Duration
	Faults   []Fault
}

// Complete reports whether the recording has all its parts unchanged and in their order.
func (r *Report) Complete() bool { return len(r.Faults) == 0 }

// IsCut reports whether the recording only lacks its end: its session still runs, or its recorder stopped.
func (r *Report) IsCut() bool { return len(r.Faults) == 1 && r.Faults[0].Kind == Cut }

// Verify reads all parts of a recording and returns their faults. Its error means that the recording could not be read.
func Verify(ctx context.Context, store Store, id string, keys Keys) (*Report, error) {
	parts, err := store.Parts(ctx, id)
	if err != nil {
		return nil, fmt.Errorf("verify recording %s: %w", id, err)
	}
	r := &Report{Parts: len(parts)}
	c := newChain(id, keys.orEmpty(), parts)
	for _, stored := range parts {
		if fault := c.skipTo(stored.Number); fault != nil {
			r.Faults = append(r.Faults, *fault)
		}
		data, err := store.Get(ctx, id, stored.Number)
		if err != nil {
			return nil, fmt.Errorf("verify recording %s: %w", id, err)
		}
		r.Size += int64(len(data))
		p, fault := c.add(data)
		if fault != nil {
			r.Faults = append(r.Faults, *fault)
			continue
		}
		if fault := r.read(p); fault != nil {
			r.Faults = append(r.Faults, *fault)
		}
	}
	r.Faults = append(r.Faults, c.end()...)
	return r, nil
}

// read parses all events of a part.
func (r *Report) read(p *part) *Fault {
	if p.header != nil {
		r.Info = p.header
	}
	for line := range lines(p.events) {
		e, err := parseEvent(line)
		if err == nil && e.isChain() {
			err = errors.New("it has an event of the chain between others")
		}
		if err == nil && e.Time < r.Duration {
			err = errors.New("an event is older than the one before it")
		}
		if err != nil {
			return &Fault{Changed, p.number, err.Error()}
		}
		r.Duration = e.Time
	}
	return nil
}

// Summary is the header of a recording and what is known without reading all of it.
type Summary struct {
	Info
	Parts    int
	Stored   time.Time // when the last part was stored
	Complete bool      // the last part is the end; other parts are not verified
}

// Summarize reads the first and the last part of a recording. It verifies no signatures.
func Summarize(ctx context.Context, store Store, id string) (*Summary, error) {
	parts, err := store.Parts(ctx, id)
	if err != nil {
		return nil, fmt.Errorf("read recording %s: %w", id, err)
	}
	first, last := parts[0], parts[len(parts)-1]
	if first.Number != 0 {
		c := chain{}
		return nil, fmt.Errorf("read recording %s: %w", id, c.skipTo(first.Number))
	}
	s := &Summary{Parts: len(parts), Stored: last.Stored}
	for _, stored := range slices.Compact([]Part{first, last}) {
		data, err := store.Get(ctx, id, stored.Number)
		if err != nil {
			return nil, fmt.Errorf("read recording %s: %w", id, err)
		}
		p, fault := parsePart(data, stored.Number, nil)
		if fault != nil {
			return nil, fmt.Errorf("read recording %s: %w", id, fault)
		}
		if p.header != nil {
			s.Info = *p.header
		}
		s.Complete = p.end == len(parts)
	}
	return s, nil
}
