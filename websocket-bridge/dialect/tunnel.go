package dialect

import (
	"context"
	"errors"
	"io"
	"sync"
	"time"

	"github.com/gorilla/websocket"

	"github.com/clusterpass/clusterpass/shared/status"
	"github.com/clusterpass/clusterpass/websocket-bridge/text"
)

// The protocols of port-forward: SPDY whose bytes are a websocket's binary messages, and what is inside.
const (
	tunnel      = "SPDY/3.1+portforward.k8s.io"
	portForward = "portforward.k8s.io"
)

// tunnel carries the member's SPDY connection in binary messages.
func (s *session) tunnel(_ context.Context, client *websocket.Conn, member io.ReadWriteCloser) {
	var wg sync.WaitGroup
	wg.Go(func() {
		kind, message, err := client.NextReader()
		for err == nil && kind == websocket.BinaryMessage {
			_, _ = io.Copy(member, message) // as of exec, what is not taken is dropped
			kind, message, err = client.NextReader()
		}
		_ = member.Close()
		text.HearOut(client, err)
	})
	buf := make([]byte, maxPiece)
	for {
		n, err := member.Read(buf)
		if n > 0 && client.WriteMessage(websocket.BinaryMessage, buf[:n]) != nil {
			break
		}
		if err != nil {
			goodbye(client, errors.Is(err, io.EOF), "")
			break
		}
	}
	_ = client.SetReadDeadline(time.Now().Add(text.Lingering))
	cut := time.AfterFunc(text.Lingering, func() { _ = member.Close() }) // which may take nothing, and not say so
	defer cut.Stop()
	wg.Wait()
}

// farewell is what a client has to take a close frame.
const farewell = time.Second

// goodbye sends a close frame: 1000 where all that was sent is whole, else 1011.
func goodbye(client *websocket.Conn, whole bool, why string) {
	code := websocket.CloseNormalClosure
	if !whole {
		code = websocket.CloseInternalServerErr
	}
	_ = client.WriteControl(websocket.CloseMessage, websocket.FormatCloseMessage(code, why), time.Now().Add(farewell)) // it may be gone
}

// badHandshake is the client's fault.
func badHandshake(err error) error {
	var handshake websocket.HandshakeError
	if errors.As(err, &handshake) {
		return status.New(status.BadRequest, "", "the websocket handshake cannot be understood: %w", err)
	}
	return &status.Error{
		Reason: status.Internal, Message: "this endpoint cannot switch protocols; call the URL under /bridge", Err: err,
	}
}
