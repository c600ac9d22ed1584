package recording_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/clusterpass/clusterpass/shared/recording"
	"github.com/clusterpass/clusterpass/shared/recording/storetest"
)

// recordParts returns a recording with parts 0 to 4. Its caller is in a bubble of synctest.
func recordParts(t *testing.T, store *storetest.Memory, r *recording.Recorder) (id string) {
	t.Helper()
	s, err := r.Begin(t.Context(), newInfo())
	must(t, err)
	for range 3 {
		must(t, s.Output(1, []byte("0123456789abcdef")))
		<-time.After(2 * time.Second)
	}
	must(t, s.Close())
	parts, err := store.Parts(t.Context(), s.ID())
	must(t, err)
	if len(parts) != 5 {
		t.Fatalf("%d parts, want 5", len(parts))
	}
	return s.ID()
}

// damage is what someone does to a recording with parts 0 to 4.
type damage struct {
	do   func(d *damaged)
	want string // kinds and parts
}

type damaged struct {
	*testing.T
	store     *storetest.Memory
	id, other string
	foreign   string // a recording that another key signed
}

func (d *damaged) get(id string, number int) []byte {
	d.Helper()
	part, err := d.store.Get(d.Context(), id, number)
	must(d, err)
	return part
}

func (d *damaged) set(number int, part []byte) { d.store.Set(d.id, number, part) }

var damages = map[string]damage{
	"none":                      {func(*damaged) {}, ""},
	"no last part":              {func(d *damaged) { d.set(4, nil) }, "cut 4"},
	"only the first part":       {func(d *damaged) { removeFrom(d, 1) }, "cut 1"},
	"no first part":             {func(d *damaged) { d.set(0, nil) }, "missing 0"},
	"a missing part":            {func(d *damaged) { d.set(2, nil) }, "missing 2"},
	"two missing parts":         {func(d *damaged) { d.set(2, nil); d.set(3, nil) }, "missing 2"},
	"a missing part and no end": {func(d *damaged) { d.set(2, nil); d.set(4, nil) }, "cut 2"},
	"two gaps and no end":       {func(d *damaged) { d.set(1, nil); d.set(3, nil); d.set(4, nil) }, "cut 1"},
	"a part of another recording after a gap": {func(d *damaged) {
		d.set(2, nil)
		d.set(3, d.get(d.other, 3))
		d.set(4, nil)
	}, "reordered 3, cut 2"},
	"a changed byte": {func(d *damaged) {
		d.set(2, bytes.Replace(d.get(d.id, 2), []byte("0123456789abcdef"), []byte("0123456789abcdeg"), 1))
	}, "changed 2"},
	"a changed header": {func(d *damaged) {
		d.set(0, bytes.Replace(d.get(d.id, 0), []byte(`"user":"ann"`), []byte(`"user":"bob"`), 1))
	}, "changed 0"},
	"a truncated part":        {func(d *damaged) { p := d.get(d.id, 4); d.set(4, p[:len(p)-1]) }, "changed 4, cut 5"},
	"an empty part":           {func(d *damaged) { d.set(3, []byte{}) }, "changed 3"},
	"no line":                 {func(d *damaged) { d.set(3, []byte("\n")) }, "changed 3"},
	"no signature":            {func(d *damaged) { d.set(3, withoutLastLine(d.get(d.id, 3))) }, "changed 3"},
	"an invalid signature":    {func(d *damaged) { resign(d, 3, "%s AAAA") }, "changed 3"},
	"a signature of no bytes": {func(d *damaged) { resign(d, 3, "%s ?") }, "changed 3"},
	"an unknown key":          {func(d *damaged) { resign(d, 3, "x%s AAAA") }, "unsigned 3"},
	"another time of a signature": {func(d *damaged) {
		changeLastLine(d, 4, func(line string) string { return "[9" + line[1:] })
	}, "changed 4, cut 5"},
	"another spelling of a signature": {func(d *damaged) {
		changeLastLine(d, 4, func(line string) string { return strings.Replace(line, `,"`, `, "`, 1) })
	}, "changed 4, cut 5"},
	"a line end in a signature": {func(d *damaged) {
		changeLastLine(d, 4, func(line string) string { return strings.Replace(line, `=="`, `==\n"`, 1) })
	}, "changed 4, cut 5"},
	"unused bits of a signature": {func(d *damaged) {
		changeLastLine(d, 4, func(line string) string { // one of A, Q, g and w, of which four bits are unused
			at := strings.Index(line, `=="`) - 1
			return line[:at] + string(line[at]+1) + line[at+1:]
		})
	}, "changed 4, cut 5"},
	"two parts swapped": {func(d *damaged) {
		two, three := d.get(d.id, 2), d.get(d.id, 3)
		d.set(2, three)
		d.set(3, two)
	}, "reordered 2, reordered 3"},
	"a part twice":                 {func(d *damaged) { d.set(3, d.get(d.id, 2)) }, "reordered 3"},
	"a part of another recording":  {func(d *damaged) { d.set(2, d.get(d.other, 2)) }, "reordered 2"},
	"another header":               {func(d *damaged) { d.set(0, d.get(d.other, 0)) }, "reordered 0"},
	"the end of another recording": {func(d *damaged) { d.set(4, d.get(d.other, 4)) }, "reordered 4, cut 5"},
	"a part of another key":        {func(d *damaged) { d.set(2, d.get(d.foreign, 2)) }, "unsigned 2"},
	"a part after the end":         {func(d *damaged) { d.set(5, d.get(d.other, 3)) }, "reordered 5"},
	"a copy of the end":            {func(d *damaged) { d.set(5, d.get(d.id, 4)) }, "reordered 5"},
}

func removeFrom(d *damaged, number int) {
	for ; number < 5; number++ {
		d.set(number, nil)
	}
}

func withoutLastLine(part []byte) []byte {
	return part[:bytes.LastIndexByte(part[:len(part)-1], '\n')+1]
}

// resign replaces the signature. %s in text is the name of the key.
func resign(d *damaged, number int, text string) {
	part := withoutLastLine(d.get(d.id, number))
	_, data, _ := strings.Cut(string(d.get(d.id, number)[len(part):]), `"signature","`)
	key, _, _ := strings.Cut(data, " ")
	d.set(number, recording.AppendEvent(part, 0, "signature", fmt.Appendf(nil, text, key)))
}

func changeLastLine(d *damaged, number int, change func(string) string) {
	part := d.get(d.id, number)
	before := withoutLastLine(part)
	d.set(number, append(bytes.Clone(before), change(string(part[len(before):]))...))
}

// TestDamageShows fails if someone who can write to the store, but has no key, can change a recording unnoticed.
func TestDamageShows(t *testing.T) {
	for name, tt := range damages {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, tt.check)
		})
	}
}

func (tt damage) check(t *testing.T) {
	store := &storetest.Memory{}
	signer, keys := storetest.NewSigner(t)
	r := recording.New(recording.Config{Store: store, Signer: signer})
	foreign, _ := storetest.NewSigner(t)
	d := &damaged{
		T: t, store: store, id: recordParts(t, store, r), other: recordParts(t, store, r),
		foreign: recordParts(t, store, recording.New(recording.Config{Store: store, Signer: foreign})),
	}
	tt.do(d)
	report, err := recording.Verify(t.Context(), store, d.id, keys)
	must(t, err)
	var got []string
	for _, f := range report.Faults {
		got = append(got, fmt.Sprint(f.Kind, " ", f.Part))
	}
	if strings.Join(got, ", ") != tt.want || report.Complete() != (tt.want == "") {
		t.Errorf("faults %v, want %s", report.Faults, tt.want)
	}
	wantFirstFault(t, d, keys, tt.want)
}

// wantFirstFault reads the recording, which must fail at the first fault.
func wantFirstFault(t *testing.T, d *damaged, keys recording.Keys, want string) {
	t.Helper()
	r, err := recording.Open(t.Context(), d.store, d.id, keys)
	if err == nil {
		_, err = readAll(t, r)
	}
	first, _, _ := strings.Cut(want, ",")
	var fault *recording.Fault
	switch {
	case want == "" && err != nil:
		t.Errorf("read: %v", err)
	case want != "" && (!errors.As(err, &fault) || fmt.Sprint(fault.Kind, " ", fault.Part) != first):
		t.Errorf("read: %v, want the fault %s", err, first)
	}
}

// TestKilledRecorder fails if parts that were never stored look removed, or removed ones look never stored.
func TestKilledRecorder(t *testing.T) { synctest.Test(t, testKilledRecorder) }

func testKilledRecorder(t *testing.T) {
	const hangs = 3
	store := &storetest.Memory{BeforePut: func(ctx context.Context, _ string, number int) error {
		if number != hangs {
			return nil
		}
		<-ctx.Done()
		return ctx.Err()
	}}
	s, keys := begin(t, store, newInfo())
	for range 9 {
		_ = s.Output(1, []byte("0123456789abcdef"))
		<-time.After(2 * time.Second)
		synctest.Wait()
		wantFaults(t, store, s.ID(), keys, recording.Cut)
	}
	parts, err := store.Parts(t.Context(), s.ID())
	must(t, err)
	if last := parts[len(parts)-1].Number; last != hangs+3 {
		t.Errorf("part %d was stored without part %d", last, hangs)
	}
	r, err := recording.Open(t.Context(), store, s.ID(), keys)
	must(t, err)
	if events, err := readAll(t, r); len(events) != len(parts)-1 || err == nil {
		t.Errorf("%d events of %d parts, %v", len(events), len(parts), err)
	}
	store.Set(s.ID(), hangs-1, nil)
	wantFaults(t, store, s.ID(), keys, recording.Missing, recording.Cut)
	if err := s.Close(); err == nil {
		t.Error("the recording has not failed")
	}
}

func wantFaults(t *testing.T, store recording.Store, id string, keys recording.Keys, want ...recording.FaultKind) {
	t.Helper()
	report, err := recording.Verify(t.Context(), store, id, keys)
	must(t, err)
	var got []recording.FaultKind
	for _, f := range report.Faults {
		got = append(got, f.Kind)
	}
	if !slices.Equal(got, want) {
		t.Errorf("faults %v, want %v", report.Faults, want)
	}
}

// TestNoKeysVerifyNothing fails if a program that could read no keys accepts every recording.
func TestNoKeysVerifyNothing(t *testing.T) { synctest.Test(t, testNoKeysVerifyNothing) }

func testNoKeysVerifyNothing(t *testing.T) {
	store := &storetest.Memory{}
	signer, _ := storetest.NewSigner(t)
	id := recordParts(t, store, recording.New(recording.Config{Store: store, Signer: signer}))
	report, err := recording.Verify(t.Context(), store, id, nil)
	must(t, err)
	if !slices.ContainsFunc(report.Faults, func(f recording.Fault) bool { return f.Kind == recording.Unsigned }) {
		t.Errorf("faults %v", report.Faults)
	}
	if _, err := recording.Open(t.Context(), store, id, nil); err == nil {
		t.Error("Open without keys succeeds")
	}
	r, err := recording.OpenUnverified(t.Context(), store, id)
	must(t, err)
	if events, err := readAll(t, r); err != nil || len(events) == 0 {
		t.Errorf("%d events, %v", len(events), err)
	}
}

// TestSummarize fails if a list has no headers, or shows a recording without an end as complete.
func TestSummarize(t *testing.T) { synctest.Test(t, testSummarize) }

func testSummarize(t *testing.T) {
	store := &storetest.Memory{}
	signer, _ := storetest.NewSigner(t)
	r := recording.New(recording.Config{Store: store, Signer: signer})
	id := recordParts(t, store, r)
	s, err := recording.Summarize(t.Context(), store, id)
	if err != nil || !s.Complete || s.Parts != 5 || s.ID != id || s.User != "ann" {
		t.Errorf("%+v, %v", s, err)
	}
	running, err := r.Begin(t.Context(), newInfo())
	must(t, err)
	defer func() { must(t, running.Close()) }()
	if s, err := recording.Summarize(t.Context(), store, running.ID()); err != nil || s.Complete || s.Parts != 1 {
		t.Errorf("a running session: %+v, %v", s, err)
	}
	store.Set(id, 0, nil)
	if _, err := recording.Summarize(t.Context(), store, id); err == nil {
		t.Error("a recording without its header has a summary")
	}
	_, err = recording.Summarize(t.Context(), store, recording.NewID(s.Start))
	if !errors.Is(err, recording.ErrNotFound) {
		t.Errorf("no recording: %v", err)
	}
}
