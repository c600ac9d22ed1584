package decode

import (
	"encoding/base64"
	"fmt"
	"slices"
	"strings"

	"github.com/clusterpass/clusterpass/websocket-bridge/channels"
	"github.com/clusterpass/clusterpass/websocket-bridge/frames"
)

// NewWebSocket returns a Decoder for one of channels.Protocols, or for "".
func NewWebSocket(protocol string, o Options, sink Sink) (Decoder, error) {
	if protocol != "" && !slices.Contains(channels.Protocols, protocol) {
		return nil, fmt.Errorf("the websocket protocol %.64q is not supported", protocol)
	}
	return newWebSocket(protocol, o, sink, false), nil
}

func newWebSocket(protocol string, o Options, sink Sink, isSingle bool) *webSocket {
	isBase64 := channels.IsBase64(protocol)
	return &webSocket{
		sink: sink, options: o, protocol: protocol, isBase64: isBase64,
		in:  messages{isFromClient: true, isSingle: isSingle, isBase64: isBase64, channel: None},
		out: messages{isBase64: isBase64, channel: None},
	}
}

type webSocket struct {
	sink     Sink
	options  Options
	protocol string
	isBase64 bool
	in, out  messages
	sizes    sizes
	verdict  verdict
}

func (w *webSocket) ForMember() Decoder { return newWebSocket(w.protocol, w.options, w.sink, true) }

func (w *webSocket) FromClient(p []byte) error {
	ignores := func(channel int) bool {
		return channel != channels.Resize && (channel != channels.Stdin || w.options.WithoutInput)
	}
	emit := func(channel int, p []byte) error {
		if channel == channels.Resize {
			return w.sizes.add(p, w.sink.Resize)
		}
		return w.sink.Input(p)
	}
	_, err := decodeFrames(&w.in.frame, p, func(payload []byte, end bool) error {
		return w.in.add(payload, end, ignores, emit)
	})
	return err
}

func (w *webSocket) FromMember(p []byte) (n int, err error) {
	ignores := func(channel int) bool { return channel == channels.Close }
	emit := func(channel int, p []byte) error {
		switch channel {
		case channels.Stdout, channels.Stderr:
			return w.sink.Output(channel, p)
		case channels.Error:
			w.verdict.add(p)
			return nil
		}
		return errChannel
	}
	return decodeFrames(&w.out.frame, p, func(payload []byte, end bool) error {
		return w.out.add(payload, end, ignores, emit)
	})
}

func (w *webSocket) Rest(p []byte) int {
	if w.IsBetween() {
		return 0
	}
	n, _ := w.out.frame.Next(p)
	return n
}

func (w *webSocket) IsBetween() bool { return w.out.frame.Between() }

func (w *webSocket) Status() []byte { return w.verdict.text }

// internalError is the code of a close frame of a server that cannot continue (RFC 6455, section 7.4.1).
const internalError = 1011

func (w *webSocket) Farewell(channel int, message string, st []byte) []byte {
	if !channels.HasStatus(w.protocol) {
		st = []byte(message)
	}
	var out []byte
	if channel != None {
		out = w.message(out, channel, []byte(message))
	}
	out = w.message(out, channels.Error, st)
	reason := append([]byte{internalError >> 8, internalError & 0xff}, strings.TrimSpace(message)...)
	return append(out, frames.Control(frames.Close, reason[:min(len(reason), frames.MaxControl)])...)
}

func (w *webSocket) message(b []byte, channel int, p []byte) []byte {
	content, opcode := append([]byte{byte(channel)}, p...), byte(frames.Binary)
	if w.isBase64 {
		content, opcode = base64.StdEncoding.AppendEncode([]byte{'0' + byte(channel)}, p), frames.Text
	}
	return frames.AppendMessage(b, opcode, content)
}

// messages decodes the messages of one direction.
type messages struct {
	isFromClient, isSingle, isBase64 bool

	frame   frames.WebSocket
	offset  int // bytes of the current frame's payload
	isOpen  bool
	channel int // channel of the current message; None before its first byte
	coded   base64Text
	plain   []byte // for unmasked bytes
}

// maxPlain bounds the memory for unmasked bytes.
const maxPlain = 16 << 10

func (m *messages) add(
	p []byte, end bool, ignores func(channel int) bool, emit func(channel int, p []byte) error,
) error {
	key, isMasked := m.frame.Mask()
	if !m.frame.IsPlain() || isMasked != m.isFromClient {
		return errFrame
	}
	op := m.frame.Opcode()
	if op == frames.Close || op == frames.Ping || op == frames.Pong {
		return nil
	}
	if m.offset == 0 {
		if err := m.beginFrame(op); err != nil {
			return err
		}
	}
	for len(p) > 0 {
		piece := p[:min(len(p), maxPlain)]
		p = p[len(piece):]
		at := m.offset
		m.offset += len(piece)
		if m.channel >= 0 && ignores(m.channel) {
			continue
		}
		if isMasked {
			piece = m.unmask(piece, key, at)
		}
		if err := m.addPlain(piece, ignores, emit); err != nil {
			return err
		}
	}
	if !end {
		return nil
	}
	m.offset = 0
	if !m.frame.IsFinal() {
		return nil
	}
	m.isOpen, m.channel = false, None
	return m.coded.end()
}

func (m *messages) beginFrame(op byte) error {
	isContinuation := op == frames.Continuation
	if op > frames.Binary || isContinuation != m.isOpen || m.isSingle && !m.frame.IsFinal() {
		return errFrame
	}
	m.isOpen = true
	return nil
}

func (m *messages) unmask(p []byte, key [4]byte, offset int) []byte {
	m.plain = append(m.plain[:0], p...)
	for i := range m.plain {
		m.plain[i] ^= key[(offset+i)%len(key)]
	}
	return m.plain
}

func (m *messages) addPlain(
	p []byte, ignores func(channel int) bool, emit func(channel int, p []byte) error,
) error {
	if m.channel == None {
		m.channel = int(p[0])
		if m.isBase64 {
			m.channel = int(p[0] - '0')
		}
		p = p[1:]
	}
	if len(p) == 0 || ignores(m.channel) {
		return nil
	}
	if m.isBase64 {
		var err error
		if p, err = m.coded.decode(p); err != nil || len(p) == 0 {
			return err
		}
	}
	return emit(m.channel, p)
}

// base64Text decodes one text in pieces.
type base64Text struct {
	text    []byte // undecoded characters, and during decode those of the piece
	isEnded bool   // padding ended the text
}

func (b *base64Text) decode(p []byte) ([]byte, error) {
	for _, c := range p {
		if c != '\r' && c != '\n' { // Go's decoder ignores them, too
			b.text = append(b.text, c)
		}
	}
	whole := len(b.text) / 4 * 4
	if b.isEnded && len(b.text) > 0 {
		return nil, errBase64
	}
	out := make([]byte, base64.StdEncoding.DecodedLen(whole))
	n, err := base64.StdEncoding.Decode(out, b.text[:whole])
	if err != nil {
		return nil, errBase64
	}
	b.isEnded = n < len(out)
	b.text = append(b.text[:0], b.text[whole:]...)
	return out[:n], nil
}

func (b *base64Text) end() error {
	if len(b.text) > 0 {
		return errBase64
	}
	b.isEnded = false
	return nil
}
