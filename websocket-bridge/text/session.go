package text

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"slices"
	"strconv"
	"time"

	"github.com/gorilla/websocket"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	kjson "sigs.k8s.io/json"

	"github.com/clusterpass/clusterpass/shared/forward"
	"github.com/clusterpass/clusterpass/websocket-bridge/channels"
)

// input is a message from the client. Exactly one field is set.
type input struct {
	Stdin  *string `json:"stdin"`
	EOF    bool    `json:"eof"` // end of stdin
	Resize *struct {
		Width  uint16 `json:"width"`
		Height uint16 `json:"height"`
	} `json:"resize"`
}

// output is a message to the client. Exactly one field is set.
type output struct {
	Stdout *string `json:"stdout,omitempty"`
	Stderr *string `json:"stderr,omitempty"`
	Exit   *exit   `json:"exit,omitempty"`
}

// exit is the last message. Code is null if the command did not run.
type exit struct {
	Code    *int   `json:"code"`
	Message string `json:"message,omitempty"`
}

// maxInput is the maximum size in bytes of a piece of stdin. gorilla splits larger messages into several frames, and
// kube-apiserver reads each frame as a message.
const maxInput = bufferSize - 1

// Kubelets send messages of 32 KiB.
const maxMemberMessage = 4 << 20

func talk(client, member *websocket.Conn) {
	clientGone := make(chan struct{})
	go func() {
		defer close(clientGone)
		code, why, err := listen(client, member)
		if code != 0 {
			sendClose(client, code, why)
		}
		_ = member.Close()
		if code != 0 {
			readRest(client)
		} else {
			ReadOversized(client, err)
		}
	}()
	member.SetReadLimit(maxMemberMessage)
	tails := map[byte][]byte{} // incomplete characters by channel
	send := func(ch byte, text string) error {
		switch {
		case ch == channels.Stdout && text != "":
			return client.WriteJSON(output{Stdout: &text})
		case ch == channels.Stderr && text != "":
			return client.WriteJSON(output{Stderr: &text})
		}
		return nil
	}
	flush := func() {
		for _, ch := range []byte{channels.Stdout, channels.Stderr} {
			text, _ := wholeText(tails[ch], true)
			_ = send(ch, string(text)) // if it fails, the next write fails, too
			tails[ch] = nil
		}
	}
	ended := false
	for {
		_, message, err := member.ReadMessage()
		if err != nil {
			break
		}
		if len(message) < 2 { // the session has started
			continue
		}
		ch := message[0]
		if ch == channels.Error {
			flush()
			ended = true
			err = client.WriteJSON(output{Exit: exitOf(message[1:])})
		} else {
			var text []byte
			text, tails[ch] = wholeText(append(tails[ch], message[1:]...), false)
			err = send(ch, string(text))
		}
		if err != nil {
			break
		}
	}
	flush()
	if ended {
		sendClose(client, websocket.CloseNormalClosure, "")
	} else {
		sendClose(client, websocket.CloseInternalServerErr, "the session broke off")
	}
	_ = member.Close()
	_ = client.SetReadDeadline(time.Now().Add(LingerTimeout))
	<-clientGone
}

// listen forwards the client's messages until reading fails. It ignores errors of the member, because the client must
// still receive the result of an ended command. code is the close code for an error of the client, and otherwise 0.
func listen(client, member *websocket.Conn) (code int, why string, err error) {
	send := func(ch byte, content []byte) {
		_ = member.WriteMessage(websocket.BinaryMessage, append([]byte{ch}, content...))
	}
	for {
		kind, r, err := client.NextReader()
		if err != nil {
			return 0, "", err
		}
		if kind != websocket.TextMessage {
			return websocket.CloseUnsupportedData, "want text messages", nil
		}
		var in input
		dec := json.NewDecoder(r)
		dec.DisallowUnknownFields()
		if err := dec.Decode(&in); err != nil {
			return websocket.CloseInvalidFramePayloadData,
				`want {"stdin": "text"}, {"eof": true} or {"resize": {"width": 80, "height": 24}}`, err
		}
		switch {
		case in.Stdin != nil:
			for piece := range slices.Chunk([]byte(*in.Stdin), maxInput) {
				send(channels.Stdin, piece)
			}
		case in.Resize != nil:
			send(channels.Resize, fmt.Appendf(nil, `{"Height":%d,"Width":%d}`, in.Resize.Height, in.Resize.Width))
		case in.EOF && member.Subprotocol() == channels.V5:
			send(channels.Close, []byte{channels.Stdin})
		case in.EOF:
			return websocket.ClosePolicyViolation, "this member cannot end stdin", nil
		}
	}
}

func exitOf(verdict []byte) *exit {
	var st metav1.Status
	if err := kjson.UnmarshalCaseSensitivePreserveInts(verdict, &st); err != nil {
		return &exit{Message: string(verdict)}
	}
	code := 0
	if st.Status == metav1.StatusSuccess {
		return &exit{Code: &code}
	}
	if st.Details != nil {
		for _, c := range st.Details.Causes {
			if n, err := strconv.Atoi(c.Message); err == nil && c.Type == "ExitCode" {
				return &exit{Code: &n, Message: st.Message}
			}
		}
	}
	return &exit{Message: st.Message}
}

// forwardHandshake reads the handshake from far and forwards it to the member. It returns when the session has ended.
func (e *Endpoint) forwardHandshake(ctx context.Context, w http.ResponseWriter, far net.Conn, r *http.Request,
	c *forward.Call) error {
	br := bufio.NewReaderSize(far, bufferSize)
	handshake, err := http.ReadRequest(br)
	if err != nil {
		return err
	}
	in := plain(ctx, r)
	for name, v := range handshake.Header {
		if name != "Host" && name != "User-Agent" {
			in.Header[name] = v
		}
	}
	inner := &pipeWriter{ResponseWriter: w, conn: far, r: br}
	return e.Upgrades.Do(inner, inner, in, c)
}

// pipeWriter writes to the client until the member switches protocols. Hijack returns the pipe.
type pipeWriter struct {
	http.ResponseWriter
	conn net.Conn
	r    *bufio.Reader
}

func (p *pipeWriter) Unwrap() http.ResponseWriter { return p.ResponseWriter }

func (p *pipeWriter) Hijack() (net.Conn, *bufio.ReadWriter, error) {
	return p.conn, bufio.NewReadWriter(p.r, bufio.NewWriter(io.Discard)), nil
}

// half is one end of a connection within this process. Each direction is a pipe, so that it can be closed alone.
type half struct {
	net.Conn          // for reading
	to       net.Conn // for writing
}

func pipe() (near, far net.Conn) {
	fromFar, toNear := net.Pipe()
	fromNear, toFar := net.Pipe()
	return half{fromFar, toFar}, half{fromNear, toNear}
}

func (h half) Write(p []byte) (int, error) { return h.to.Write(p) }

func (h half) CloseWrite() error { return h.to.Close() }

func (h half) Close() error { return errors.Join(h.to.Close(), h.Conn.Close()) }

// SetDeadline returns no error if the other side has closed its writing half, as with a socket.
func (h half) SetDeadline(t time.Time) error {
	_ = h.SetReadDeadline(t)
	return h.SetWriteDeadline(t)
}

func (h half) SetReadDeadline(t time.Time) error {
	_ = h.Conn.SetReadDeadline(t)
	return nil
}

func (h half) SetWriteDeadline(t time.Time) error {
	_ = h.to.SetWriteDeadline(t)
	return nil
}
