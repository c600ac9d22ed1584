package decode

import (
	"bytes"
	"encoding/base64"
	"encoding/binary"
	"fmt"
	"math/rand/v2"
	"net/http"
	"slices"
	"strings"
	"testing"

	"github.com/moby/spdystream/spdy"

	"github.com/clusterpass/clusterpass/websocket-bridge/channels"
	"github.com/clusterpass/clusterpass/websocket-bridge/frames"
)

// content is a Sink that joins the bytes of each channel, and lists the sizes.
type content struct {
	stdin, stdout, stderr bytes.Buffer
	sizes                 []string
}

func (c *content) Input(p []byte) error { c.stdin.Write(p); return nil }

func (c *content) Output(channel int, p []byte) error {
	map[int]*bytes.Buffer{channels.Stdout: &c.stdout, channels.Stderr: &c.stderr}[channel].Write(p)
	return nil
}

func (c *content) Resize(width, height uint16) error {
	c.sizes = append(c.sizes, fmt.Sprintf("%dx%d", width, height))
	return nil
}

func (c *content) String() string {
	return fmt.Sprintf("in %q, out %q, err %q, sizes %v", c.stdin.Bytes(), c.stdout.Bytes(), c.stderr.Bytes(), c.sizes)
}

// traffic is what a session sends in each direction, and its content.
type traffic struct {
	fromClient, fromMember []byte
	content                content
	status                 string
}

// session has what a test sends on the channels of a session, in any dialect.
type session interface {
	input(p []byte)
	output(channel int, p []byte)
	noise() // bytes without content
}

// newTraffic fills a session with random content. It returns the content that a decoder must find.
func newTraffic(random *rand.Rand, s session) (c content, st string) {
	for range random.IntN(20) {
		p := make([]byte, random.IntN(400))
		for i := range p {
			p[i] = byte(random.Uint32())
		}
		switch random.IntN(6) {
		case 0:
			c.stdin.Write(p)
			s.input(append([]byte{channels.Stdin}, p...))
		case 1:
			c.stdout.Write(p)
			s.output(channels.Stdout, p)
		case 2:
			c.stderr.Write(p)
			s.output(channels.Stderr, p)
		case 3:
			st += "status"
			s.output(channels.Error, []byte("status"))
		case 4:
			c.sizes = append(c.sizes, fmt.Sprintf("%dx%d", len(p), len(p)+1))
			s.input(append([]byte{channels.Resize}, fmt.Sprintf(`{"Width":%d,"Height":%d}`, len(p), len(p)+1)...))
		case 5:
			s.noise()
		}
	}
	return c, st
}

// webSocketTraffic writes the messages of a session to a websocket.
type webSocketTraffic struct {
	traffic
	random   *rand.Rand
	protocol string
	isSingle bool // each of the client's messages is one frame
}

func newWebSocketTraffic(random *rand.Rand, protocol string, isSingle bool) traffic {
	w := &webSocketTraffic{random: random, protocol: protocol, isSingle: isSingle}
	w.content, w.status = newTraffic(random, w)
	return w.traffic
}

func (w *webSocketTraffic) message(channel byte, p []byte) (opcode byte, m []byte) {
	if strings.Contains(w.protocol, "base64") {
		return frames.Text, append([]byte{'0' + channel}, base64.StdEncoding.EncodeToString(p)...)
	}
	return frames.Binary, append([]byte{channel}, p...)
}

func (w *webSocketTraffic) input(p []byte) {
	opcode, m := w.message(p[0], p[1:])
	w.fromClient = w.append(w.fromClient, true, w.isSingle, opcode, m)
}

func (w *webSocketTraffic) output(channel int, p []byte) {
	opcode, m := w.message(byte(channel), p)
	w.fromMember = w.append(w.fromMember, false, false, opcode, m)
}

func (w *webSocketTraffic) noise() {
	w.fromClient = w.append(w.fromClient, true, true, frames.Pong, []byte("pong"))
	w.fromMember = w.append(w.fromMember, false, true, frames.Ping, []byte("ping"))
	w.fromClient = w.append(w.fromClient, true, true, frames.Binary, nil)
	if !strings.Contains(w.protocol, "base64") {
		w.fromClient = w.append(w.fromClient, true, true, frames.Binary, []byte{255, 0})
		w.fromMember = w.append(w.fromMember, false, true, frames.Binary, []byte{1})
	}
}

// append splits a message into several frames, with control frames between them.
func (w *webSocketTraffic) append(b []byte, isMasked, isSingle bool, opcode byte, m []byte) []byte {
	for {
		n := len(m)
		if !isSingle && w.random.IntN(3) == 0 {
			n = w.random.IntN(len(m) + 1)
		}
		isLast := n == len(m)
		b = appendFrame(b, w.random, isMasked, isLast, opcode, m[:n])
		if isLast {
			return b
		}
		if w.random.IntN(2) == 0 {
			b = appendFrame(b, w.random, isMasked, true, frames.Ping, []byte("between"))
		}
		m, opcode = m[n:], frames.Continuation
	}
}

func appendFrame(b []byte, random *rand.Rand, isMasked, isLast bool, opcode byte, payload []byte) []byte {
	start := len(b)
	b = frames.AppendMessage(b, opcode, payload)
	if !isLast {
		b[start] &^= 0x80
	}
	if !isMasked {
		return b
	}
	head := len(b) - start - len(payload)
	b = b[:start+head]
	b[start+1] |= 0x80
	var key [4]byte
	binary.BigEndian.PutUint32(key[:], random.Uint32())
	b = append(b, key[:]...)
	for i, c := range payload {
		b = append(b, c^key[i%4])
	}
	return b
}

// spdyTraffic writes the streams of a session with the library that kubectl and kubelets use.
type spdyTraffic struct {
	traffic
	client, member *spdy.Framer
	toMember       bytes.Buffer
	toClient       bytes.Buffer
	ids            map[int]spdy.StreamId
}

func newSPDYTraffic(tb testing.TB, random *rand.Rand) traffic {
	tb.Helper()
	s := &spdyTraffic{ids: map[int]spdy.StreamId{}}
	var err, err2 error
	s.client, err = spdy.NewFramer(&s.toMember, nil)
	s.member, err2 = spdy.NewFramer(&s.toClient, nil)
	if err != nil || err2 != nil {
		tb.Fatal(err, err2)
	}
	for i, name := range []string{"error", "stdin", "stdout", "stderr", "resize"} {
		id := spdy.StreamId(2*i + 1)
		s.ids[slices.Index(channels.StreamTypes[:], name)] = id
		_ = s.client.WriteFrame(&spdy.SynStreamFrame{StreamId: id, Headers: http.Header{"Streamtype": {name}}})
		_ = s.member.WriteFrame(&spdy.SynReplyFrame{StreamId: id, Headers: http.Header{}})
		if random.IntN(2) == 0 {
			s.noise()
		}
	}
	s.content, s.status = newTraffic(random, s)
	s.fromClient, s.fromMember = s.toMember.Bytes(), s.toClient.Bytes()
	return s.traffic
}

func (s *spdyTraffic) input(p []byte) {
	_ = s.client.WriteFrame(&spdy.DataFrame{StreamId: s.ids[int(p[0])], Data: p[1:]})
}

func (s *spdyTraffic) output(channel int, p []byte) {
	_ = s.member.WriteFrame(&spdy.DataFrame{StreamId: s.ids[channel], Data: p})
}

func (s *spdyTraffic) noise() {
	_ = s.client.WriteFrame(&spdy.PingFrame{Id: 1})
	_ = s.client.WriteFrame(&spdy.HeadersFrame{StreamId: 1, Headers: http.Header{"A": {"compressed with the rest"}}})
	_ = s.client.WriteFrame(&spdy.WindowUpdateFrame{StreamId: 1, DeltaWindowSize: 5})
	_ = s.client.WriteFrame(&spdy.DataFrame{StreamId: 99, Data: []byte("a stream that does not exist")})
	_ = s.member.WriteFrame(&spdy.SettingsFrame{FlagIdValues: []spdy.SettingsFlagIdValue{{Id: 1, Value: 1}}})
	_ = s.member.WriteFrame(&spdy.HeadersFrame{StreamId: 1, Headers: http.Header{"A": {strings.Repeat("long", 9000)}}})
}

// pieces splits p at random.
func pieces(random *rand.Rand, p []byte) [][]byte {
	var out [][]byte
	for len(p) > 0 {
		n := 1 + random.IntN(min(len(p), 1+random.IntN(len(p))))
		out = append(out, p[:n])
		p = p[n:]
	}
	return out
}
