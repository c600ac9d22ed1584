// Package decode extracts the content of exec and attach sessions from the bytes of their connections. It does no I/O
// and changes no byte. Read Decoder first.
//
// Invariants:
//   - Connections may be split anywhere. The content does not depend on the splits.
//   - Memory is bounded. Only incomplete headers, terminal sizes, text of base64 and the final status are stored.
//   - Bytes that a receiver could interpret differently are an error. So a client cannot hide content.
package decode

import "errors"

// None is no channel.
const None = -1

// Sink receives the content of a session. It must not keep p. Its errors end the decoding.
type Sink interface {
	// Output receives bytes of channels.Stdout or channels.Stderr.
	Output(channel int, p []byte) error
	Input(p []byte) error
	Resize(width, height uint16) error
}

// Options configure a Decoder.
type Options struct {
	// WithoutInput ignores the content of stdin.
	WithoutInput bool
}

// Decoder decodes both directions of one connection after its handshake. One goroutine may call FromClient, and another
// one the other methods.
type Decoder interface {
	// ForMember returns the Decoder for a client whose bytes reach the member unchanged, which replaces this one. Nothing
	// may be decoded before. It refuses websocket messages of several frames from the client, because kube-apiserver reads
	// each frame as a message.
	ForMember() Decoder
	// FromClient decodes bytes from the client.
	FromClient(p []byte) error
	// FromMember decodes bytes for the client. If it fails, the client may receive only the first n bytes of p. They
	// contain the rest of a frame that began before p. Unless IsBetween is true then, more of that frame is missing.
	FromMember(p []byte) (n int, err error)
	// Rest returns how many bytes at the start of p belong to the member's incomplete frame. It decodes nothing.
	Rest(p []byte) int
	// IsBetween reports whether the bytes from the member end with a frame.
	IsBetween() bool
	// Status returns the content of the error channel, which usually is a metav1.Status.
	Status() []byte
	// Farewell returns frames that end the session at the client. They contain a message on an output channel, if the
	// session has that channel, and a metav1.Status.
	Farewell(channel int, message string, status []byte) []byte
}

// maxStatus is the maximum size in bytes of a stored Status. The rest is discarded.
const maxStatus = 64 << 10

// verdict stores the content of the error channel.
type verdict struct{ text []byte }

func (v *verdict) add(p []byte) { v.text = append(v.text, p[:min(len(p), maxStatus-len(v.text))]...) }

// splitter parses the frames of one direction.
type splitter[T any] interface {
	*T
	Split(p []byte) (head int, payload []byte, end bool)
	Next(p []byte) (n int, end bool)
	Between() bool
}

// decodeFrames calls decode with each piece of a payload, and at the end of each frame. It returns what FromMember
// returns.
func decodeFrames[T any, S splitter[T]](s S, p []byte, decode func(payload []byte, end bool) error) (n int, err error) {
	start := -1 // index of the current frame, if it is in p
	for at := 0; at < len(p); {
		if s.Between() {
			start = at
		}
		head, payload, end := s.Split(p[at:])
		at += head + len(payload)
		if len(payload) == 0 && !end {
			continue // only a part of the header
		}
		switch err := decode(payload, end); {
		case err == nil:
		case start >= 0:
			*s = *new(T)
			return start, err
		default:
			if !end {
				rest, _ := s.Next(p[at:])
				at += rest
			}
			return at, err
		}
	}
	return len(p), nil
}

var (
	errChannel = errors.New("the member sent data on an unknown channel")
	errFrame   = errors.New("a websocket frame cannot be understood")
	errBase64  = errors.New("a websocket message is no base64")
)
