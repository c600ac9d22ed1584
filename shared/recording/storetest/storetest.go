package storetest

import (
	"bytes"
	"context"
	"errors"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/clusterpass/clusterpass/shared/recording"
)

// Run tests an implementation of recording.Store. open returns a new Store without recordings.
func Run(t *testing.T, open func(t *testing.T) recording.Store) {
	t.Run("parts come back unchanged", func(t *testing.T) { testParts(t, open(t)) })
	t.Run("no part is replaced", func(t *testing.T) { testNoPartIsReplaced(t, open(t)) })
	t.Run("recordings are listed by their day", func(t *testing.T) { testList(t, open(t)) })
	t.Run("invalid names and ended contexts are refused", func(t *testing.T) { testRefusals(t, open(t)) })
	t.Run("a recorder's session is complete", func(t *testing.T) { testSession(t, open(t)) })
}

func newID(day string) string {
	at, err := time.Parse("20060102", day)
	if err != nil {
		panic(err)
	}
	return recording.NewID(at)
}

func put(t *testing.T, s recording.Store, id string, number int, part string) {
	t.Helper()
	if err := s.Put(t.Context(), id, number, []byte(part)); err != nil {
		t.Fatalf("put part %d: %v", number, err)
	}
}

func testParts(t *testing.T, s recording.Store) {
	id := newID("20260102")
	put(t, s, id, 0, "first\n")
	var wg sync.WaitGroup
	for number := 1; number < 12; number++ { // a recorder writes several parts at the same time
		wg.Go(func() {
			if err := s.Put(t.Context(), id, number, bytes.Repeat([]byte{byte(number), 0xff}, number)); err != nil {
				t.Error(err)
			}
		})
	}
	wg.Wait()
	parts, err := s.Parts(t.Context(), id)
	if err != nil || len(parts) != 12 {
		t.Fatalf("%d parts, %v; want 12", len(parts), err)
	}
	for number, p := range parts {
		want := bytes.Repeat([]byte{byte(number), 0xff}, number)
		if number == 0 {
			want = []byte("first\n")
		}
		got, err := s.Get(t.Context(), id, number)
		if err != nil || !bytes.Equal(got, want) {
			t.Errorf("part %d is %q, %v; want %q", number, got, err, want)
		}
		if p.Number != number || p.Size != int64(len(want)) || time.Since(p.Stored).Abs() > time.Hour {
			t.Errorf("part %d is listed as %+v", number, p)
		}
	}
	other := newID("20260102")
	if _, err := s.Parts(t.Context(), other); !errors.Is(err, recording.ErrNotFound) {
		t.Errorf("parts of no recording: %v, want ErrNotFound", err)
	}
	for _, id := range []string{id, other} {
		if _, err := s.Get(t.Context(), id, 12); !errors.Is(err, recording.ErrNotFound) {
			t.Errorf("part 12: %v, want ErrNotFound", err)
		}
	}
}

func testNoPartIsReplaced(t *testing.T, s recording.Store) {
	id := newID("20260102")
	for number := range 2 {
		put(t, s, id, number, "old")
		if err := s.Put(t.Context(), id, number, []byte("new")); !errors.Is(err, recording.ErrExists) {
			t.Errorf("put part %d again: %v, want ErrExists", number, err)
		}
		if got, err := s.Get(t.Context(), id, number); err != nil || string(got) != "old" {
			t.Errorf("part %d is %q, %v after a second put", number, got, err)
		}
	}
}

func testList(t *testing.T, s recording.Store) {
	if ids, err := s.List(t.Context(), ""); err != nil || len(ids) > 0 {
		t.Errorf("an empty store lists %v, %v", ids, err)
	}
	var all []string
	for _, day := range []string{"20260102", "20260103", "20260103", "20251231"} {
		id := newID(day)
		put(t, s, id, 0, "x")
		put(t, s, id, 1, "y")
		all = append(all, id)
	}
	slices.Sort(all)
	for prefix, want := range map[string][]string{
		"": all, "2026": all[1:], "202601": all[1:], "20260103": all[2:], "20260104": {}, all[0]: all[:1],
	} {
		if got, err := s.List(t.Context(), prefix); err != nil || !slices.Equal(got, want) {
			t.Errorf("prefix %q lists %v, %v; want %v", prefix, got, err, want)
		}
	}
	for prefix, want := range map[string][]string{
		"": {"20251231", "20260102", "20260103"}, "202601": {"20260102", "20260103"}, "2024": nil,
	} {
		if got, err := s.Days(t.Context(), prefix); err != nil || !slices.Equal(got, want) {
			t.Errorf("prefix %q has the days %v, %v; want %v", prefix, got, err, want)
		}
	}
}

func testRefusals(t *testing.T, s recording.Store) {
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	valid := newID("20260102")
	for name, tt := range map[string]struct {
		ctx    context.Context
		id     string
		number int
		want   error
	}{
		"a path":            {t.Context(), "../" + valid, 0, nil},
		"an empty id":       {t.Context(), "", 0, nil},
		"a negative number": {t.Context(), valid, -1, nil},
		"an ended context":  {ended, valid, 0, context.Canceled},
	} {
		t.Run(name, func(t *testing.T) {
			errs := map[string]error{"put": s.Put(tt.ctx, tt.id, tt.number, []byte("x"))}
			_, errs["get"] = s.Get(tt.ctx, tt.id, tt.number)
			if tt.number == 0 {
				_, errs["parts"] = s.Parts(tt.ctx, tt.id)
			}
			for call, err := range errs {
				if err == nil || errors.Is(err, recording.ErrNotFound) || tt.want != nil && !errors.Is(err, tt.want) {
					t.Errorf("%s: %v", call, err)
				}
			}
		})
	}
	if ids, err := s.List(t.Context(), ""); err != nil || len(ids) > 0 {
		t.Errorf("refused calls leave %v, %v", ids, err)
	}
}

func testSession(t *testing.T, s recording.Store) {
	signer, keys := NewSigner(t)
	session, err := recording.New(recording.Config{Store: s, Signer: signer}).Begin(t.Context(), recording.Info{
		User: "ann", Cluster: "prod", Kind: recording.Exec,
	})
	if err != nil {
		t.Fatal(err)
	}
	line := []byte(strings.Repeat("0123456789abcdef", 64<<10/16))
	for range 40 { // 2.5 MiB are several parts
		if err := session.Output(1, line); err != nil {
			t.Fatal(err)
		}
	}
	if err := session.Close(); err != nil {
		t.Fatal(err)
	}
	r, err := recording.Verify(t.Context(), s, session.ID(), keys)
	if err != nil || !r.Complete() || r.Parts < 4 {
		t.Errorf("verify: %+v, %v", r, err)
	}
}
