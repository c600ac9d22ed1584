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

// portProtocols are the older websocket protocols of port-forward, with two channels for each port that the query names, in their
// order: one for one connection's data, one for what went wrong. Each begins with the port, two bytes, the low one first. Without
// any it is the first.
var portProtocols = []string{"v4.channel.k8s.io", "v4.base64.channel.k8s.io"}

// maxPorts bounds what one session costs. A member that takes websockets may take more.
const maxPorts = 16

// portsOf returns the ports of a query, nil where they are missing, none, or too many. Kubelets take one twice, too: these are two
// connections.
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

// forwardPorts carries a port-forward with channels.
func (s *session) forwardPorts(_ context.Context, client *websocket.Conn, member io.ReadWriteCloser) {
	conn := newSPDY(member)
	defer conn.cut()
	out := &messages{conn: client, base64: strings.Contains(s.protocol, "base64")}
	data := make([]*stream, len(s.ports))
	var all []*stream
	for i, port := range s.ports {
		on := func(ch int) func([]byte) { return func(p []byte) { out.write(byte(ch), p) } }
		header := []string{"port", strconv.Itoa(int(port)), "requestid", strconv.Itoa(i), "streamtype"} // as kubectl does
		fault, err := conn.open(on(2*i+1), append(header, "error")...)
		if err == nil {
			err = fault.end() // nothing is written to it
		}
		if err == nil {
			data[i], err = conn.open(on(2*i), append(header, "data")...)
		}
		if err != nil {
			goodbye(client, false, "the member opened no streams")
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
		conn.cut() // what still comes has nobody to go to
		text.HearOut(client, err)
	}()
	err := conn.run(all...)
	goodbye(client, err == nil, "")
	_ = client.SetReadDeadline(time.Now().Add(text.Lingering))
	conn.cut()
	<-clientGone
}

// readData passes on what the client sends until it ends, and returns how.
func readData(client *websocket.Conn, coded bool, data []*stream) error {
	for {
		ch, message, err := nextMessage(client, coded)
		if err != nil {
			return err
		}
		if i := int(ch / 2); ch%2 == 0 && i < len(data) {
			_ = data[i].send(message) // as of exec
		}
	}
}
