// Package channels has the numbers of the channels of exec and attach, and the websocket protocols that carry them.
//
// The streams of SPDY have the same types as the channels. Package frames parses the frames below them.
package channels

import "strings"

// V5 is the first protocol in which a client can close Stdin.
const V5 = "v5.channel.k8s.io"

// Protocols are the websocket subprotocols of kube-apiserver, the newest first. A connection without a subprotocol is
// as with "channel.k8s.io".
var Protocols = []string{
	V5, "v4.channel.k8s.io", "v4.base64.channel.k8s.io", "channel.k8s.io", "base64.channel.k8s.io",
}

// Channels of a session. The first byte of a websocket message is its channel.
const (
	Stdin  = 0
	Stdout = 1
	Stderr = 2
	Error  = 3 // the result of the session: see HasStatus
	Resize = 4
	Close  = 255 // only V5: the message contains the channel to close
)

// StreamTypes are the types of the streams in SPDY by channel.
var StreamTypes = [...]string{Stdin: "stdin", Stdout: "stdout", Stderr: "stderr", Error: "error", Resize: "resize"}

// IsBase64 reports whether the messages of a protocol are text: the digit of the channel and base64.
func IsBase64(protocol string) bool { return strings.Contains(protocol, "base64") }

// HasStatus reports whether the error channel of a protocol contains a metav1.Status. In protocols before v4, it
// contains plain text, and nothing after a success.
func HasStatus(protocol string) bool { return strings.HasPrefix(protocol, "v") }
