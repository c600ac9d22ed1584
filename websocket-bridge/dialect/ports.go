package dialect

import (
	"context"
	"encoding/binary"
	"io"
	"net/url"
	"strconv"
	"strings"
	"time"

	"github.com/gorilla/websocket"

	"github.com/clusterpass/clusterpass/websocket-bridge/text"
)

// portProtocols have two channels for each port of the query: data and errors. Each channel starts with the port as a
// little-endian 16-bit number. The first protocol is the default.
var portProtocols = []string{"v4.channel.k8s.io", "v4.base64.channel.k8s.io"}

// Members that support websockets may accept more ports in one session.
const maxPorts = 16

// portsOf returns nil for missing, invalid or too many ports. Kubelets accept a port twice, as two connections.
func portsOf(query string) []uint16 {
	q, err := url.ParseQuery(query)
	if err != nil || len(q["ports"]) > maxPorts {
		return nil
	}
	var ports []uint16
	for _, v := range q["ports"] {
		port, err := strconv.ParseUint(v, 10, 16)
		if err != nil || port == 0 {
			return nil
		}
		ports = append(ports, uint16(port))
	}
	return ports
}

func (s *session) forwardPorts(_ context.Context, client *websocket.Conn, member io.ReadWriteCloser) {
	conn := newSPDY(member)
	defer conn.cut()
	out := &messages{conn: client, base64: strings.Contains(s.protocol, "base64")}
	data := make([]*stream, len(s.ports))
	var all []*stream
	for i, port := range s.ports {
		on := func(ch int) func([]byte) { return func(p []byte) { out.write(byte(ch), p) } }
		header := []string{"port", strconv.Itoa(int(port)), "requestid", strconv.Itoa(i), "streamtype"} // like kubectl
		fault, err := conn.open(on(2*i+1), append(header, "error")...)
		if err == nil {
			err = fault.end() // the error stream is only read
		}
		if err == nil {
			data[i], err = conn.open(on(2*i), append(header, "data")...)
		}
		if err != nil {
			sendClose(client, false, "the member opened no streams")
			return
		}
		all = append(all, data[i], fault)
		first := binary.LittleEndian.AppendUint16(nil, port)
		out.write(byte(2*i), first)
		out.write(byte(2*i+1), first)
	}
	clientGone := make(chan struct{})
	go func() {
		defer close(clientGone)
		err := readData(client, out.base64, data)
		conn.cut() // there is no receiver any more
		text.ReadOversized(client, err)
	}()
	err := conn.run(all...)
	sendClose(client, err == nil, "")
	_ = client.SetReadDeadline(time.Now().Add(text.LingerTimeout))
	conn.cut()
	<-clientGone
}

func readData(client *websocket.Conn, coded bool, data []*stream) error {
	for {
		ch, message, err := nextMessage(client, coded)
		if err != nil {
			return err
		}
		if i := int(ch / 2); ch%2 == 0 && i < len(data) {
			_ = data[i].send(message) // errors are ignored as in readMessages
		}
	}
}
