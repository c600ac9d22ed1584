package recording_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/clusterpass/clusterpass/shared/recording"
	"github.com/clusterpass/clusterpass/shared/recording/storetest"
)

// TestManySessionsShareWrites fails if many busy sessions write more parts at the same time than memory allows.
func TestManySessionsShareWrites(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var (
			mu        sync.Mutex
			now, most int
			store     = &storetest.Memory{}
			signer, _ = storetest.NewSigner(t)
		)
		store.BeforePut = func(context.Context, string, int) error {
			mu.Lock()
			now++
			most = max(most, now)
			mu.Unlock()
			time.Sleep(100 * time.Millisecond)
			mu.Lock()
			defer mu.Unlock()
			now--
			return nil
		}
		r := recording.New(recording.Config{Store: store, Signer: signer})
		var sessions sync.WaitGroup
		for n := range 12 {
			sessions.Go(func() {
				i := newInfo()
				i.User = fmt.Sprint("user-", n)
				s, err := r.Begin(t.Context(), i)
				if err != nil {
					t.Error(err)
					return
				}
				err = s.Output(1, bytes.Repeat([]byte("x"), 5<<20))
				if err := errors.Join(err, s.Close()); err != nil {
					t.Error(err)
				}
			})
		}
		sessions.Wait()
		if most > 32 || most < 20 {
			t.Errorf("%d parts were written at the same time, want 20 to 32", most)
		}
	})
}

// loudID returns an id that slowForLoud recognizes.
func loudID() string { return recording.NewID(time.Date(2001, 1, 1, 0, 0, 0, 0, time.UTC)) }

// slowForLoud is a store that needs seconds for each part of a loud session but the first.
func slowForLoud(ctx context.Context, id string, number int) error {
	if !strings.HasPrefix(id, "2001") || number == 0 {
		return nil
	}
	select {
	case <-time.After(3 * time.Second):
	case <-ctx.Done():
	}
	return ctx.Err()
}

// TestLoudCallerBlocksOnlyItself fails if a user with many loud sessions ends the sessions of others whose recording is
// required, or keeps them from opening new ones.
func TestLoudCallerBlocksOnlyItself(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := &storetest.Memory{BeforePut: slowForLoud}
		signer, keys := storetest.NewSigner(t)
		r := recording.New(recording.Config{Store: store, Signer: signer})
		chunk := bytes.Repeat([]byte("x"), 256<<10)
		var loud sync.WaitGroup
		sessions := make([]*recording.Session, 40)
		for n := range sessions {
			i := newInfo()
			i.ID, i.User = loudID(), "mallory"
			if n%2 == 0 { // is no other caller
				i.User, i.Impersonator = fmt.Sprint("user-", n), "mallory"
			}
			var err error
			sessions[n], err = r.Begin(t.Context(), i) // before any part waits for a slot
			must(t, err)
		}
		for _, s := range sessions {
			loud.Go(func() {
				for range 20 {
					if s.Output(1, chunk) != nil {
						break
					}
				}
				_ = s.Close()
			})
		}
		quiet, err := r.Begin(t.Context(), newInfo())
		must(t, err)
		for range 30 {
			time.Sleep(time.Second)
			begun := time.Now()
			s, err := r.Begin(t.Context(), newInfo())
			must(t, err)
			must(t, quiet.Output(1, []byte("x")))
			must(t, s.Close())
			if took := time.Since(begun); took > 0 {
				t.Errorf("a session of another user waited for %s", took)
			}
		}
		must(t, quiet.Close())
		if report, err := recording.Verify(t.Context(), store, quiet.ID(), keys); err != nil || !report.Complete() {
			t.Errorf("the recording of another user: %+v, %v", report, err)
		}
		loud.Wait()
	})
}

// TestMadeUpTokensShareSlots fails if a client with many tokens, which no member has accepted, keeps users from opening
// sessions whose recording is required.
func TestMadeUpTokensShareSlots(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := &storetest.Memory{BeforePut: func(ctx context.Context, id string, _ int) error {
			return slowForLoud(ctx, id, 1)
		}}
		signer, _ := storetest.NewSigner(t)
		r := recording.New(recording.Config{Store: store, Signer: signer})
		var loud sync.WaitGroup
		for n := range 300 {
			loud.Go(func() {
				i := newInfo()
				i.ID, i.User, i.TokenSHA256 = loudID(), "", fmt.Sprint("token-", n)
				if s, err := r.Begin(t.Context(), i); err == nil {
					_ = s.Close()
				}
			})
		}
		synctest.Wait()
		for range 10 {
			time.Sleep(time.Second)
			begun := time.Now()
			s, err := r.Begin(t.Context(), newInfo())
			must(t, err)
			must(t, s.Close())
			if took := time.Since(begun); took > 0 {
				t.Errorf("a session of a user waited for %s", took)
			}
		}
		loud.Wait()
	})
}

// TestManySessionsShareMemory fails if many loud sessions, whose store is too slow, use up the memory of the bridge.
func TestManySessionsShareMemory(t *testing.T) { synctest.Test(t, testManySessionsShareMemory) }

func testManySessionsShareMemory(t *testing.T) {
	store := &storetest.Memory{BeforePut: func(ctx context.Context, _ string, number int) error {
		if number > 0 {
			<-ctx.Done()
		}
		return ctx.Err()
	}}
	signer, _ := storetest.NewSigner(t)
	r := recording.New(recording.Config{Store: store, Signer: signer})
	chunk := bytes.Repeat([]byte("x"), 32<<10)
	var (
		accepted atomic.Int64
		sessions sync.WaitGroup
	)
	const count = 100
	open := make([]*recording.Session, count)
	for n := range open {
		i := newInfo()
		i.User = fmt.Sprint("user-", n%10)
		var err error
		open[n], err = r.Begin(t.Context(), i) // before any part waits for a slot
		must(t, err)
	}
	for _, s := range open {
		sessions.Go(func() {
			for s.Output(1, chunk) == nil {
				accepted.Add(int64(len(chunk)))
			}
			_ = s.Close()
		})
	}
	synctest.Wait()
	if most := int64(64<<20 + count*len(chunk)*3); accepted.Load() > most {
		t.Errorf("%d sessions keep %d bytes in memory, want at most %d", count, accepted.Load(), most)
	}
	sessions.Wait()
	s, err := r.Begin(t.Context(), newInfo()) // the memory is free again
	must(t, err)
	written := 0
	for ; s.Output(1, chunk) == nil; written += len(chunk) {
	}
	if written < 4<<20 {
		t.Errorf("a later session wrote %d bytes, want four parts", written)
	}
	_ = s.Close()
}

func BenchmarkOutput(b *testing.B) {
	signer, _ := storetest.NewSigner(b)
	for name, chunk := range map[string][]byte{
		"text":   bytes.Repeat([]byte("drwxr-xr-x 2 root root 4096 Jan  1 00:00 a-directory\r\n"), 32<<10/54),
		"binary": bytes.Repeat([]byte{0x80, 0xff, 1, 2, 3, 4, 5, 6}, 32<<10/8),
		"zeros":  make([]byte, 32<<10),
	} {
		b.Run(name, func(b *testing.B) {
			s, err := recording.New(recording.Config{Store: discard{}, Signer: signer}).Begin(b.Context(), newInfo())
			must(b, err)
			b.SetBytes(int64(len(chunk)))
			for b.Loop() {
				must(b, s.Output(1, chunk))
			}
			must(b, s.Close())
		})
	}
}

type discard struct{ recording.Store }

func (discard) Put(context.Context, string, int, []byte) error { return nil }
