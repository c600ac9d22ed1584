package recording_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/clusterpass/clusterpass/shared/recording"
	"github.com/clusterpass/clusterpass/shared/recording/storetest"
)

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
