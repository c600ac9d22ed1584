package recording

import (
	"cmp"
	"context"
	"crypto/sha256"
	"fmt"
	"log/slog"
	"sync"
	"time"
)

const (
	// partSize is the size of a part, after which no more events are added. So a part has at most a MiB.
	partSize = 1<<20 - 2*maxEvent
	// partInterval is the age of the first event of a part, after which the part is stored. It leaves half a second for
	// the Store, so that a recorder that is killed loses at most two seconds.
	partInterval = 1500 * time.Millisecond
	// maxInFlight is how many parts of one session are written to the Store at the same time.
	maxInFlight = 4
	// maxWrites is how many parts of all sessions of a Recorder are written at the same time.
	maxWrites = 32
)

// Config configures a Recorder.
type Config struct {
	Store  Store
	Signer *Signer
	Log    *slog.Logger     // nil discards
	Now    func() time.Time // nil means time.Now
}

// Recorder records sessions. It is safe for concurrent use.
type Recorder struct {
	cfg     Config
	writes  chan struct{} // has an element for each part that is being written
	buffers sync.Pool     // of *[]byte
}

// New returns a Recorder. It has no goroutines and needs no Close.
func New(cfg Config) *Recorder {
	if cfg.Log == nil {
		cfg.Log = slog.New(slog.DiscardHandler)
	}
	if cfg.Now == nil {
		cfg.Now = time.Now
	}
	return &Recorder{cfg: cfg, writes: make(chan struct{}, maxWrites)}
}

// Begin begins a recording and stores its first part. An error means that nothing can be recorded. The caller must
// close the Session. The end of ctx afterwards does not affect the Session.
func (r *Recorder) Begin(ctx context.Context, i Info) (*Session, error) {
	if i.Start.IsZero() {
		i.Start = r.cfg.Now()
	}
	i.Start = i.Start.UTC().Truncate(time.Microsecond)
	i.ID = cmp.Or(i.ID, NewID(i.Start))
	if !ValidID(i.ID) {
		return nil, fmt.Errorf("begin a recording: the id %.64q is not valid", i.ID)
	}
	i.limitCommand()
	first, err := i.Header(DefaultWidth, DefaultHeight)
	if err != nil {
		return nil, fmt.Errorf("begin a recording: %w", err)
	}
	if len(first) > partSize {
		return nil, fmt.Errorf("begin a recording: its header has %d bytes; want at most %d", len(first), partSize)
	}
	release := r.keep(i.ID)
	s := newSession(context.WithoutCancel(ctx), r, i)
	part := s.seal(append(first, '\n'), 0)
	ctx, cancel := context.WithTimeout(ctx, StoreTimeout)
	defer cancel()
	if err := r.put(ctx, i.ID, 0, part); err != nil {
		release()
		return nil, fmt.Errorf("begin a recording: %w", err)
	}
	go func() {
		s.run()
		release()
		close(s.done)
	}()
	return s, nil
}

// keep prevents the deletion of a recording while its session is open.
func (r *Recorder) keep(id string) (release func()) {
	if k, ok := r.cfg.Store.(Keeper); ok {
		return k.Keep(id)
	}
	return func() {}
}

// put waits for a free slot and stores a part. It returns at the end of ctx at the latest, even if the Store does not:
// a write to a network file system may hang. Then the Store still uses part, and the write keeps its slot.
func (r *Recorder) put(ctx context.Context, id string, number int, part []byte) error {
	select {
	case r.writes <- struct{}{}:
	case <-ctx.Done():
		return fmt.Errorf("store part %d of recording %s: other parts are written: %w", number, id, ctx.Err())
	}
	stored := make(chan error, 1)
	go func() {
		err := r.cfg.Store.Put(ctx, id, number, part)
		<-r.writes
		stored <- err
	}()
	var err error
	select {
	case err = <-stored:
	case <-ctx.Done():
		err = ctx.Err()
	}
	if err != nil {
		return fmt.Errorf("store part %d of recording %s: %w", number, id, err)
	}
	return nil
}

// buffer returns an empty buffer with space for the first line of a part.
func (r *Recorder) buffer() []byte {
	if b, ok := r.buffers.Get().(*[]byte); ok {
		return (*b)[:firstLine]
	}
	return make([]byte, firstLine, 4<<10)
}

func (r *Recorder) free(b []byte) { r.buffers.Put(&b) }

// seal signs a part, after its last event at t. It returns the part with the signature.
func (s *Session) seal(part []byte, t time.Duration) []byte {
	hash := sha256.New()
	hash.Write(part)
	signer := s.recorder.cfg.Signer
	signature := signer.sign(hash.Sum(nil))
	events := len(part)
	part = AppendEvent(part, t, typeSignature, signatureText(signer.id, signature))
	hash.Write(part[events:])
	hash.Sum(s.previous[:0])
	return part
}
