// Package frames finds the ends and the kinds of frames in an upgraded connection, and does no I/O.
//
// Invariants:
//   - Only the header of the current frame is stored, not its payload.
//   - Input may be malformed. The reported ends are then meaningless, but parsing always advances and never panics.
package frames

import "encoding/binary"

// Opcodes of websocket frames (RFC 6455, section 5.2).
const (
	Continuation = 0x0
	Text         = 0x1
	Binary       = 0x2
	Close        = 0x8
	Ping         = 0x9
	Pong         = 0xA
)

// MaxControl is the maximum size in bytes of a control frame's payload.
const MaxControl = 125

// WebSocket parses one direction of a websocket. The zero value is at the start of a frame.
type WebSocket struct {
	head      [14]byte
	headBytes int    // number of bytes in head
	left      uint64 // missing bytes of the payload, once head is complete
}

// Next parses p up to the end of the current frame. It returns the number of parsed bytes, and whether the frame ends
// after them.
func (w *WebSocket) Next(p []byte) (n int, end bool) {
	head, payload, end := w.Split(p)
	return head + len(payload), end
}

// Split is like Next. The parsed bytes are head bytes of the frame's header and the following payload, a part of p.
func (w *WebSocket) Split(p []byte) (head int, payload []byte, end bool) {
	for w.headBytes < w.headLen() {
		if head == len(p) {
			return head, nil, false
		}
		w.head[w.headBytes] = p[head]
		w.headBytes++
		head++
		if w.headBytes == w.headLen() {
			w.left = w.payload()
		}
	}
	n := min(w.left, uint64(len(p)-head))
	w.left -= n
	payload = p[head : head+int(n)]
	if w.left > 0 {
		return head, payload, false
	}
	w.headBytes = 0
	return head, payload, true
}

// headLen returns the length of the header, as far as the bytes in head determine it.
func (w *WebSocket) headLen() int {
	if w.headBytes < 2 {
		return 2
	}
	n := 2
	switch w.head[1] & 0x7f {
	case 126:
		n += 2
	case 127:
		n += 8
	}
	if w.head[1]&0x80 != 0 {
		n += 4 // masking key
	}
	return n
}

func (w *WebSocket) payload() uint64 {
	switch l := w.head[1] & 0x7f; l {
	case 126:
		return uint64(binary.BigEndian.Uint16(w.head[2:]))
	case 127:
		return binary.BigEndian.Uint64(w.head[2:])
	default:
		return uint64(l)
	}
}

// Between reports whether the next byte starts a frame.
func (w *WebSocket) Between() bool { return w.headBytes == 0 }

// Opcode returns the opcode of the current frame, or between frames of the last one.
func (w *WebSocket) Opcode() byte { return w.head[0] & 0x0f }

// IsFinal reports whether the frame of Opcode ends its message.
func (w *WebSocket) IsFinal() bool { return w.head[0]&0x80 != 0 }

// IsPlain reports whether all parsers read the header of the frame of Opcode alike. Such a header has no bit of an
// extension, and its length has no sign. The header must be complete.
func (w *WebSocket) IsPlain() bool {
	return w.head[0]&0x70 == 0 && (w.head[1]&0x7f != 127 || w.head[2]&0x80 == 0)
}

// Mask returns the masking key of the frame of Opcode, whose header is complete. It returns false if the frame is not
// masked.
func (w *WebSocket) Mask() (key [4]byte, ok bool) {
	if w.head[1]&0x80 == 0 {
		return key, false
	}
	at := 2
	switch w.head[1] & 0x7f {
	case 126:
		at += 2
	case 127:
		at += 8
	}
	copy(key[:], w.head[at:])
	return key, true
}

// AppendMessage appends a server's message in one frame.
func AppendMessage(b []byte, opcode byte, payload []byte) []byte {
	b = append(b, 0x80|opcode)
	switch l := len(payload); {
	case l < 126:
		b = append(b, byte(l))
	case l < 1<<16:
		b = binary.BigEndian.AppendUint16(append(b, 126), uint16(l))
	default:
		b = binary.BigEndian.AppendUint64(append(b, 127), uint64(l))
	}
	return append(b, payload...)
}

// Control encodes a control frame of a server. payload must have at most MaxControl bytes.
func Control(opcode byte, payload []byte) []byte {
	return append([]byte{0x80 | opcode, byte(len(payload))}, payload...)
}

// ControlPayload returns the unmasked payload of a complete control frame.
func ControlPayload(frame []byte) []byte {
	if len(frame) < 2 {
		return nil
	}
	masked, l := frame[1]&0x80 != 0, int(frame[1]&0x7f)
	body := frame[2:]
	if !masked {
		return body[:min(l, len(body))]
	}
	if len(body) < 4 {
		return nil
	}
	mask, body := body[:4], body[4:]
	out := make([]byte, min(l, len(body)))
	for i := range out {
		out[i] = body[i] ^ mask[i%4]
	}
	return out
}

// SPDY parses one direction of a SPDY/3.1 connection. The zero value is at the start of a frame.
type SPDY struct {
	head      [8]byte
	headBytes int
	left      uint32
}

const spdyPing = 6

// Next is like WebSocket.Next.
func (s *SPDY) Next(p []byte) (n int, end bool) {
	head, payload, end := s.Split(p)
	return head + len(payload), end
}

// Split is like WebSocket.Split.
func (s *SPDY) Split(p []byte) (head int, payload []byte, end bool) {
	if s.headBytes < len(s.head) {
		head = copy(s.head[s.headBytes:], p)
		if s.headBytes += head; s.headBytes < len(s.head) {
			return head, nil, false
		}
		s.left = binary.BigEndian.Uint32(s.head[4:]) & 0xffffff
	}
	n := min(uint64(s.left), uint64(len(p)-head))
	s.left -= uint32(n)
	payload = p[head : head+int(n)]
	if s.left > 0 {
		return head, payload, false
	}
	s.headBytes = 0
	return head, payload, true
}

// Between reports whether the next byte starts a frame.
func (s *SPDY) Between() bool { return s.headBytes == 0 }

// Stream returns the stream of the current DATA frame, or between frames of the last one. It returns false for control
// frames. The frame's header must be complete.
func (s *SPDY) Stream() (id uint32, ok bool) {
	return binary.BigEndian.Uint32(s.head[:]), s.head[0]&0x80 == 0
}

// IsPing reports whether the current frame, or between frames the last one, is a PING.
func (s *SPDY) IsPing() bool {
	return s.head[0]&0x80 != 0 && binary.BigEndian.Uint16(s.head[2:]) == spdyPing
}
