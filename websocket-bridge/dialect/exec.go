package dialect

import (
	"bytes"
	"context"
	"encoding/base64"
	"encoding/json"
	"io"
	"time"

	"github.com/gorilla/websocket"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	kjson "sigs.k8s.io/json"

	"github.com/clusterpass/clusterpass/shared/route"
	"github.com/clusterpass/clusterpass/websocket-bridge/channels"
	"github.com/clusterpass/clusterpass/websocket-bridge/text"
)

// streamCount is the number of streams that a session can have.
const streamCount = len(channels.StreamTypes)

func (s *session) exec(_ context.Context, client *websocket.Conn, member io.ReadWriteCloser) {
	conn := newSPDY(member)
	defer conn.cut()
	out := &messages{conn: client, base64: channels.IsBase64(s.protocol)}
	var verdict []byte
	streams, err := openStreams(conn, s.call.Query, func(ch byte, p []byte) {
		if ch == channels.Error {
			verdict = append(verdict, p[:min(len(p), maxVerdict-len(verdict))]...)
		} else {
			out.write(ch, p)
		}
	})
	if err != nil {
		sendClose(client, false, "the member opened no streams")
		return
	}
	if streams[channels.Stdout] != nil {
		out.write(channels.Stdout, nil) // like API servers: the session has started
	}
	clientGone := make(chan struct{})
	go func() {
		defer close(clientGone)
		err := readMessages(client, s.protocol, out.base64, streams)
		conn.cut() // there is no receiver any more
		text.ReadOversized(client, err)
	}()
	// The verdict decides whether the session succeeded.
	_ = conn.run(streams[channels.Stdout], streams[channels.Stderr], streams[channels.Error])
	if len(verdict) > 0 {
		out.write(channels.Error, forProtocol(verdict, s.protocol))
	}
	sendClose(client, json.Valid(verdict), "")
	_ = client.SetReadDeadline(time.Now().Add(text.LingerTimeout))
	conn.cut() // input may still block here
	<-clientGone
}

// maxVerdict is the maximum size in bytes of the Status with a command's result.
const maxVerdict = 1 << 20

// openStreams opens the streams of the query in the order that members expect.
func openStreams(conn *spdyConn, query string, receive func(ch byte, p []byte)) (streams [streamCount]*stream,
	err error) {
	tty := route.Truthy(query, "tty")
	wanted := [streamCount]bool{
		channels.Stdin: route.Truthy(query, "stdin"), channels.Stdout: route.Truthy(query, "stdout"),
		channels.Stderr: route.Truthy(query, "stderr") && !tty,
		channels.Error:  true, channels.Resize: tty,
	}
	for _, ch := range []byte{channels.Error, channels.Stdin, channels.Stdout, channels.Stderr, channels.Resize} {
		if !wanted[ch] {
			continue
		}
		comes := func(p []byte) { receive(ch, p) }
		if ch == channels.Stdin || ch == channels.Resize {
			comes = nil
		}
		if streams[ch], err = conn.open(comes, "streamtype", channels.StreamTypes[ch]); err != nil {
			return streams, err
		}
	}
	return streams, nil
}

// readMessages forwards the client's messages until reading fails, and returns that error. It ignores errors of the
// member, because the client must still receive the result of an ended command.
func readMessages(client *websocket.Conn, protocol string, coded bool, streams [streamCount]*stream) error {
	for {
		ch, message, err := nextMessage(client, coded)
		if err != nil {
			return err
		}
		switch {
		case ch == channels.Close && protocol == channels.V5:
			var closed [1]byte
			stdin := streams[channels.Stdin]
			if _, err := io.ReadFull(message, closed[:]); err == nil && closed[0] == channels.Stdin && stdin != nil {
				_ = stdin.end()
			}
		case (ch == channels.Stdin || ch == channels.Resize) && streams[ch] != nil:
			_ = streams[ch].send(message)
		}
	}
}

func nextMessage(client *websocket.Conn, coded bool) (ch byte, message io.Reader, err error) {
	for {
		if _, message, err = client.NextReader(); err != nil {
			return 0, nil, err
		}
		var first [1]byte
		if _, err := io.ReadFull(message, first[:]); err != nil {
			continue // an empty message
		}
		if coded {
			return first[0] - '0', base64.NewDecoder(base64.StdEncoding, message), nil
		}
		return first[0], message, nil
	}
}

// messages writes channels to a websocket. After an error it discards data until the reader notices that the client is
// gone.
type messages struct {
	conn   *websocket.Conn
	base64 bool
	failed bool
}

func (m *messages) write(ch byte, p []byte) {
	if m.failed {
		return
	}
	kind, first := websocket.BinaryMessage, ch
	if m.base64 {
		kind, first = websocket.TextMessage, '0'+ch
		p = base64.StdEncoding.AppendEncode(nil, p)
	}
	w, err := m.conn.NextWriter(kind)
	if err == nil {
		_, _ = w.Write([]byte{first})
		_, _ = w.Write(p)
		err = w.Close() // it returns the errors of the writes, too
	}
	m.failed = err != nil
}

// forProtocol converts the member's Status to the client's protocol. Before v4, only failures are sent, as plain text.
func forProtocol(verdict []byte, protocol string) []byte {
	if channels.HasStatus(protocol) {
		return verdict
	}
	var st metav1.Status
	if kjson.UnmarshalCaseSensitivePreserveInts(verdict, &st) != nil {
		return verdict
	}
	if st.Status == metav1.StatusSuccess {
		return nil
	}
	return bytes.TrimSpace([]byte(st.Message))
}
