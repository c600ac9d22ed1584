package frames

import (
	"bytes"
	"encoding/binary"
	"slices"
	"testing"
)

func frame(opcode byte, masked bool, payload []byte) []byte {
	out := []byte{0x80 | opcode}
	bit := byte(0)
	if masked {
		bit = 0x80
	}
	switch l := len(payload); {
	case l < 126:
		out = append(out, bit|byte(l))
	case l < 1<<16:
		out = binary.BigEndian.AppendUint16(append(out, bit|126), uint16(l))
	default:
		out = binary.BigEndian.AppendUint64(append(out, bit|127), uint64(l))
	}
	if !masked {
		return append(out, payload...)
	}
	mask := []byte{1, 2, 3, 4}
	out = append(out, mask...)
	for i, b := range payload {
		out = append(out, b^mask[i%4])
	}
	return out
}

// ends returns the offsets of the ends of frames in a stream that arrives in pieces.
func ends(next func([]byte) (int, bool), pieces ...[]byte) []int {
	var out []int
	at := 0
	for _, p := range pieces {
		for len(p) > 0 {
			n, end := next(p)
			at += n
			if end {
				out = append(out, at)
			}
			p = p[n:]
		}
	}
	return out
}

// TestWebSocketInEverySplit: pings of the bridge would be written into the middle of a message.
func TestWebSocketInEverySplit(t *testing.T) {
	for _, masked := range []bool{false, true} {
		var all []byte
		var want []int
		for _, f := range [][]byte{
			frame(2, masked, []byte("hello")), frame(Ping, masked, nil), frame(1, masked, nil),
			frame(2, masked, make([]byte, 126)), frame(Close, masked, []byte("xy")),
		} {
			all = append(all, f...)
			want = append(want, len(all))
		}
		for i := range len(all) + 1 {
			for j := i; j <= len(all); j++ {
				w := &WebSocket{}
				got := ends(w.Next, all[:i], all[i:j], all[j:])
				if !slices.Equal(got, want) || !w.Between() || w.Opcode() != Close {
					t.Fatalf("cut at %d and %d: %v, want %v", i, j, got, want)
				}
			}
		}
		large := frame(2, masked, make([]byte, 70_000))
		w := &WebSocket{}
		if got := ends(w.Next, large[:9], large[9:]); !slices.Equal(got, []int{len(large)}) {
			t.Errorf("a large frame ends at %v", got)
		}
	}
}

func TestControlFrames(t *testing.T) {
	for _, masked := range []bool{false, true} {
		if got := ControlPayload(frame(Pong, masked, []byte("payload"))); string(got) != "payload" {
			t.Errorf("masked %v: %q", masked, got)
		}
	}
	if got := Control(Ping, []byte("x")); !bytes.Equal(got, frame(Ping, false, []byte("x"))) {
		t.Errorf("%x", got)
	}
	for _, broken := range [][]byte{nil, {0x8a}, {0x8a, 0xff}, {0x8a, 0x85, 1, 2}, {0x8a, 5, 1}} {
		ControlPayload(broken) // does not panic
	}
}

func TestSPDYInEverySplit(t *testing.T) {
	ping := []byte{0x80, 3, 0, 6, 0, 0, 0, 4, 0, 0, 0, 1}
	data := []byte{0, 0, 0, 1, 0, 0, 0, 3, 'a', 'b', 'c'}
	empty := []byte{0, 0, 0, 1, 1, 0, 0, 0}
	all := slices.Concat(data, empty, ping)
	want := []int{11, 19, 31}
	for i := range len(all) + 1 {
		for j := i; j <= len(all); j++ {
			s := &SPDY{}
			if got := ends(s.Next, all[:i], all[i:j], all[j:]); !slices.Equal(got, want) || !s.IsPing() {
				t.Fatalf("cut at %d and %d: %v, want %v", i, j, got, want)
			}
		}
	}
	s := &SPDY{}
	s.Next(data)
	if s.IsPing() {
		t.Error("a data frame is reported as a ping")
	}
}

// FuzzFrames: ends must not depend on how the input is split, and parsing must advance.
func FuzzFrames(f *testing.F) {
	f.Add(frame(2, true, []byte("hello")), uint16(3))
	f.Add(frame(2, false, make([]byte, 200)), uint16(4))
	f.Fuzz(func(t *testing.T, data []byte, cut uint16) {
		at := min(int(cut), len(data))
		var a, b WebSocket
		if x, y := ends(a.Next, data), ends(b.Next, data[:at], data[at:]); !slices.Equal(x, y) || a != b {
			t.Errorf("websocket: %v and %v", x, y)
		}
		var c, d SPDY
		if x, y := ends(c.Next, data), ends(d.Next, data[:at], data[at:]); !slices.Equal(x, y) || c != d {
			t.Errorf("SPDY: %v and %v", x, y)
		}
	})
}
