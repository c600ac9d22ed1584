package recording_test

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/clusterpass/clusterpass/shared/leaktest"
	"github.com/clusterpass/clusterpass/shared/recording"
	"github.com/clusterpass/clusterpass/shared/recording/storetest"
)

func TestMain(m *testing.M) { leaktest.Main(m) }

func TestMemory(t *testing.T) {
	storetest.Run(t, func(*testing.T) recording.Store { return &storetest.Memory{} })
}

func newInfo() recording.Info {
	return recording.Info{
		User: "ann", Groups: []string{"dev"}, Pass: "uid", RequestID: "request", Cluster: "prod", Namespace: "web",
		Pod: "web-0", Container: "app", Kind: recording.Exec, Command: []string{"sh", "-c", "ls"}, TTY: true, HasInput: true,
	}
}

func begin(tb testing.TB, store recording.Store, i recording.Info) (*recording.Session, recording.Keys) {
	tb.Helper()
	signer, keys := storetest.NewSigner(tb)
	s, err := recording.New(recording.Config{Store: store, Signer: signer}).Begin(tb.Context(), i)
	if err != nil {
		tb.Fatal(err)
	}
	return s, keys
}

func must(tb testing.TB, err error) {
	tb.Helper()
	if err != nil {
		tb.Fatal(err)
	}
}

// readAll returns all events, and the error after them unless it is io.EOF.
func readAll(tb testing.TB, r *recording.Reader) ([]recording.Event, error) {
	tb.Helper()
	var events []recording.Event
	for {
		e, err := r.Next(tb.Context())
		if errors.Is(err, io.EOF) {
			return events, nil
		} else if err != nil {
			return events, err
		}
		events = append(events, e)
	}
}

// TestRecordingHasEveryEvent fails if an auditor misses an event, or reads another one.
func TestRecordingHasEveryEvent(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := &storetest.Memory{}
		i := newInfo()
		i.RecordsInput = true
		s, keys := begin(t, store, i)
		const status = `{"status":"Failure","reason":"NonZeroExitCode"}`
		for _, record := range []func() error{
			func() error { return s.Resize(120, 40) },
			func() error { return s.Output(1, []byte("$ ")) },
			func() error { return s.Input([]byte("ls\r")) },
			func() error { return s.Output(2, []byte{0xff, 'x', 0}) },
			func() error { return s.Exit([]byte(status)) },
			func() error { return s.Transferred(7, 1<<40) },
			func() error { return s.Output(1, nil) },
		} {
			time.Sleep(time.Second)
			must(t, record())
		}
		must(t, s.Close())
		r, err := recording.Open(t.Context(), store, s.ID(), keys)
		must(t, err)
		events, err := readAll(t, r)
		must(t, err)
		want := []recording.Event{
			{Time: time.Second, Type: recording.Resize, Width: 120, Height: 40},
			{Time: 2 * time.Second, Type: recording.Output, Data: []byte("$ ")},
			{Time: 3 * time.Second, Type: recording.Input, Data: []byte("ls\r")},
			{Time: 4 * time.Second, Type: recording.Stderr, Data: []byte{0xff, 'x', 0}},
			{Time: 5 * time.Second, Type: recording.Exit, Data: []byte(status)},
			{Time: 6 * time.Second, Type: recording.Transferred, In: 7, Out: 1 << 40},
		}
		if got, want := fmt.Sprintf("%+v", events), fmt.Sprintf("%+v", want); got != want {
			t.Errorf("events\n%s, want\n%s", got, want)
		}
		got, i := *r.Info(), i
		i.ID, i.Start = s.ID(), got.Start
		if fmt.Sprintf("%+v", got) != fmt.Sprintf("%+v", i) || got.Start.IsZero() {
			t.Errorf("header %+v, want %+v", got, i)
		}
	})
}

// TestPartsAreAsciicast fails if the parts, one after the other, are no file that an asciicast player reads.
func TestPartsAreAsciicast(t *testing.T) {
	store := &storetest.Memory{}
	s, _ := begin(t, store, newInfo())
	must(t, s.Output(1, bytes.Repeat([]byte("\x1b[1mtext\x00\u00e9\"\\\r\n\xff"), 200_000)))
	must(t, s.Close())
	parts, err := store.Parts(t.Context(), s.ID())
	must(t, err)
	var file []byte
	for _, p := range parts {
		part, err := store.Get(t.Context(), s.ID(), p.Number)
		must(t, err)
		if len(part) > 1<<20 {
			t.Errorf("part %d has %d bytes, want at most a MiB", p.Number, len(part))
		}
		file = append(file, part...)
	}
	lines := strings.Split(strings.TrimSuffix(string(file), "\n"), "\n")
	var header struct {
		Version, Width, Height int
		Timestamp              int64
	}
	if err := json.Unmarshal([]byte(lines[0]), &header); err != nil || header.Version != 2 || header.Width != 80 ||
		header.Height != 24 || time.Since(time.Unix(header.Timestamp, 0)) > time.Hour {
		t.Errorf("header %s, %v", lines[0], err)
	}
	last := 0.0
	for _, line := range lines[1:] {
		var fields []any
		err := json.Unmarshal([]byte(line), &fields)
		if err != nil || len(fields) != 3 {
			t.Fatalf("line %.80s: %v", line, err)
		}
		at, ok := fields[0].(float64)
		_, isCode := fields[1].(string)
		_, isText := fields[2].(string)
		if !ok || !isCode || !isText || at < last {
			t.Fatalf("line %.80s is no event after %v", line, last)
		}
		last = at
	}
}

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

// TestInputIsIgnoredUnlessWanted fails if a policy without recordInput records passwords.
func TestInputIsIgnoredUnlessWanted(t *testing.T) {
	store := &storetest.Memory{}
	s, keys := begin(t, store, newInfo())
	must(t, s.Input([]byte("password")))
	must(t, s.Close())
	r, err := recording.Open(t.Context(), store, s.ID(), keys)
	must(t, err)
	if events, err := readAll(t, r); err != nil || len(events) > 0 {
		t.Errorf("events %+v, %v; want none", events, err)
	}
}

// TestKilledRecorderLosesTwoSeconds fails if a bridge that is killed loses more than the last two seconds.
func TestKilledRecorderLosesTwoSeconds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := &storetest.Memory{}
		store.BeforePut = func(context.Context, string, int) error { time.Sleep(400 * time.Millisecond); return nil }
		s, keys := begin(t, store, newInfo())
		begun := time.Now()
		for n := range 200 {
			must(t, s.Output(1, fmt.Appendf(nil, "%d\n", n)))
			time.Sleep(time.Duration(n*7%90) * time.Millisecond)
			r, err := recording.Open(t.Context(), store, s.ID(), keys)
			must(t, err)
			events, err := readAll(t, r)
			var fault *recording.Fault
			if !errors.As(err, &fault) || fault.Kind != recording.Cut {
				t.Fatalf("a recording without an end: %v", err)
			}
			last := time.Duration(0)
			if len(events) > 0 {
				last = events[len(events)-1].Time
			}
			if lost := time.Since(begun) - last; lost > 2*time.Second+90*time.Millisecond {
				t.Fatalf("after %s, the last stored event is of %s", time.Since(begun), last)
			}
		}
		must(t, s.Close())
	})
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

// TestAbortedRecordingIsCut fails if a recording that was given up before its session ended verifies as complete.
func TestAbortedRecordingIsCut(t *testing.T) {
	store := &storetest.Memory{}
	s, keys := begin(t, store, newInfo())
	must(t, s.Output(1, []byte("x")))
	first, second := errors.New("first"), errors.New("second")
	s.Abort(first)
	s.Abort(second)
	<-s.Failed()
	if err := s.Output(1, []byte("y")); !errors.Is(err, first) {
		t.Errorf("output after the abort: %v", err)
	}
	if err := s.Close(); !errors.Is(err, first) {
		t.Errorf("close: %v", err)
	}
	if r, err := recording.Verify(t.Context(), store, s.ID(), keys); err != nil || !r.IsCut() {
		t.Errorf("the recording is %+v, %v; want it to be cut", r, err)
	}
	r, err := recording.Open(t.Context(), store, s.ID(), keys)
	must(t, err)
	if events, _ := readAll(t, r); len(events) != 1 || string(events[0].Data) != "x" {
		t.Errorf("events %+v, want what was recorded before the abort", events)
	}
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

// TestRecordingOutlivesRequest fails if the end of a session is lost because its request has ended.
func TestRecordingOutlivesRequest(t *testing.T) {
	store := &storetest.Memory{}
	signer, keys := storetest.NewSigner(t)
	ctx, cancel := context.WithCancel(t.Context())
	s, err := recording.New(recording.Config{Store: store, Signer: signer}).Begin(ctx, newInfo())
	must(t, err)
	cancel()
	must(t, s.Output(1, []byte("the end")))
	must(t, s.Close())
	if r, err := recording.Verify(t.Context(), store, s.ID(), keys); err != nil || !r.Complete() {
		t.Errorf("%+v, %v", r, err)
	}
}

// TestConcurrentCalls fails if callers of one session damage its recording, or if a call after Close records.
func TestConcurrentCalls(t *testing.T) {
	store := &storetest.Memory{}
	i := newInfo()
	i.RecordsInput = true
	s, keys := begin(t, store, i)
	const calls = 100
	chunk := bytes.Repeat([]byte("0123456789"), 1000)
	var all sync.WaitGroup
	for _, record := range []func() error{
		func() error { return s.Output(1, chunk) }, func() error { return s.Output(2, chunk) },
		func() error { return s.Input(chunk) }, func() error { return s.Resize(1, 2) },
	} {
		all.Go(func() {
			for range calls {
				if err := record(); err != nil {
					t.Error(err)
					return
				}
			}
		})
	}
	all.Wait()
	var closes sync.WaitGroup
	for range 4 {
		closes.Go(func() { must(t, s.Close()) })
	}
	closes.Wait()
	if err := s.Output(1, chunk); !errors.Is(err, recording.ErrClosed) {
		t.Errorf("after Close: %v", err)
	}
	r, err := recording.Open(t.Context(), store, s.ID(), keys)
	must(t, err)
	events, err := readAll(t, r)
	must(t, err)
	sizes := map[recording.Type]int{}
	for _, e := range events {
		sizes[e.Type] += max(1, len(e.Data))
	}
	for typ, want := range map[recording.Type]int{
		recording.Output: calls * len(chunk), recording.Stderr: calls * len(chunk), recording.Input: calls * len(chunk),
		recording.Resize: calls,
	} {
		if sizes[typ] != want {
			t.Errorf("%s: %d, want %d", typ, sizes[typ], want)
		}
	}
}

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

// TestNewestReadsNoOlderDays fails if a list of the latest recordings reads the names of all others.
func TestNewestReadsNoOlderDays(t *testing.T) {
	store := &listedStore{}
	var ids []string
	for day := range 3 {
		for hour := range 2 {
			id := recording.NewID(time.Date(2026, 1, 1+day, hour, 0, 0, 0, time.UTC))
			ids = append(ids, id)
			must(t, store.Put(t.Context(), id, 0, []byte("x")))
		}
	}
	slices.Reverse(ids)
	for prefix, want := range map[string][]string{
		"": ids, "202601": ids, "20260102": ids[2:4], ids[0]: ids[:1], "2025": nil,
	} {
		var got []string
		for batch, err := range recording.Newest(t.Context(), store, prefix) {
			must(t, err)
			got = append(got, batch...)
		}
		if !slices.Equal(got, want) {
			t.Errorf("prefix %q has %v, want %v", prefix, got, want)
		}
	}
	store.lists = nil
	for batch := range recording.Newest(t.Context(), store, "") {
		if !slices.Equal(batch, ids[:2]) {
			t.Errorf("the latest day has %v, want %v", batch, ids[:2])
		}
		break
	}
	if want := []string{"20260103"}; !slices.Equal(store.lists, want) {
		t.Errorf("the prefixes %q were listed, want %q", store.lists, want)
	}
}

// listedStore records the prefixes of calls of List.
type listedStore struct {
	storetest.Memory
	lists []string
}

func (s *listedStore) List(ctx context.Context, prefix string) ([]string, error) {
	s.lists = append(s.lists, prefix)
	return s.Memory.List(ctx, prefix)
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
