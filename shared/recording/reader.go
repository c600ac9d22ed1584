package recording

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"iter"
)

// Reader reads the events of a recording. It is not safe for concurrent use.
type Reader struct {
	store Store
	chain chain
	parts []Part
	info  Info
	lines []byte // the remaining events of the current part
}

// Open opens a recording and reads its header. Each part is verified before its events are returned.
func Open(ctx context.Context, store Store, id string, keys Keys) (*Reader, error) {
	return open(ctx, store, id, keys.orEmpty())
}

// OpenUnverified is like Open without keys: nothing is known about who has written the recording.
func OpenUnverified(ctx context.Context, store Store, id string) (*Reader, error) {
	return open(ctx, store, id, nil)
}

func open(ctx context.Context, store Store, id string, keys Keys) (*Reader, error) {
	parts, err := store.Parts(ctx, id)
	if err != nil {
		return nil, fmt.Errorf("read recording %s: %w", id, err)
	}
	r := &Reader{store: store, chain: newChain(id, keys, parts), parts: parts}
	p, err := r.nextPart(ctx)
	if err != nil {
		return nil, err
	}
	r.info = *p.header // the chain begins with a header
	return r, nil
}

// Info returns the header.
func (r *Reader) Info() *Info { return &r.info }

// Next returns the next event. It returns io.EOF after the end of the recording. At the first part that has a Fault, it
// returns an error that wraps the *Fault. A Fault of the kind Cut comes after all events, and so does one of the kind
// Missing among the last parts.
func (r *Reader) Next(ctx context.Context) (Event, error) {
	for len(r.lines) == 0 {
		if _, err := r.nextPart(ctx); err != nil {
			return Event{}, err
		}
	}
	line, rest, _ := bytes.Cut(r.lines, []byte("\n"))
	r.lines = rest
	e, err := parseEvent(line)
	if err == nil && e.isChain() {
		err = errors.New("it has an event of the chain between others")
	}
	if err != nil {
		return Event{}, r.fault(&Fault{Changed, r.chain.next - 1, err.Error()})
	}
	return e, nil
}

func (r *Reader) nextPart(ctx context.Context) (*part, error) {
	if len(r.parts) == 0 {
		if faults := r.chain.end(); len(faults) > 0 {
			return nil, r.fault(&faults[0])
		}
		return nil, io.EOF
	}
	number := r.parts[0].Number
	if fault := r.chain.skipTo(number); fault != nil {
		return nil, r.fault(fault)
	}
	data, err := r.store.Get(ctx, r.chain.id, number)
	if err != nil {
		return nil, fmt.Errorf("read recording %s: %w", r.chain.id, err)
	}
	r.parts = r.parts[1:]
	p, fault := r.chain.add(data)
	if fault != nil {
		return nil, r.fault(fault)
	}
	r.lines = p.events
	return p, nil
}

func (r *Reader) fault(f *Fault) error {
	r.lines, r.parts = nil, nil
	return fmt.Errorf("read recording %s: %w", r.chain.id, f)
}

// lines returns the lines of b without their ends.
func lines(b []byte) iter.Seq[[]byte] {
	return func(yield func([]byte) bool) {
		for len(b) > 0 {
			line, rest, _ := bytes.Cut(b, []byte("\n"))
			if !yield(line) {
				return
			}
			b = rest
		}
	}
}

func (e *Event) isChain() bool {
	return e.Type == typePart || e.Type == typeEnd || e.Type == typeSignature
}
