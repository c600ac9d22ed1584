package decode

import (
	"bytes"
	"errors"
	"io"
	"math/rand/v2"
	"net/http"
	"strings"
	"testing"

	"github.com/moby/spdystream/spdy"

	"github.com/clusterpass/clusterpass/websocket-bridge/channels"
	"github.com/clusterpass/clusterpass/websocket-bridge/frames"
)

// dialects are all dialects, with the decoder and the traffic of a random session.
var dialects = map[string]func(tb testing.TB, random *rand.Rand, sink Sink) (Decoder, traffic){
	"SPDY": func(tb testing.TB, random *rand.Rand, sink Sink) (Decoder, traffic) {
		return NewSPDY(Options{}, sink), newSPDYTraffic(tb, random)
	},
	"without a protocol":  webSocketDialect(""),
	channels.Protocols[0]: webSocketDialect(channels.Protocols[0]),
	channels.Protocols[1]: webSocketDialect(channels.Protocols[1]),
	channels.Protocols[2]: webSocketDialect(channels.Protocols[2]),
	channels.Protocols[3]: webSocketDialect(channels.Protocols[3]),
	channels.Protocols[4]: webSocketDialect(channels.Protocols[4]),
}

func webSocketDialect(protocol string) func(tb testing.TB, random *rand.Rand, sink Sink) (Decoder, traffic) {
	return func(tb testing.TB, random *rand.Rand, sink Sink) (Decoder, traffic) {
		tb.Helper()
		d, err := NewWebSocket(protocol, Options{}, sink)
		if err != nil {
			tb.Fatal(err)
		}
		isForMember := random.IntN(2) == 0
		if isForMember {
			d = d.ForMember()
		}
		return d, newWebSocketTraffic(random, protocol, isForMember)
	}
}

// FuzzContent fails if a recording would not contain exactly what a session transferred, in any dialect and with any
// split of the connection.
func FuzzContent(f *testing.F) {
	for seed := range uint64(100) {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, seed uint64) {
		for name, dialect := range dialects {
			random := rand.New(rand.NewPCG(seed, 1))
			var got content
			d, sent := dialect(t, random, &got)
			for _, p := range pieces(random, sent.fromClient) {
				if err := d.FromClient(p); err != nil {
					t.Fatalf("%s: %v", name, err)
				}
			}
			for _, p := range pieces(random, sent.fromMember) {
				if n, err := d.FromMember(p); err != nil || n != len(p) {
					t.Fatalf("%s: %d of %d bytes, %v", name, n, len(p), err)
				}
			}
			if got.String() != sent.content.String() || string(d.Status()) != sent.status || !d.IsBetween() {
				t.Errorf("%s: recorded %s, status %q, between frames %v\nwant %s, status %q", name, &got, d.Status(),
					d.IsBetween(), &sent.content, sent.status)
			}
		}
	})
}

// FuzzSplits fails if a split changes the content of arbitrary bytes, or if they cause a panic.
func FuzzSplits(f *testing.F) {
	f.Add([]byte("\x82\x03\x01ab\x82\x81\x00\x00\x00\x00\x01"), uint64(1))
	f.Add([]byte("\x80\x03\x00\x01\x00\x00\x00\x0a\x00\x00\x00\x01\x00\x00\x00\x00\x00\x00"), uint64(2))
	f.Fuzz(func(t *testing.T, data []byte, seed uint64) {
		for name, dialect := range dialects {
			var results [2]string
			for i := range results {
				var got content
				random := rand.New(rand.NewPCG(seed, 1))
				d, _ := dialect(t, random, &got)
				split := [][]byte{data}
				if i > 0 {
					split = pieces(random, data)
				}
				results[i] = decodeAll(t, d, split, &got)
			}
			if results[0] != results[1] {
				t.Errorf("%s: whole %s\nin pieces %s", name, results[0], results[1])
			}
		}
	})
}

// decodeAll sends the same bytes in both directions, until an error.
func decodeAll(t *testing.T, d Decoder, split [][]byte, got *content) string {
	t.Helper()
	result := ""
	for _, p := range split {
		if err := d.FromClient(p); err != nil {
			result += "client: " + err.Error() + "; "
			break
		}
	}
	for _, p := range split {
		n, err := d.FromMember(p)
		if n > len(p) || err == nil && n != len(p) {
			t.Fatalf("%d of %d bytes", n, len(p))
		}
		if err != nil {
			result += "member: " + err.Error() + "; "
			break
		}
	}
	return result + got.String() + string(d.Status())
}

// TestMisleadingBytes fails if a client or a member could transfer content that the recording lacks, because the
// receiver understands the bytes differently.
func TestMisleadingBytes(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 1))
	frame := func(isMasked, isLast bool, opcode byte, payload string) string {
		return string(appendFrame(nil, random, isMasked, isLast, opcode, []byte(payload)))
	}
	partial := frame(false, false, frames.Binary, "\x01a")
	opened := spdyFrame(t, &spdy.SynStreamFrame{StreamId: 1, Headers: http.Header{"Streamtype": {"stdout"}}})
	ping := spdyFrame(t, &spdy.PingFrame{Id: 1})
	longPing := strings.Replace(ping, "\x04", "\x0c", 1) + "\x00\x00\x00\x00\x00\x00\x00\x00"
	tests := map[string]struct{ fromClient, fromMember string }{
		"websocket: compressed":                    {fromMember: "\xc2\x03\x01ab"},
		"websocket: length with a sign":            {fromMember: "\x82\x7f\x80\x00\x00\x00\x00\x00\x00\x02\x01a"},
		"websocket: masked by the member":          {fromMember: frame(true, true, frames.Binary, "\x01ab")},
		"websocket: not masked by the client":      {fromClient: frame(false, true, frames.Binary, "\x00ab")},
		"websocket: unknown opcode":                {fromClient: frame(true, true, 3, "\x00ab")},
		"websocket: unknown control opcode":        {fromClient: frame(true, true, 11, "\x00ab")},
		"websocket: continuation of nothing":       {fromMember: frame(false, true, frames.Continuation, "\x01ab")},
		"websocket: message within a message":      {fromMember: partial + partial},
		"websocket: several frames for the member": {fromClient: frame(true, false, frames.Binary, "\x00ab")},
		"websocket: unknown channel":               {fromMember: frame(false, true, frames.Binary, "\x07ab")},
		"websocket: input from the member":         {fromMember: frame(false, true, frames.Binary, "\x00ab")},

		"base64: no base64":     {fromMember: frame(false, true, frames.Text, "1a!!a")},
		"base64: incomplete":    {fromMember: frame(false, true, frames.Text, "1YWJ")},
		"base64: after padding": {fromMember: frame(false, true, frames.Text, "1YQ==YQ==")},

		"SPDY: unknown stream":        {fromMember: "\x00\x00\x00\x01\x00\x00\x00\x02ab"},
		"SPDY: content after a frame": {fromClient: longPing},
		"SPDY: id twice":              {fromClient: opened + opened},
		"SPDY: even id": {fromClient: spdyFrame(t,
			&spdy.SynStreamFrame{StreamId: 2, Headers: http.Header{"Streamtype": {"stdout"}}})},
		"SPDY: unknown type": {fromClient: spdyFrame(t,
			&spdy.SynStreamFrame{StreamId: 1, Headers: http.Header{"Streamtype": {"stdall"}}})},
		"SPDY: long header": {fromClient: spdyFrame(t,
			&spdy.SynStreamFrame{StreamId: 1, Headers: http.Header{
				"Streamtype": {"stdout"}, "X": {strings.Repeat("\x00", maxHeaderField+1)},
			}})},
		"SPDY: unknown control frame": {fromClient: "\x80\x03\x00\x63\x00\x00\x00\x00"},
		"SPDY: huge control frame":    {fromClient: "\x80\x03\x00\x08\x00\x10\x00\x00" + strings.Repeat("x", maxControl)},
		"SPDY: no compressed header":  {fromClient: "\x80\x03\x00\x01\x00\x00\x00\x05\x00\x00\x00\x01\x00"},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			var got content
			d := decoderNamed(t, name, &got)
			err := d.FromClient([]byte(tt.fromClient))
			if err == nil {
				_, err = d.FromMember([]byte(tt.fromMember))
			}
			if err == nil {
				t.Errorf("recorded %s", &got)
			}
		})
	}
}

func decoderNamed(t *testing.T, name string, sink Sink) Decoder {
	t.Helper()
	if strings.HasPrefix(name, "SPDY") {
		return NewSPDY(Options{}, sink)
	}
	protocol := "v5.channel.k8s.io"
	if strings.HasPrefix(name, "base64") {
		protocol = "base64.channel.k8s.io"
	}
	d, err := NewWebSocket(protocol, Options{}, sink)
	if err != nil {
		t.Fatal(err)
	}
	return d.ForMember()
}

func spdyFrame(t *testing.T, f spdy.Frame) string {
	t.Helper()
	var out bytes.Buffer
	framer, err := spdy.NewFramer(&out, nil)
	if err != nil {
		t.Fatal(err)
	}
	if err := framer.WriteFrame(f); err != nil {
		t.Fatal(err)
	}
	return out.String()
}

// failing is a Sink that fails at the first output that contains a text.
type failing struct {
	content
	text string
}

func (f *failing) Output(channel int, p []byte) error {
	if strings.Contains(string(p), f.text) {
		return errors.New("the disk is full")
	}
	return f.content.Output(channel, p)
}

// TestCutAtAFrame fails if output reaches the client after the recorder failed, or if the farewell would be in the
// middle of a frame.
func TestCutAtAFrame(t *testing.T) {
	message := func(p string) string { return string(frames.AppendMessage(nil, frames.Binary, []byte("\x01"+p))) }
	for name, tt := range map[string]struct {
		pieces      []string
		wantCut     int
		wantBetween bool
		wantRest    int // part of the bytes ab\x82
	}{
		"whole frames":                {[]string{message("a") + message("lost")}, 4, true, 0},
		"the first frame":             {[]string{message("lost")}, 0, true, 0},
		"a frame that began before":   {[]string{message("lost")[:2], message("lost")[2:] + message("b")}, 5, true, 0},
		"a frame that goes on":        {[]string{message("lostx")[:3], message("lostx")[3:7]}, 4, false, 1},
		"a frame that has just begun": {[]string{message("a") + message("lostx")[:7]}, 4, true, 0},
	} {
		t.Run(name, func(t *testing.T) {
			sink := &failing{text: "lost"}
			d, err := NewWebSocket("v4.channel.k8s.io", Options{}, sink)
			if err != nil {
				t.Fatal(err)
			}
			for i, p := range tt.pieces {
				n, err := d.FromMember([]byte(p))
				if isLast := i == len(tt.pieces)-1; isLast != (err != nil) || isLast && n != tt.wantCut {
					t.Errorf("piece %d: %d bytes, %v; want %d", i, n, err, tt.wantCut)
				}
			}
			if d.IsBetween() != tt.wantBetween || d.Rest([]byte("ab\x82")) != tt.wantRest {
				t.Errorf("between frames: %v", d.IsBetween())
			}
		})
	}
}

// TestFarewells fails if a client could not read why its session ended.
func TestFarewells(t *testing.T) {
	const st = `{"status":"Failure"}`
	for protocol, want := range map[string]string{
		"v5.channel.k8s.io":        `out "", err "bye", status ` + st,
		"v4.base64.channel.k8s.io": `out "", err "bye", status ` + st,
		"channel.k8s.io":           `out "", err "bye", status bye`, // before v4, it has text
		"base64.channel.k8s.io":    `out "", err "bye", status bye`,
	} {
		var ignored, got content
		d, err := NewWebSocket(protocol, Options{}, &ignored)
		client, err2 := NewWebSocket(protocol, Options{}, &got)
		if err := errors.Join(err, err2); err != nil {
			t.Fatal(err)
		}
		checkFarewell(t, protocol, client, &got, d.Farewell(channels.Stderr, "bye", []byte(st)), want)
	}
	var ignored, got content
	opens := spdyFrame(t, &spdy.SynStreamFrame{StreamId: 1, Headers: http.Header{"Streamtype": {"error"}}})
	d, client := NewSPDY(Options{}, &ignored), NewSPDY(Options{}, &got)
	for _, decoder := range []Decoder{d, client} {
		if err := decoder.FromClient([]byte(opens)); err != nil {
			t.Fatal(err)
		}
	}
	bye := d.Farewell(channels.Stderr, "bye", []byte(st))
	checkFarewell(t, "SPDY", client, &got, bye, `out "", err "", status `+st)
	framer, err := spdy.NewFramer(io.Discard, bytes.NewReader(bye))
	if err != nil {
		t.Fatal(err)
	}
	if f, err := framer.ReadFrame(); err != nil || f.(*spdy.DataFrame).Flags != spdy.DataFlagFin {
		t.Errorf("SPDY: %+v, %v; want the end of the stream", f, err)
	}
}

func checkFarewell(t *testing.T, name string, client Decoder, got *content, bye []byte, want string) {
	t.Helper()
	if n, err := client.FromMember(bye); err != nil || n != len(bye) {
		t.Errorf("%s: %d of %d bytes, %v", name, n, len(bye), err)
	}
	result := strings.TrimPrefix(got.String(), `in "", `)
	result, _, _ = strings.Cut(result, ", sizes")
	if result += ", status " + string(client.Status()); result != want {
		t.Errorf("%s: %s\nwant %s", name, result, want)
	}
}

// TestSizes fails if a terminal's size is lost, or if a client can make the bridge keep endless text.
func TestSizes(t *testing.T) {
	for name, tt := range map[string]struct {
		text string
		want int
	}{
		"several in one piece":  {`{"Width":1,"Height":2}{"Width":3,"Height":4}` + "\n", 2},
		"another case":          {`{"width":1,"height":2}`, 1},
		"incomplete":            {`{"Width":1,"Height":2}{"Width":`, 1},
		"no size":               {`{"Width":1,"Height":2}[]{"Width":3,"Height":4}`, 1},
		"endless":               {`{"Width":1,"Height":2}{"` + strings.Repeat("x", 2*maxSize) + `":1}{"Width":3}`, 1},
		"many":                  {strings.Repeat(`{"Width":1,"Height":2}`, 1000), 1000},
		"a number out of range": {`{"Width":70000,"Height":2}`, 0},
	} {
		for _, n := range []int{1, 7, len(tt.text)} {
			var s sizes
			got := 0
			for p := []byte(tt.text); len(p) > 0; {
				piece := p[:min(n, len(p))]
				p = p[len(piece):]
				if err := s.add(piece, func(_, _ uint16) error { got++; return nil }); err != nil {
					t.Fatal(err)
				}
			}
			if got != tt.want || len(s.text) > 2*maxSize {
				t.Errorf("%s in pieces of %d: %d sizes and %d bytes, want %d sizes", name, n, got, len(s.text), tt.want)
			}
		}
	}
}

// TestIgnoredInput fails if passwords are recorded although the policy does not ask for input.
func TestIgnoredInput(t *testing.T) {
	for name, dialect := range dialects {
		random := rand.New(rand.NewPCG(3, 1))
		var all content
		_, sent := dialect(t, random, &all)
		var got content
		d := NewSPDY(Options{WithoutInput: true}, &got)
		if name != "SPDY" {
			var err error
			protocol := strings.TrimPrefix(name, "without a protocol")
			if d, err = NewWebSocket(protocol, Options{WithoutInput: true}, &got); err != nil {
				t.Fatal(err)
			}
		}
		if err := d.FromClient(sent.fromClient); err != nil {
			t.Errorf("%s: %v", name, err)
		}
		if len(sent.content.sizes) == 0 || sent.content.stdin.Len() == 0 || got.stdin.Len() > 0 ||
			len(got.sizes) != len(sent.content.sizes) {
			t.Errorf("%s: recorded %s of %s", name, &got, &sent.content)
		}
	}
}

// BenchmarkFromMember measures what a recording adds to each 32 KiB of output before they are stored.
func BenchmarkFromMember(b *testing.B) {
	message := frames.AppendMessage(nil, frames.Binary, append([]byte{1}, make([]byte, 32<<10)...))
	d, err := NewWebSocket("v5.channel.k8s.io", Options{}, discard{})
	if err != nil {
		b.Fatal(err)
	}
	b.SetBytes(int64(len(message)))
	b.ReportAllocs()
	for b.Loop() {
		if _, err := d.FromMember(message); err != nil {
			b.Fatal(err)
		}
	}
}

type discard struct{}

func (discard) Output(int, []byte) error { return nil }
func (discard) Input([]byte) error       { return nil }
func (discard) Resize(_, _ uint16) error { return nil }
