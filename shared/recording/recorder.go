package recording

import (
	"cmp"
	"context"
	"crypto/sha256"
	"fmt"
	"log/slog"
	"sync"
	"sync/atomic"
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
	// maxMemory is the size of all buffers of a Recorder in bytes, beyond which parts end at smallPart. So each session
	// needs little memory then, and its stream waits for the Store.
	maxMemory = 64 << 20
	smallPart = 16 << 10
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
	writes  *slots
	memory  atomic.Int64 // bytes of the buffers of all sessions, also of those that are written
	buffers sync.Pool    // of *[]byte
}

// New returns a Recorder. It has no goroutines and needs no Close.
func New(cfg Config) *Recorder {
	if cfg.Log == nil {
		cfg.Log = slog.New(slog.DiscardHandler)
	}
	if cfg.Now == nil {
		cfg.Now = time.Now
	}
	return &Recorder{cfg: cfg, writes: newSlots()}
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
	if err := r.putFirst(ctx, s, append(first, '\n')); err != nil {
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

func (r *Recorder) putFirst(ctx context.Context, s *Session, part []byte) error {
	c := s.caller.ofFirstPart()
	if err := r.writes.acquire(ctx, c); err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, StoreTimeout)
	defer cancel()
	return r.put(ctx, s.info.ID, 0, s.seal(part, 0), func() { r.writes.release(c) })
}

// keep prevents the deletion of a recording while its session is open.
func (r *Recorder) keep(id string) (release func()) {
	if k, ok := r.cfg.Store.(Keeper); ok {
		return k.Keep(id)
	}
	return func() {}
}

// put stores a part. The caller has acquired a slot, which release releases. put returns at the end of ctx at the
// latest, even if the Store does not: a write to a network file system may hang. Then the Store still uses part, and
// the write keeps its slot.
func (r *Recorder) put(ctx context.Context, id string, number int, part []byte, release func()) error {
	stored := make(chan error, 1)
	go func() {
		err := r.cfg.Store.Put(ctx, id, number, part)
		release()
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

func (r *Recorder) isMemoryFull() bool { return r.memory.Load() >= maxMemory }

// buffer returns an empty buffer with space for the first line of a part.
func (r *Recorder) buffer() []byte {
	if !r.isMemoryFull() { // a buffer from the pool may be large
		if b, ok := r.buffers.Get().(*[]byte); ok {
			return (*b)[:firstLine]
		}
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
