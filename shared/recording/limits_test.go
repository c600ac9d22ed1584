package recording_test

import (
	"bytes"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/clusterpass/clusterpass/shared/recording"
	"github.com/clusterpass/clusterpass/shared/recording/storetest"
)

// TestControlCharactersDoNotGrow fails if a user can multiply what the store must keep.
func TestControlCharactersDoNotGrow(t *testing.T) {
	store := &storetest.Memory{}
	s, keys := begin(t, store, newInfo())
	zeros := make([]byte, 1<<20)
	must(t, s.Output(1, zeros))
	must(t, s.Close())
	report, err := recording.Verify(t.Context(), store, s.ID(), keys)
	if err != nil || !report.Complete() || report.Size > int64(len(zeros)*3/2) {
		t.Errorf("%d bytes become %+v, %v", len(zeros), report, err)
	}
}

// TestLongCommandIsShortened fails if a caller's command makes headers large, or if its rest is not proved.
func TestLongCommandIsShortened(t *testing.T) {
	const limit = 16 << 10
	fits := strings.Repeat("<", limit-6-2)
	many := func(s string, count int) []string { return []string{strings.Repeat(s, count)} }
	for name, tt := range map[string]struct {
		command   []string
		want      []string
		shortened bool
	}{
		"short":              {[]string{"sh", "-c", "ls"}, []string{"sh", "-c", "ls"}, false},
		"fits":               {[]string{"sh", fits}, []string{"sh", fits}, false},
		"too long":           {[]string{"sh", fits + "é"}, []string{"sh", fits}, true},
		"ends a character":   {[]string{"sh", fits[1:] + "é"}, []string{"sh", fits[1:]}, true},
		"one argument more":  {[]string{"sh", fits, "x", "y"}, []string{"sh", fits}, true},
		"many empty ones":    {make([]string, limit), make([]string, limit/3), true},
		"control characters": {many("\x01", limit), many("\x01", (limit-3)/6), true},
		"no UTF-8":           {many("\xff", limit), many("\uFFFD", (limit-3)/6), true},
		"quotation marks":    {many(`"`, limit), many(`"`, (limit-3)/2), true},
		"line separators":    {[]string{"\u2028" + fits}, []string{"\u2028" + fits[:limit-3-6]}, true},
		"a long one at last": {[]string{"sh", strings.Repeat("<", 1<<20), "x"}, []string{"sh", fits}, true},
	} {
		t.Run(name, func(t *testing.T) {
			store := &storetest.Memory{}
			i := newInfo()
			i.Command = slices.Clone(tt.command)
			s, keys := begin(t, store, i)
			must(t, s.Close())
			report, err := recording.Verify(t.Context(), store, s.ID(), keys)
			must(t, err)
			want := ""
			if tt.shortened {
				want = fmt.Sprintf("%x", sha256.Sum256([]byte(strings.Join(tt.command, "\x00")+"\x00")))
			}
			if !slices.Equal(report.Info.Command, tt.want) || report.Info.CommandSHA256 != want {
				t.Errorf("%d arguments and the digest %q, want %d and %q", len(report.Info.Command),
					report.Info.CommandSHA256, len(tt.want), want)
			}
			if !slices.Equal(i.Command, tt.command) {
				t.Error("the command of the caller was changed")
			}
			if first, err := store.Get(t.Context(), s.ID(), 0); err != nil || len(first) > limit+2<<10 {
				t.Errorf("the first part has %d bytes, %v", len(first), err)
			}
		})
	}
}

// TestSlowStoreFailsSession fails if a store that hangs blocks a session for ever, or lets it go on unrecorded.
func TestSlowStoreFailsSession(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := &storetest.Memory{BeforePut: func(ctx context.Context, _ string, number int) error {
			if number > 0 {
				<-ctx.Done()
			}
			return ctx.Err()
		}}
		s, keys := begin(t, store, newInfo())
		begun, written := time.Now(), 0
		chunk := bytes.Repeat([]byte("x"), 32<<10)
		var err error
		for ; err == nil; written += len(chunk) {
			err = s.Output(1, chunk)
		}
		if took := time.Since(begun); took != recording.StoreTimeout || !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("failed after %s with %v", took, err)
		}
		if written > 8<<20 {
			t.Errorf("%d bytes were buffered, want at most 8 MiB", written)
		}
		<-s.Failed()
		if s.Err() == nil || !errors.Is(s.Output(1, chunk), s.Err()) || !errors.Is(s.Close(), s.Err()) {
			t.Errorf("errors after the failure: %v", s.Err())
		}
		r, err := recording.Verify(t.Context(), store, s.ID(), keys)
		if err != nil || !r.IsCut() {
			t.Errorf("the recording is %+v, %v; want it to be cut", r, err)
		}
	})
}

// TestHungStoreFailsSession fails if a store that ignores its deadline lets
// sessions go on unrecorded, or blocks them for ever.
func TestHungStoreFailsSession(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var hangsFrom atomic.Int64
		hangsFrom.Store(1)
		back := make(chan struct{})
		store := &storetest.Memory{BeforePut: func(_ context.Context, _ string, number int) error {
			if int64(number) >= hangsFrom.Load() {
				<-back
			}
			return nil
		}}
		signer, _ := storetest.NewSigner(t)
		r := recording.New(recording.Config{Store: store, Signer: signer})
		for n := range 30 {
			i := newInfo()
			i.User = fmt.Sprint("user-", n) // one user has a part of the slots
			s, err := r.Begin(t.Context(), i)
			must(t, err)
			must(t, s.Output(1, []byte("x")))
			begun := time.Now()
			<-s.Failed()
			if took := time.Since(begun); took > recording.StoreTimeout+2*time.Second {
				t.Fatalf("failed after %s", took)
			}
			if err := s.Close(); !errors.Is(err, context.DeadlineExceeded) {
				t.Fatalf("close: %v", err)
			}
		}
		s, err := r.Begin(t.Context(), newInfo())
		must(t, err)
		begun := time.Now()
		if err := s.Close(); !errors.Is(err, context.DeadlineExceeded) || time.Since(begun) != recording.StoreTimeout {
			t.Errorf("a close that must store the end: %v after %s", err, time.Since(begun))
		}
		hangsFrom.Store(0)
		for range 3 { // one more write, and then none: 32 writes hang
			begun := time.Now()
			_, err := r.Begin(t.Context(), newInfo())
			if !errors.Is(err, context.DeadlineExceeded) || time.Since(begun) != recording.StoreTimeout {
				t.Errorf("begin: %v after %s", err, time.Since(begun))
			}
		}
		close(back)
		s, err = r.Begin(t.Context(), newInfo())
		must(t, err)
		must(t, s.Close())
	})
}

// TestFailedPartKeepsItsMemory fails if the memory of a part is reused while the Store may still read it.
func TestFailedPartKeepsItsMemory(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		signer, _ := storetest.NewSigner(t)
		store := &lateReader{}
		r := recording.New(recording.Config{Store: store, Signer: signer})
		for n := range 4 {
			s, err := r.Begin(t.Context(), newInfo())
			must(t, err)
			must(t, s.Output(1, bytes.Repeat(fmt.Append(nil, n), 100)))
			if err := s.Close(); err == nil {
				t.Error("close succeeds")
			}
		}
		for n, part := range store.parts {
			if want := bytes.Repeat(fmt.Append(nil, n), 100); !bytes.Contains(part, want) {
				t.Errorf("part %d became %s", n, part)
			}
		}
	})
}

// lateReader refuses all parts but the first ones, and keeps them.
type lateReader struct {
	recording.Store
	parts [][]byte
}

func (l *lateReader) Put(_ context.Context, _ string, number int, part []byte) error {
	if number == 0 {
		return nil
	}
	l.parts = append(l.parts, part)
	return errors.New("refused")
}

// TestFailureIsReportedAtOnce fails if a session goes on after its recording has failed.
func TestFailureIsReportedAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		full := errors.New("disk full")
		store := &storetest.Memory{BeforePut: func(_ context.Context, _ string, number int) error {
			if number == 2 {
				return full
			}
			return nil
		}}
		s, _ := begin(t, store, newInfo())
		begun := time.Now()
		for range 2 {
			must(t, s.Output(1, []byte("x")))
			time.Sleep(1700 * time.Millisecond)
		}
		select {
		case <-s.Failed():
		default:
			t.Fatalf("no failure after %s", time.Since(begun))
		}
		if err := s.Input([]byte("x")); !errors.Is(err, full) {
			t.Errorf("input: %v", err)
		}
		if err := s.Close(); !errors.Is(err, full) {
			t.Errorf("close: %v", err)
		}
	})
}

// TestBeginFailsWithoutStore fails if a session begins although nothing can be recorded.
func TestBeginFailsWithoutStore(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		signer, _ := storetest.NewSigner(t)
		down := errors.New("down")
		begun := time.Now()
		for name, tt := range map[string]struct {
			put  func(ctx context.Context) error
			want error
		}{
			"down":  {func(context.Context) error { return down }, down},
			"hangs": {func(ctx context.Context) error { <-ctx.Done(); return ctx.Err() }, context.DeadlineExceeded},
		} {
			store := &storetest.Memory{BeforePut: func(ctx context.Context, _ string, _ int) error { return tt.put(ctx) }}
			s, err := recording.New(recording.Config{Store: store, Signer: signer}).Begin(t.Context(), newInfo())
			if !errors.Is(err, tt.want) || s != nil {
				t.Errorf("%s: %v", name, err)
			}
		}
		if took := time.Since(begun); took != recording.StoreTimeout {
			t.Errorf("both took %s", took)
		}
		i := newInfo()
		i.User = strings.Repeat("x", 2<<20)
		_, err := recording.New(recording.Config{Store: &storetest.Memory{}, Signer: signer}).Begin(t.Context(), i)
		if err == nil || !strings.Contains(err.Error(), "header has") {
			t.Errorf("a header of 2 MiB: %v", err)
		}
	})
}
