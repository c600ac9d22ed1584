package streams

import (
	"bytes"
	"encoding/binary"
	"mime"
)

type boundary interface {
	// next returns how many bytes of p belong to the current event, including its end, or -1 if the event does not end in
	// p.
	next(p []byte) int
	// isBetweenEvents reports whether the processed bytes end with the end of an event.
	isBetweenEvents() bool
}

// boundaryOf returns nil for content types whose events it cannot separate.
func boundaryOf(contentType string) boundary {
	switch media, _, _ := mime.ParseMediaType(contentType); media {
	case "application/json":
		return &lines{}
	case "application/vnd.kubernetes.protobuf":
		return &lengths{}
	case "application/cbor-seq":
		return &items{}
	default:
		return nil
	}
}

// lines finds events that end with a newline, as in JSON.
type lines struct{ open bool }

func (l *lines) next(p []byte) int {
	if len(p) == 0 {
		return -1
	}
	l.open = p[len(p)-1] != '\n'
	if i := bytes.IndexByte(p, '\n'); i >= 0 {
		return i + 1
	}
	return -1
}

func (l *lines) isBetweenEvents() bool { return !l.open }

// lengths finds events that consist of a 4-byte big-endian length and as many bytes, as in protobuf.
type lengths struct {
	head [4]byte
	have int    // bytes of head received
	left uint64 // remaining bytes of the event, once head is complete
}

func (l *lengths) next(p []byte) int {
	end := -1
	for at := 0; at < len(p); {
		if l.have < len(l.head) {
			n := copy(l.head[l.have:], p[at:])
			l.have += n
			at += n
			if l.have == len(l.head) {
				l.left = uint64(binary.BigEndian.Uint32(l.head[:]))
			}
		}
		if l.have == len(l.head) {
			n := min(l.left, uint64(len(p)-at))
			l.left -= n
			at += int(n)
			if l.left == 0 {
				l.have = 0
				if end < 0 {
					end = at
				}
			}
		}
	}
	return end
}

func (l *lengths) isBetweenEvents() bool { return l.have == 0 }
