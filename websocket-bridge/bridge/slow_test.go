package bridge

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

// kernelBuffers is more than the kernel buffers for one flow.
const kernelBuffers = 64 << 20

// waitStalled waits until the sender blocks. It fails the test if more than maxBytes are sent. The kernel buffers most
// of them.
func (f *flow) waitStalled(t *testing.T, maxBytes int64) {
	t.Helper()
	if !hasStalled(&f.sent, maxBytes) {
		t.Fatalf("%d bytes were sent to a side that does not read", f.sent.Load())
	}
}

// hasStalled waits until sent is above 0 and has not grown for two seconds. It returns false as soon as sent is above
// maxBytes, or after waittest.Patience.
func hasStalled(sent *atomic.Int64, maxBytes int64) bool {
	tick := time.NewTicker(50 * time.Millisecond)
	defer tick.Stop()
	deadline := time.Now().Add(waittest.Patience)
	for last, same := int64(0), 0; same < 40; <-tick.C {
		n := sent.Load()
		if n > maxBytes || time.Now().After(deadline) {
			return false
		}
		if same++; n != last || n == 0 {
			last, same = n, 0
		}
	}
	return true
}

func writeTo(w io.Writer) func([]byte) error {
	return func(p []byte) error {
		_, err := w.Write(p)
		if rw, ok := w.(http.ResponseWriter); ok && err == nil {
			err = http.NewResponseController(rw).Flush()
		}
		return err
	}
}

func writeChannel(conn *websocket.Conn, ch byte) func([]byte) error {
	return func(p []byte) error { return conn.WriteMessage(websocket.BinaryMessage, append([]byte{ch}, p...)) }
}

type slowSender func(t *testing.T, f *flow) http.HandlerFunc

func sendBody(_ *testing.T, f *flow) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) { f.send(writeTo(w)) }
}

func sendMessages(t *testing.T, f *flow) http.HandlerFunc {
	return talking(t, func(conn *websocket.Conn) {
		f.send(writeChannel(conn, 1))
		_ = conn.WriteMessage(websocket.BinaryMessage, append([]byte{3}, `{"status":"Success"}`...))
		_ = conn.WriteControl(websocket.CloseMessage, websocket.FormatCloseMessage(websocket.CloseNormalClosure, ""),
			deadlineSoon())
		_, _, _ = conn.ReadMessage() // the end
	})
}

func sendStdout(_ *testing.T, f *flow) http.HandlerFunc {
	return spdyMember(new(atomic.Int64), func(s map[string]httpstream.Stream, conn httpstream.Connection) {
		f.send(writeTo(s["stdout"]))
		_, _ = io.WriteString(s["error"], `{"status":"Success"}`)
		_ = s["stdout"].Close()
		_ = s["error"].Close()
		<-conn.CloseChan()
	})
}

func sendPort(_ *testing.T, f *flow) http.HandlerFunc {
	return spdyMember(new(atomic.Int64), func(s map[string]httpstream.Stream, conn httpstream.Connection) {
		f.send(writeTo(s["data"]))
		_ = s["data"].Close()
		_ = s["error"].Close()
		<-conn.CloseChan()
	})
}

const switchToSPDY = "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: SPDY/3.1\r\n\r\n"

// sendRaw switches protocols and sends bytes that are not SPDY, for clients whose bytes the bridge does not translate.
func sendRaw(_ *testing.T, f *flow) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) {
		conn, rw, err := http.NewResponseController(w).Hijack()
		if err != nil {
			return
		}
		defer func() { _ = conn.Close() }()
		_, _ = io.WriteString(conn, switchToSPDY)
		_, _ = io.ReadFull(rw, make([]byte, 1)) // the client has read the response headers
		f.send(writeTo(conn))
	}
}

func sendRawWithoutWebSocket(_ *testing.T, f *flow) http.HandlerFunc {
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
		_, _ = io.WriteString(conn, switchToSPDY)
		f.send(writeTo(conn))
	}
}

// reader connects a client. copyTo copies all data that the member sent.
type reader func(*bridgeServer) (copyTo func(io.Writer))

func readMessages(path, protocol string, content func([]byte) string) reader {
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

// readBody returns a client of HTTP, or of an upgraded connection.
func readBody(path string, header ...string) reader {
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

func stdoutChannel(m []byte) string {
	if m[0] != 1 {
		return ""
	}
	return string(m[1:])
}

func portChannel(m []byte) string {
	if m[0] != 0 || len(m) == 3 { // the message with the port number
		return ""
	}
	return string(m[1:])
}

func portChannelBase64(m []byte) string {
	decoded, err := base64.StdEncoding.DecodeString(string(m[1:]))
	if err != nil {
		return err.Error()
	}
	return portChannel(append([]byte{m[0] - '0'}, decoded...))
}

// TestSlowClientBlocksMember: a client that does not read must neither fill the bridge's memory nor lose data.
func TestSlowClientBlocksMember(t *testing.T) {
	t.Parallel() // it mostly waits
	for name, tt := range map[string]struct {
		member slowSender
		client reader
	}{
		"a log": {sendBody, readBody(logPath)},
		"a log, by websocket of our own": {
			sendBody, readMessages(logPath, text.Protocol, func(m []byte) string { return string(m) + "\n" }),
		},
		"exec by SPDY":                    {sendRaw, readBody(execPath, upgrade...)},
		"exec by websocket":               {sendMessages, readMessages(execPath, "v5.channel.k8s.io", stdoutChannel)},
		"exec by websocket, translated":   {sendStdout, readMessages(translated, "v5.channel.k8s.io", stdoutChannel)},
		"exec by websocket of our own":    {sendMessages, readMessages(execPath, text.Protocol, stdoutText)},
		"exec of our own, and translated": {sendStdout, readMessages(translated, text.Protocol, stdoutText)},
		"ports, translated":               {sendPort, readMessages(portsPath, "v4.channel.k8s.io", portChannel)},
		"ports in base64, translated": {
			sendPort, readMessages(portsPath, "v4.base64.channel.k8s.io", portChannelBase64),
		},
		"a tunnel, translated": {
			sendRawWithoutWebSocket,
			readMessages(portsPath, "SPDY/3.1+portforward.k8s.io", func(m []byte) string { return string(m) }),
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f := newFlow()
			hs := serve(t, Limits{}, Drain{}, tt.member(t, f))
			copyTo := tt.client(hs)
			f.waitStalled(t, kernelBuffers)
			close(f.enough)
			h := sha256.New()
			copyTo(h)
			if got, want := hex.EncodeToString(h.Sum(nil)), <-f.sum; got != want {
				t.Errorf("the client received other data than the %d bytes that were sent", f.sent.Load())
			}
		})
	}
}

// slowReceiver starts to read when start is closed, and closes done at the end of the data.
type slowReceiver struct {
	start, done chan struct{}
	got         io.Writer
}

func (r *slowReceiver) readMessages(t *testing.T) http.HandlerFunc {
	return talking(t, func(conn *websocket.Conn) {
		<-r.start
		for {
			_, m, err := conn.ReadMessage()
			if err != nil || m[0] == 255 {
				close(r.done)
				return
			}
			_, _ = r.got.Write(m[1:])
		}
	})
}

func (r *slowReceiver) readStdin(*testing.T) http.HandlerFunc {
	return spdyMember(new(atomic.Int64), func(s map[string]httpstream.Stream, _ httpstream.Connection) {
		<-r.start
		_, _ = io.Copy(r.got, s["stdin"])
		close(r.done)
	})
}

// readPort reads until a $, because the protocol cannot close a stream.
func (r *slowReceiver) readPort(*testing.T) http.HandlerFunc {
	return spdyMember(new(atomic.Int64), func(s map[string]httpstream.Stream, _ httpstream.Connection) {
		<-r.start
		defer close(r.done)
		for buf := make([]byte, 32<<10); ; {
			n, err := s["data"].Read(buf)
			text, end := strings.CutSuffix(string(buf[:n]), "$")
			_, _ = io.WriteString(r.got, text)
			if err != nil || end {
				return
			}
		}
	})
}

// TestSlowMemberBlocksClient: a member that does not read must neither fill the bridge's memory nor lose data.
func TestSlowMemberBlocksClient(t *testing.T) {
	t.Parallel() // it mostly waits
	for name, tt := range map[string]struct {
		path, protocol string
		end            []byte
		member         func(*slowReceiver, *testing.T) http.HandlerFunc
	}{
		"stdin by websocket": {translated, "v5.channel.k8s.io", []byte{255, 0}, (*slowReceiver).readMessages},
		"stdin by websocket, translated": {
			translated, "v5.channel.k8s.io", []byte{255, 0}, (*slowReceiver).readStdin,
		},
		"a port, translated": {portsPath, "v4.channel.k8s.io", []byte("\x00$"), (*slowReceiver).readPort},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			got, f := sha256.New(), newFlow()
			r := &slowReceiver{make(chan struct{}), make(chan struct{}), got}
			hs := serve(t, Limits{}, Drain{}, tt.member(r, t))
			conn := hs.mustDial("alice", tt.path, tt.protocol)
			go func() {
				f.send(writeChannel(conn, 0))
				_ = conn.WriteMessage(websocket.BinaryMessage, tt.end)
			}()
			f.waitStalled(t, kernelBuffers)
			close(f.enough)
			close(r.start)
			<-r.done
			if got, want := hex.EncodeToString(got.Sum(nil)), <-f.sum; got != want {
				t.Errorf("the member received other data than the %d bytes that were sent", f.sent.Load())
			}
		})
	}
}

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
	waittest.Until(t, "all receive data", func() bool { return watching.Load() == many })
	f.waitStalled(t, many*kernelBuffers)
	if after := settleMemory(before + many*each); after > before+many*each {
		t.Errorf("%d clients that do not read use %d bytes each", many, (after-before)/many)
	}
}

// framing is a member that supports SPDY. It accepts the given number of streams, and then calls talk.
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
		_, _ = io.WriteString(conn, switchToSPDY)
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

// TestManySlowTranslations: large frames and sides that do not read must not exhaust the bridge's memory.
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
			waittest.Until(t, "all receive data", func() bool { return talking.Load() == many })
			var both sync.WaitGroup
			for _, f := range []*flow{down, up} {
				both.Go(func() {
					if !hasStalled(&f.sent, many*kernelBuffers) {
						t.Errorf("%d bytes were sent to sides that do not read", f.sent.Load())
					}
				})
			}
			both.Wait()
			if after := settleMemory(before + many*tt.each); after > before+many*tt.each {
				t.Errorf("%d sessions whose sides do not read use %d bytes each", many, (after-before)/many)
			}
		})
	}
}

// settleMemory waits up to a minute until this process uses at most limit bytes, so that short peaks do not count.
func settleMemory(limit uint64) uint64 {
	tick := time.NewTicker(500 * time.Millisecond)
	defer tick.Stop()
	for end := time.Now().Add(time.Minute); ; <-tick.C {
		if n := memoryInUse(); n <= limit || time.Now().After(end) {
			return n
		}
	}
}

// memoryInUse returns bytes of the bridge and both sides.
func memoryInUse() uint64 {
	runtime.GC()
	runtime.GC() // twice, to empty pools
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return m.HeapAlloc
}

func stdoutText(m []byte) string {
	var out struct{ Stdout string }
	if err := json.Unmarshal(m, &out); err != nil {
		return err.Error()
	}
	return out.Stdout
}
