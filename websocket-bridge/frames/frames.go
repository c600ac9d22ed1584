// Package frames finds the ends and the kinds of frames in an upgraded connection, and does no I/O.
//
// Invariants:
//   - Only the header of the current frame is stored, not its payload.
//   - Input may be malformed. The reported ends are then meaningless, but parsing always advances and never panics.
package frames

import "encoding/binary"

// Opcodes of websocket frames (RFC 6455, section 5.2).
const (
	Close = 0x8
	Ping  = 0x9
	Pong  = 0xA
)

// WebSocket parses one direction of a websocket. The zero value is at the start of a frame.
type WebSocket struct {
	head      [14]byte
	headBytes int    // number of bytes in head
	left      uint64 // missing bytes of the payload, once head is complete
}

// Next parses p up to the end of the current frame. It returns the number of parsed bytes, and whether the frame ends
// after them.
func (w *WebSocket) Next(p []byte) (n int, end bool) {
	for w.headBytes < w.headLen() {
		if n == len(p) {
			return n, false
		}
		w.head[w.headBytes] = p[n]
		w.headBytes++
		n++
		if w.headBytes == w.headLen() {
			w.left = w.payload()
		}
	}
	payload := min(w.left, uint64(len(p)-n))
	w.left -= payload
	n += int(payload)
	if w.left > 0 {
		return n, false
	}
	w.headBytes = 0
	return n, true
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

// Control encodes a control frame of a server. payload must have at most 125 bytes.
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
	if s.headBytes < len(s.head) {
		n = copy(s.head[s.headBytes:], p)
		if s.headBytes += n; s.headBytes < len(s.head) {
			return n, false
		}
		s.left = binary.BigEndian.Uint32(s.head[4:]) & 0xffffff
	}
	payload := min(uint64(s.left), uint64(len(p)-n))
	s.left -= uint32(payload)
	n += int(payload)
	if s.left > 0 {
		return n, false
	}
	s.headBytes = 0
	return n, true
}

// IsPing reports whether the current frame, or between frames the last one, is a PING.
func (s *SPDY) IsPing() bool {
	return s.head[0]&0x80 != 0 && binary.BigEndian.Uint16(s.head[2:]) == spdyPing
}
