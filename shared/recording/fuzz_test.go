package recording_test

import (
	"bytes"
	"encoding/json"
	"testing"
	"unicode/utf8"

	"github.com/clusterpass/clusterpass/shared/recording"
	"github.com/clusterpass/clusterpass/shared/recording/storetest"
)

// call is a call of a Session's method.
type call struct {
	typ  recording.Type
	data []byte
}

// callsOf splits data into calls: a byte chooses the stream, and another one the length.
func callsOf(data []byte) []call {
	var calls []call
	for len(data) >= 2 {
		typ := []recording.Type{recording.Output, recording.Stderr, recording.Input}[data[0]%3]
		n := min(int(data[1]), len(data)-2)
		piece := data[2 : 2+n]
		if data[0] >= 250 { // more than one event can have
			piece = bytes.Repeat(append(piece, 0xe2, 0x82, 0xac), 9000)
		}
		calls = append(calls, call{typ, piece})
		data = data[2+n:]
	}
	return calls
}

// joined joins neighbours of the same stream.
func joined(calls []call) []call {
	var out []call
	for _, c := range calls {
		switch {
		case len(c.data) == 0:
		case len(out) > 0 && out[len(out)-1].typ == c.typ:
			last := &out[len(out)-1]
			last.data = append(bytes.Clone(last.data), c.data...)
		default:
			out = append(out, c)
		}
	}
	return out
}

// FuzzReplayIsExact fails if a recording does not have the bytes of each stream, in their order, wherever they were
// split.
func FuzzReplayIsExact(f *testing.F) {
	f.Add([]byte("\x00\x05hello\x01\x02\xe2\x82\x01\x01\xac\x02\x03a\xffb"))
	f.Add([]byte("\x00\x01\xc3\x00\x01\xa9\xfa\x02\x80\x80\x00\x04\xf0\x9f\x98\x80\x00\x03\xf0\x9f\x98\x00\x01\x80"))
	f.Add([]byte("\x00\x04\x80\x80\x80\x80\x00\x03\"\\\x00\x01\x02\x1b\x7f\x02\x03\xe2\x80\xa8"))
	f.Add(append([]byte("\x00\xff"), make([]byte, 255)...))
	f.Add(append([]byte("\xfa\xc8"), bytes.Repeat([]byte("\x1b[32m"), 40)...))
	signer, keys := storetest.NewSigner(f)
	f.Fuzz(func(t *testing.T, data []byte) {
		store := &storetest.Memory{}
		i := newInfo()
		i.RecordsInput = true
		s, err := recording.New(recording.Config{Store: store, Signer: signer}).Begin(t.Context(), i)
		must(t, err)
		calls := callsOf(data)
		for _, c := range calls {
			switch c.typ {
			case recording.Output:
				must(t, s.Output(1, c.data))
			case recording.Stderr:
				must(t, s.Output(2, c.data))
			case recording.Input:
				must(t, s.Input(c.data))
			}
		}
		must(t, s.Close())
		r, err := recording.Open(t.Context(), store, s.ID(), keys)
		must(t, err)
		events, err := readAll(t, r)
		must(t, err)
		var replayed []call
		for _, e := range events {
			replayed = append(replayed, call{e.Type, e.Data})
		}
		want, got := joined(calls), joined(replayed)
		if len(want) != len(got) {
			t.Fatalf("%d runs of streams, want %d", len(got), len(want))
		}
		for n := range want {
			if want[n].typ != got[n].typ || !bytes.Equal(want[n].data, got[n].data) {
				t.Fatalf("run %d is %s %q, want %s %q", n, got[n].typ, got[n].data, want[n].typ, want[n].data)
			}
		}
	})
}

// FuzzEventText fails if text is not readable as such in a recording, or is no string of JSON.
func FuzzEventText(f *testing.F) {
	f.Add([]byte("a\x00\x1b[1m\"\\\n\r\t\x7f\u2028\U0001f600"))
	f.Add([]byte("\xff"))
	f.Fuzz(func(t *testing.T, data []byte) {
		line := recording.AppendEvent(nil, 0, recording.Output, data)
		var fields [3]any
		if err := json.Unmarshal(line, &fields); err != nil {
			t.Fatalf("%q: %v", line, err)
		}
		isText := fields[1] == string(recording.Output)
		if isText != utf8.Valid(data) || isText && fields[2] != string(data) {
			t.Errorf("%q is the event %v", data, fields)
		}
	})
}

// FuzzVerifyAnything fails if bytes in a store crash a reader, or are accepted without a signature.
func FuzzVerifyAnything(f *testing.F) {
	store := &storetest.Memory{}
	s, keys := begin(f, store, newInfo())
	must(f, s.Output(1, []byte("x")))
	must(f, s.Close())
	for number := range 2 {
		part, err := store.Get(f.Context(), s.ID(), number)
		must(f, err)
		f.Add(number, part)
		f.Add(number, part[:len(part)/2])
	}
	f.Add(1, []byte("[0,\"part\",\"1 \"]\n[1e300,\"r\",\"x\"]\n"))
	whole := [][]byte{nil, nil}
	for number := range whole {
		whole[number], _ = store.Get(f.Context(), s.ID(), number)
	}
	f.Fuzz(func(t *testing.T, number int, part []byte) {
		number = number & 1
		changed := &storetest.Memory{}
		for n := range whole {
			changed.Set(s.ID(), n, whole[n])
		}
		changed.Set(s.ID(), number, append([]byte{}, part...))
		report, err := recording.Verify(t.Context(), changed, s.ID(), keys)
		if err != nil || report.Complete() != bytes.Equal(part, whole[number]) {
			t.Errorf("%+v, %v", report, err)
		}
		if r, err := recording.OpenUnverified(t.Context(), changed, s.ID()); err == nil {
			_, _ = readAll(t, r)
		}
		_, _ = recording.Summarize(t.Context(), changed, s.ID())
	})
}
