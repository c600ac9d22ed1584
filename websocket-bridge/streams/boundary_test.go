package streams

import (
	"encoding/binary"
	"strings"
	"testing"

	"github.com/fxamacker/cbor/v2"
)

// TestBoundaries: a drain would cut a watch within an event. All splits into three pieces are tried.
func TestBoundaries(t *testing.T) {
	item := func(v any) string {
		b, err := cbor.Marshal(v)
		if err != nil {
			t.Fatal(err)
		}
		return string(b)
	}
	object := cbor.Tag{
		Number:  55799,
		Content: map[string]any{"type": "ADDED", "object": []any{1, -70000, "", []byte("x"), nil, 1.5, map[string]any{}}},
	}
	length := func(s string) string { return string(binary.BigEndian.AppendUint32(nil, uint32(len(s)))) + s }
	tests := []struct {
		contentType string
		events      []string
	}{
		{"application/json", []string{"{\"a\":1}\n", "{}\n", "{\"b\""}},
		{"application/json;stream=watch", []string{"{\"a\":1}\n", "\n", "{\"b\""}},
		{"application/vnd.kubernetes.protobuf;stream=watch", []string{length("hello"), length(""), length("open")[:5]}},
		{"application/cbor-seq", []string{item(object), item(object), item(object)[:9]}},
		// With parts of indefinite length.
		{"application/cbor-seq", []string{"\xbf\x61a\x9f\x01\xff\x61b\x5f\x41x\xff\xff", "\xf9\x3c\x00", "\xa1\x61a"}},
	}
	for _, tt := range tests {
		all := strings.Join(tt.events, "")
		ends := []int{len(tt.events[0]), len(tt.events[0]) + len(tt.events[1])}
		for i := range len(all) + 1 {
			for j := i; j <= len(all); j++ {
				b := boundaryOf(tt.contentType)
				at := 0
				for _, piece := range []string{all[:i], all[i:j], all[j:]} {
					want := -1
					for _, e := range ends {
						if e > at && e <= at+len(piece) && want < 0 {
							want = e - at
						}
					}
					if got := b.next([]byte(piece)); got != want {
						t.Fatalf("%s, %q after %d bytes: %d, want %d", tt.contentType, piece, at, got, want)
					}
					at += len(piece)
					if wantBetween := at == 0 || at == ends[0] || at == ends[1]; b.isBetweenEvents() != wantBetween {
						t.Fatalf("%s, after %q: isBetweenEvents is %v", tt.contentType, all[:at], b.isBetweenEvents())
					}
				}
			}
		}
	}
	if b := boundaryOf("application/yaml"); b != nil {
		t.Errorf("%T for events that cannot be told apart", b)
	}
}

func FuzzLengths(f *testing.F) {
	f.Add([]byte("\x00\x00\x00\x02ab\x00\x00\x00\x00\x00\x00"), uint8(3))
	f.Fuzz(func(t *testing.T, data []byte, cut uint8) {
		whole, pieces := &lengths{}, &lengths{}
		at := min(int(cut), len(data))
		first := pieces.next(data[:at])
		second := pieces.next(data[at:])
		if first < 0 && second >= 0 {
			first = at + second
		}
		got := whole.next(data)
		if got != first || whole.isBetweenEvents() != pieces.isBetweenEvents() || whole.left != pieces.left {
			t.Errorf("whole: %d %v; in pieces: %d %v", got, whole, first, pieces)
		}
	})
}

func FuzzItems(f *testing.F) {
	f.Add([]byte("\xbf\x61a\x9f\x01\xff\xff\xd9\xd9\xf7\xa1\x61a\x82\x40\xf6"), uint8(3))
	f.Add([]byte("\xfb\x00\x00\x00\x00\x00\x00\x00\x00\x5b\xff\xff\xff\xff\xff\xff\xff\xff"), uint8(9))
	f.Fuzz(func(t *testing.T, data []byte, cut uint8) {
		whole, pieces := &items{}, &items{}
		at := min(int(cut), len(data))
		first := pieces.next(data[:at])
		second := pieces.next(data[at:])
		if first < 0 && second >= 0 {
			first = at + second
		}
		if got := whole.next(data); got != first || whole.isBetweenEvents() != pieces.isBetweenEvents() ||
			len(whole.open) != len(pieces.open) {
			t.Errorf("whole: %d %v; in pieces: %d %v", got, whole, first, pieces)
		}
		if rest, err := cbor.UnmarshalFirst(data, new(cbor.RawMessage)); err == nil && len(data)-len(rest) != first {
			t.Errorf("the first event ends after %d bytes, want %d", first, len(data)-len(rest))
		}
	})
}
