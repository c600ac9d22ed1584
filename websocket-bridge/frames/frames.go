// Package frames follows the frames of upgraded connections without taking them apart: where one ends, and whether it
// carries data. Codecs only; no sockets. What comes may be cut anywhere, and may be nonsense: then nonsense follows, and
// nothing is kept but a header.
package frames

import "encoding/binary"

// Opcodes of websocket frames (RFC 6455, section 5.2).
const (
	Close = 0x8
	Ping  = 0x9
	Pong  = 0xA
)

// WebSocket follows one direction of a websocket. The zero value is at the beginning of a frame.
type WebSocket struct {
	head [14]byte
	have int    // bytes of head that came
	left uint64 // bytes of the payload that are to come, once head is whole
}

// Next takes the bytes of p that belong to the frame that is open, or that p begins; end says whether it ends with them.
func (w *WebSocket) Next(p []byte) (n int, end bool) {
	for w.have < w.headLen() {
		if n == len(p) {
			return n, false
		}
		w.head[w.have] = p[n]
		w.have++
		n++
		if w.have == w.headLen() {
			w.left = w.payload()
		}
	}
	take := min(w.left, uint64(len(p)-n))
	w.left -= take
	n += int(take)
	if w.left > 0 {
		return n, false
	}
	w.have = 0
	return n, true
}

// headLen is the length of the header as far as it is known.
func (w *WebSocket) headLen() int {
	if w.have < 2 {
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
		n += 4 // the mask
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

// Between reports whether no frame is open.
func (w *WebSocket) Between() bool { return w.have == 0 }

// Opcode is that of the frame that is open, or of the last one.
func (w *WebSocket) Opcode() byte { return w.head[0] & 0x0f }

// Control returns a control frame as servers send it. The payload has at most 125 bytes.
func Control(opcode byte, payload []byte) []byte {
	return append([]byte{0x80 | opcode, byte(len(payload))}, payload...)
}

// ControlPayload returns the payload of a whole control frame, unmasked.
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

// SPDY follows one direction of a SPDY/3.1 connection. The zero value is at the beginning of a frame.
type SPDY struct {
	head [8]byte
	have int
	left uint32
}

const spdyPing = 6

// Next is as WebSocket.Next.
func (s *SPDY) Next(p []byte) (n int, end bool) {
	if s.have < len(s.head) {
		n = copy(s.head[s.have:], p)
		if s.have += n; s.have < len(s.head) {
			return n, false
		}
		s.left = binary.BigEndian.Uint32(s.head[4:]) & 0xffffff
	}
	take := min(uint64(s.left), uint64(len(p)-n))
	s.left -= uint32(take)
	n += int(take)
	if s.left > 0 {
		return n, false
	}
	s.have = 0
	return n, true
}

// Ping reports whether the frame that is open, or the last one, only keeps the connection alive.
func (s *SPDY) Ping() bool {
	return s.head[0]&0x80 != 0 && binary.BigEndian.Uint16(s.head[2:]) == spdyPing
}
