package server

import (
	"bytes"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/gorilla/websocket"
	"github.com/moby/spdystream/spdy"
	"k8s.io/streaming/pkg/httpstream"

	"github.com/clusterpass/clusterpass/shared/waittest"
	"github.com/clusterpass/clusterpass/websocket-bridge/text"
)

// flow is data that one side sends while the other does not read.
type flow struct {
	sent   atomic.Int64
	enough chan struct{} // closed when the sender may stop
	sum    chan string   // hash of all that was sent, at the end
}

func newFlow() *flow { return &flow{enough: make(chan struct{}), sum: make(chan string, 1)} }

// send writes numbered lines until enough is closed.
func (f *flow) send(write func([]byte) error) {
	h := sha256.New()
	for n := 0; ; n++ {
		select {
		case <-f.enough:
			f.sum <- hex.EncodeToString(h.Sum(nil))
			return
		default:
		}
		chunk := []byte(strings.Repeat(fmt.Sprintf("%08191d\n", n), 4))
		if err := write(chunk); err != nil {
			f.sum <- err.Error()
			return
		}
		_, _ = h.Write(chunk)
		f.sent.Add(int64(len(chunk)))
	}
}

// kernels is more than the kernel buffers for one flow.
const kernels = 64 << 20

// stalls waits until the sender blocks. It fails if more than most bytes are sent. Most buffered bytes are the
// kernel's.
func (f *flow) stalls(t *testing.T, most int64) {
	t.Helper()
	if !hasStalled(&f.sent, most) {
		t.Fatalf("%d bytes were sent to a side that takes none", f.sent.Load())
	}
}

// hasStalled waits until sent is above 0 and has not grown for two seconds. It returns false as soon as sent is above
// most, or if that does not happen within waittest.Patience.
func hasStalled(sent *atomic.Int64, most int64) bool {
	tick := time.NewTicker(50 * time.Millisecond)
	defer tick.Stop()
	deadline := time.Now().Add(waittest.Patience)
	for last, same := int64(0), 0; same < 40; <-tick.C {
		n := sent.Load()
		if n > most || time.Now().After(deadline) {
			return false
		}
		if same++; n != last || n == 0 {
			last, same = n, 0
		}
	}
	return true
}

// TestSlowSides: on every path of bytes, a side that does not read blocks the other without filling memory. When it
// reads, it receives everything.
func TestSlowSides(t *testing.T) {
	t.Parallel() // it mostly waits
	write := func(w io.Writer) func([]byte) error {
		return func(p []byte) error {
			_, err := w.Write(p)
			if rw, ok := w.(http.ResponseWriter); ok && err == nil {
				err = http.NewResponseController(rw).Flush()
			}
			return err
		}
	}
	channel := func(conn *websocket.Conn, ch byte) func([]byte) error {
		return func(p []byte) error { return conn.WriteMessage(websocket.BinaryMessage, append([]byte{ch}, p...)) }
	}
	// Behaviours of members, each with a flow to the client.
	plain := func(t *testing.T, f *flow) http.HandlerFunc {
		return func(w http.ResponseWriter, _ *http.Request) { f.send(write(w)) }
	}
	webSocket := func(t *testing.T, f *flow) http.HandlerFunc {
		return talking(t, func(conn *websocket.Conn) {
			f.send(channel(conn, 1))
			_ = conn.WriteMessage(websocket.BinaryMessage, append([]byte{3}, `{"status":"Success"}`...))
			_ = conn.WriteControl(websocket.CloseMessage, websocket.FormatCloseMessage(websocket.CloseNormalClosure, ""),
				deadlineSoon())
			_, _, _ = conn.ReadMessage() // the end
		})
	}
	spdyStreams := func(_ *testing.T, f *flow) http.HandlerFunc {
		return spdyMember(new(atomic.Int64), func(s map[string]httpstream.Stream, conn httpstream.Connection) {
			f.send(write(s["stdout"]))
			_, _ = io.WriteString(s["error"], `{"status":"Success"}`)
			_ = s["stdout"].Close()
			_ = s["error"].Close()
			<-conn.CloseChan()
		})
	}
	spdyData := func(_ *testing.T, f *flow) http.HandlerFunc {
		return spdyMember(new(atomic.Int64), func(s map[string]httpstream.Stream, conn httpstream.Connection) {
			f.send(write(s["data"]))
			_ = s["data"].Close()
			_ = s["error"].Close()
			<-conn.CloseChan()
		})
	}
	raw := func(_ *testing.T, f *flow) http.HandlerFunc {
		return func(w http.ResponseWriter, _ *http.Request) {
			conn, rw, err := http.NewResponseController(w).Hijack()
			if err != nil {
				return
			}
			defer func() { _ = conn.Close() }()
			_, _ = io.WriteString(conn, "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: SPDY/3.1\r\n\r\n")
			_, _ = io.ReadFull(rw, make([]byte, 1)) // the client has read the response headers
			f.send(write(conn))
		}
	}
	rawSPDY := func(t *testing.T, f *flow) http.HandlerFunc {
		return func(w http.ResponseWriter, r *http.Request) {
			if r.Header.Get("Upgrade") == "websocket" {
				http.Error(w, "what is a websocket?", http.StatusBadRequest)
				return
			}
			conn, _, err := http.NewResponseController(w).Hijack()
			if err != nil {
				return
			}
			defer func() { _ = conn.Close() }()
			_, _ = io.WriteString(conn, "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: SPDY/3.1\r\n\r\n")
			f.send(write(conn))
		}
	}
	// Clients that read everything.
	messages := func(path, protocol string, content func([]byte) string) func(hs *bridgeServer) func(io.Writer) {
		return func(hs *bridgeServer) func(io.Writer) {
			conn := hs.mustDial("alice", path, protocol)
			return func(w io.Writer) {
				for {
					_, m, err := conn.ReadMessage()
					if err != nil {
						return
					}
					_, _ = io.WriteString(w, content(m))
				}
			}
		}
	}
	stdout := func(m []byte) string {
		if m[0] != 1 {
			return ""
		}
		return string(m[1:])
	}
	data := func(m []byte) string {
		if m[0] != 0 || len(m) == 3 { // the message with the port number
			return ""
		}
		return string(m[1:])
	}
	data64 := func(m []byte) string {
		decoded, err := base64.StdEncoding.DecodeString(string(m[1:]))
		if err != nil {
			return err.Error()
		}
		return data(append([]byte{m[0] - '0'}, decoded...))
	}
	body := func(path string, header ...string) func(hs *bridgeServer) func(io.Writer) {
		return func(hs *bridgeServer) func(io.Writer) {
			resp, conn := hs.get("alice", path, header...)
			var r io.Reader = resp.Body
			if resp.StatusCode == http.StatusSwitchingProtocols {
				_, _ = conn.Write([]byte{0})
				r = conn
			}
			return func(w io.Writer) { _, _ = io.Copy(w, r) }
		}
	}
	for name, tt := range map[string]struct {
		member func(*testing.T, *flow) http.HandlerFunc
		client func(*bridgeServer) func(io.Writer)
	}{
		"a log": {plain, body(logPath)},
		"a log, by websocket of our own": {
			plain, messages(logPath, text.Protocol, func(m []byte) string { return string(m) + "\n" }),
		},
		"exec by SPDY":                    {raw, body(execPath, upgrade...)},
		"exec by websocket":               {webSocket, messages(execPath, "v5.channel.k8s.io", stdout)},
		"exec by websocket, translated":   {spdyStreams, messages(translated, "v5.channel.k8s.io", stdout)},
		"exec by websocket of our own":    {webSocket, messages(execPath, text.Protocol, stdoutText)},
		"exec of our own, and translated": {spdyStreams, messages(translated, text.Protocol, stdoutText)},
		"ports, translated":               {spdyData, messages(portsPath, "v4.channel.k8s.io", data)},
		"ports in base64, translated":     {spdyData, messages(portsPath, "v4.base64.channel.k8s.io", data64)},
		"a tunnel, translated": {
			rawSPDY, messages(portsPath, "SPDY/3.1+portforward.k8s.io", func(m []byte) string { return string(m) }),
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f := newFlow()
			hs := serve(t, Limits{}, Drain{}, tt.member(t, f))
			read := tt.client(hs)
			f.stalls(t, kernels)
			close(f.enough)
			h := sha256.New()
			read(h)
			if got, want := hex.EncodeToString(h.Sum(nil)), <-f.sum; got != want {
				t.Errorf("%d bytes were sent, and others came", f.sent.Load())
			}
		})
	}

	// The other direction: a member that reads only when signalled.
	for name, tt := range map[string]struct {
		path, protocol string
		end            []byte
		member         func(t *testing.T, take <-chan struct{}, got io.Writer, done func()) http.HandlerFunc
	}{
		"stdin by websocket": {translated, "v5.channel.k8s.io", []byte{255, 0},
			func(t *testing.T, take <-chan struct{}, got io.Writer, done func()) http.HandlerFunc {
				return talking(t, func(conn *websocket.Conn) {
					<-take
					for {
						_, m, err := conn.ReadMessage()
						if err != nil || m[0] == 255 {
							done()
							return
						}
						_, _ = got.Write(m[1:])
					}
				})
			}},
		"stdin by websocket, translated": {translated, "v5.channel.k8s.io", []byte{255, 0},
			func(_ *testing.T, take <-chan struct{}, got io.Writer, done func()) http.HandlerFunc {
				return spdyMember(new(atomic.Int64), func(s map[string]httpstream.Stream, conn httpstream.Connection) {
					<-take
					_, _ = io.Copy(got, s["stdin"])
					done()
				})
			}},
		"a port, translated": {portsPath, "v4.channel.k8s.io", []byte("\x00$"),
			func(_ *testing.T, take <-chan struct{}, got io.Writer, done func()) http.HandlerFunc {
				return spdyMember(new(atomic.Int64), func(s map[string]httpstream.Stream, conn httpstream.Connection) {
					<-take
					defer done()
					for buf := make([]byte, 32<<10); ; {
						n, err := s["data"].Read(buf)
						text, end := strings.CutSuffix(string(buf[:n]), "$") // this protocol cannot close a stream
						_, _ = io.WriteString(got, text)
						if err != nil || end {
							return
						}
					}
				})
			}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			take, done, got, f := make(chan struct{}), make(chan struct{}), sha256.New(), newFlow()
			hs := serve(t, Limits{}, Drain{}, tt.member(t, take, got, func() { close(done) }))
			conn := hs.mustDial("alice", tt.path, tt.protocol)
			go func() {
				f.send(channel(conn, 0))
				_ = conn.WriteMessage(websocket.BinaryMessage, tt.end)
			}()
			f.stalls(t, kernels)
			close(f.enough)
			close(take)
			<-done
			if got, want := hex.EncodeToString(got.Sum(nil)), <-f.sum; got != want {
				t.Errorf("%d bytes were sent, and others came", f.sent.Load())
			}
		})
	}
}

// TestManySlowClients: the bridge's memory for each client that does not read is small.
func TestManySlowClients(t *testing.T) {
	const many, each = 32, 1 << 20
	f := newFlow()
	var watching atomic.Int64
	hs := serve(t, Limits{}, Drain{}, func(w http.ResponseWriter, r *http.Request) {
		watching.Add(1)
		chunk := make([]byte, 32<<10)
		for r.Context().Err() == nil {
			n, err := w.Write(chunk)
			if err != nil {
				return
			}
			f.sent.Add(int64(n))
		}
	})
	before := memoryInUse()
	for range many {
		hs.get("alice", logPath)
	}
	waittest.Until(t, "all are sent something", func() bool { return watching.Load() == many })
	f.stalls(t, many*kernels)
	if after := settleMemory(before + many*each); after > before+many*each {
		t.Errorf("%d clients that take nothing cost %d bytes each", many, (after-before)/many)
	}
}

// framing is a member that supports SPDY. It accepts the streams of a session and passes the frames to talk.
func framing(streams int, talk func(f *spdy.Framer, last spdy.StreamId)) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		if strings.EqualFold(r.Header.Get("Upgrade"), "websocket") {
			http.Error(w, "what is a websocket?", http.StatusBadRequest)
			return
		}
		conn, rw, err := http.NewResponseController(w).Hijack()
		if err != nil {
			return
		}
		defer func() { _ = conn.Close() }()
		_, _ = io.WriteString(conn, "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: SPDY/3.1\r\n\r\n")
		f, err := spdy.NewFramer(conn, rw)
		if err != nil {
			return
		}
		var last spdy.StreamId
		for streams := streams; streams > 0; {
			frame, err := f.ReadFrame()
			if err != nil {
				return
			}
			if syn, ok := frame.(*spdy.SynStreamFrame); ok {
				last = syn.StreamId
				// The library would allocate a compressor of a megabyte.
				_, _ = conn.Write([]byte{
					0x80, 3, 0, 2, 0, 0, 0, 4, byte(last >> 24), byte(last >> 16), byte(last >> 8), byte(last),
				})
				streams--
			}
		}
		talk(f, last)
	}
}

// TestManySlowTranslations: the bridge's memory for translated sessions is small, with large frames and with sides that
// do not read.
func TestManySlowTranslations(t *testing.T) {
	if testing.Short() {
		t.Skip("slow: make test runs it")
	}
	const many = 8
	for name, tt := range map[string]struct {
		path, protocol string
		streams, frame int
		each           uint64
	}{
		"exec":                {translated, "v5.channel.k8s.io", 3, 32 << 10, 512 << 10},
		"exec, large frames":  {translated, "v5.channel.k8s.io", 3, 8 << 20, 512 << 10},
		"exec of our own":     {translated, text.Protocol, 3, 1 << 20, 3 << 20}, // whole messages, also as JSON
		"ports, large frames": {portsPath, "v4.channel.k8s.io", 2, 8 << 20, 512 << 10},
	} {
		t.Run(name, func(t *testing.T) {
			down, up := newFlow(), newFlow()
			var talking atomic.Int64
			chunk := bytes.Repeat([]byte("x"), tt.frame)
			hs := serve(t, Limits{}, Drain{}, framing(tt.streams, func(f *spdy.Framer, last spdy.StreamId) {
				talking.Add(1)
				for f.WriteFrame(&spdy.DataFrame{StreamId: last, Data: chunk}) == nil {
					down.sent.Add(int64(len(chunk)))
				}
			}))
			message := append([]byte{0}, make([]byte, 32<<10)...)
			kind := websocket.BinaryMessage
			if tt.protocol == text.Protocol {
				message, kind = fmt.Appendf(nil, `{"stdin":%q}`, strings.Repeat("x", 32<<10)), websocket.TextMessage
			}
			before := memoryInUse()
			for range many {
				conn := hs.mustDial("alice", tt.path, tt.protocol)
				go func() {
					for conn.WriteMessage(kind, message) == nil {
						up.sent.Add(int64(len(message)))
					}
				}()
			}
			waittest.Until(t, "all are sent something", func() bool { return talking.Load() == many })
			var both sync.WaitGroup
			for _, f := range []*flow{down, up} {
				both.Go(func() {
					if !hasStalled(&f.sent, many*kernels) {
						t.Errorf("%d bytes were sent to sides that read nothing", f.sent.Load())
					}
				})
			}
			both.Wait()
			if after := settleMemory(before + many*tt.each); after > before+many*tt.each {
				t.Errorf("%d sessions whose sides take nothing cost %d bytes each", many, (after-before)/many)
			}
		})
	}
}

// settleMemory waits for a while until this process uses at most most bytes, and returns the number. Short peaks do not
// count.
func settleMemory(most uint64) uint64 {
	tick := time.NewTicker(500 * time.Millisecond)
	defer tick.Stop()
	for end := time.Now().Add(time.Minute); ; <-tick.C {
		if n := memoryInUse(); n <= most || time.Now().After(end) {
			return n
		}
	}
}

// memoryInUse returns the memory of this process in bytes. It includes the bridge and both sides.
func memoryInUse() uint64 {
	runtime.GC()
	runtime.GC() // twice, to empty pools
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return m.HeapAlloc
}

// stdoutText returns the stdout in a message of our own protocol.
func stdoutText(m []byte) string {
	var out struct{ Stdout string }
	if err := json.Unmarshal(m, &out); err != nil {
		return err.Error()
	}
	return out.Stdout
}
