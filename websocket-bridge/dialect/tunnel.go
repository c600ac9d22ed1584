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

const (
	tunnel      = "SPDY/3.1+portforward.k8s.io"
	portForward = "portforward.k8s.io"
)

func (s *session) tunnel(_ context.Context, client *websocket.Conn, member io.ReadWriteCloser) {
	var wg sync.WaitGroup
	wg.Go(func() {
		kind, message, err := client.NextReader()
		for err == nil && kind == websocket.BinaryMessage {
			_, _ = io.Copy(member, message) // errors are ignored as in readMessages
			kind, message, err = client.NextReader()
		}
		_ = member.Close()
		text.ReadOversized(client, err)
	})
	buf := make([]byte, maxPiece)
	for {
		n, err := member.Read(buf)
		if n > 0 && client.WriteMessage(websocket.BinaryMessage, buf[:n]) != nil {
			break
		}
		if err != nil {
			sendClose(client, errors.Is(err, io.EOF), "")
			break
		}
	}
	_ = client.SetReadDeadline(time.Now().Add(text.LingerTimeout))
	cut := time.AfterFunc(text.LingerTimeout, func() { _ = member.Close() }) // the member may block without an error
	defer cut.Stop()
	wg.Wait()
}

const closeTimeout = time.Second

// sendClose sends a close frame with code 1000 if the data is complete, and otherwise 1011.
func sendClose(client *websocket.Conn, whole bool, why string) {
	code := websocket.CloseNormalClosure
	if !whole {
		code = websocket.CloseInternalServerErr
	}
	_ = client.WriteControl(websocket.CloseMessage, websocket.FormatCloseMessage(code, why), time.Now().Add(closeTimeout))
}

func badHandshake(err error) error {
	var handshake websocket.HandshakeError
	if errors.As(err, &handshake) {
		return status.New(status.BadRequest, "", "the websocket handshake cannot be understood: %w", err)
	}
	return &status.Error{
		Reason: status.Internal, Message: "this endpoint cannot switch protocols; call the URL under /bridge", Err: err,
	}
}
