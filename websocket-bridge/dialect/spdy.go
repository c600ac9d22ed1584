package dialect

import (
	"bufio"
	"encoding/binary"
	"errors"
	"io"
	"sync"
	"sync/atomic"
	"time"
)

const (
	// maxPiece is the size in bytes in which data is handed on, either way.
	maxPiece = 32 << 10
	// replyTimeout is what a member has to take a stream.
	replyTimeout = 30 * time.Second
)

// Of SPDY/3.1, what members speak.
const (
	headLen     = 8
	controlBit  = 0x80
	lengthMask  = 1<<24 - 1
	flagFin     = 1
	spdyVersion = 3
	synStream   = 1
	synReply    = 2
	rstStream   = 3
	ping        = 6
)

// spdyConn is a member's SPDY connection, whose streams this side opens. What comes is handed on by the one goroutine that calls open and
// run, before more is read: nothing is queued, and a silent session holds next to nothing. (The library that kubectl uses
// keeps a compressor of a megabyte for each connection, and up to 250 frames of any size.)
type spdyConn struct {
	member  io.ReadWriteCloser
	in      *bufio.Reader
	streams []*stream // by their ids, which are odd
	writing sync.Mutex
	ponging atomic.Bool
}

func newSPDY(member io.ReadWriteCloser) *spdyConn {
	return &spdyConn{member: member, in: bufio.NewReaderSize(member, 4<<10)}
}

// cut ends the connection. It is safe for concurrent use.
func (c *spdyConn) cut() { _ = c.member.Close() }

// stream is one of a member's streams. Its send and end are safe for concurrent use.
type stream struct {
	conn                   *spdyConn
	id                     uint32
	take                   func([]byte)
	replied, ended, broken bool
}

// open opens a stream with a header of names and values, and waits until the member has taken it. What comes is handed to take, which
// does not keep it; nil drops it.
func (c *spdyConn) open(take func([]byte), header ...string) (*stream, error) {
	late := time.AfterFunc(replyTimeout, c.cut)
	defer late.Stop()
	s := &stream{conn: c, id: uint32(2*len(c.streams) + 1), take: take}
	c.streams = append(c.streams, s)
	body := binary.BigEndian.AppendUint32(nil, s.id)
	body = append(body, 0, 0, 0, 0, 0, 0) // it belongs to no other, and has no priority
	body = append(body, headerBlock(s.id == 1, header)...)
	frame := []byte{controlBit, spdyVersion, 0, synStream}
	frame = binary.BigEndian.AppendUint32(frame, uint32(len(body)))
	if err := c.write(append(frame, body...)); err != nil {
		return nil, err
	}
	for !s.replied && !s.ended {
		if err := c.next(); err != nil {
			return nil, err
		}
	}
	if s.broken {
		return nil, errReset
	}
	return s, nil
}

// What zlib has around a text that is not compressed: its head, which names SPDY's dictionary, and an empty block, at which the other side
// hands on what it has.
const (
	zlibHead  = "\x78\xbb\xe3\xc6\xa7\xc2"
	zlibFlush = "\x00\x00\x00\xff\xff"
)

// headerBlock is a header as SYN_STREAM has it: one of zlib's streams for all that a connection opens.
func headerBlock(first bool, header []string) []byte {
	text := binary.BigEndian.AppendUint32(nil, uint32(len(header)/2))
	for _, s := range header {
		text = append(binary.BigEndian.AppendUint32(text, uint32(len(s))), s...)
	}
	var block []byte
	if first {
		block = []byte(zlibHead)
	}
	block = append(block, 0) // stored, and not the last
	block = binary.LittleEndian.AppendUint16(block, uint16(len(text)))
	block = binary.LittleEndian.AppendUint16(block, ^uint16(len(text)))
	return append(append(block, text...), zlibFlush...)
}

// errReset is that the member ended a stream for another reason than that all was sent.
var errReset = errors.New("the member reset a stream")

// run hands on what comes until these streams have ended. It fails where not all of them did so well.
func (c *spdyConn) run(streams ...*stream) (err error) {
	for _, s := range streams {
		for s != nil && !s.ended {
			if err := c.next(); err != nil {
				return err
			}
		}
		if s != nil && s.broken {
			err = errReset
		}
	}
	return err
}

// next reads one frame. Those that mean nothing here are dropped.
func (c *spdyConn) next() error {
	var head [headLen + 4]byte
	if _, err := io.ReadFull(c.in, head[:headLen]); err != nil {
		return err
	}
	flags, length := head[4], int(binary.BigEndian.Uint32(head[4:])&lengthMask)
	if head[0]&controlBit == 0 {
		return c.data(c.stream(head[:]), flags, length)
	}
	body := head[headLen:]
	if length < len(body) {
		_, err := c.in.Discard(length)
		return err
	}
	if _, err := io.ReadFull(c.in, body); err != nil {
		return err
	}
	s := c.stream(body)
	switch kind := binary.BigEndian.Uint16(head[2:]); {
	case kind == ping && length == len(body):
		c.pong(head)
	case kind == synReply && s != nil:
		s.replied = true
		s.ended = s.ended || flags&flagFin != 0
	case kind == rstStream && s != nil && !s.ended:
		s.ended, s.broken = true, true
	}
	_, err := c.in.Discard(length - len(body))
	return err
}

// stream returns the stream with the id that b begins with, nil where there is none.
func (c *spdyConn) stream(b []byte) *stream {
	id := binary.BigEndian.Uint32(b)
	if id%2 == 0 || int(id/2) >= len(c.streams) {
		return nil
	}
	return c.streams[id/2]
}

var pieces = sync.Pool{New: func() any { return new([headLen + maxPiece]byte) }}

func (c *spdyConn) data(s *stream, flags byte, length int) error {
	if s == nil || s.take == nil || s.ended {
		_, err := c.in.Discard(length)
		return err
	}
	buf := pieces.Get().(*[headLen + maxPiece]byte)
	defer pieces.Put(buf)
	for length > 0 {
		p := buf[:min(length, maxPiece)]
		if _, err := io.ReadFull(c.in, p); err != nil {
			return err
		}
		length -= len(p)
		s.take(p)
	}
	s.ended = flags&flagFin != 0
	return nil
}

// pong answers a ping, not before what is being written: the member may take that only once more of its own is read.
func (c *spdyConn) pong(frame [headLen + 4]byte) {
	if c.ponging.CompareAndSwap(false, true) {
		go func() { // it ends with the connection
			defer c.ponging.Store(false)
			_ = c.write(frame[:])
		}()
	}
}

func (c *spdyConn) write(frame []byte) error {
	c.writing.Lock()
	defer c.writing.Unlock()
	_, err := c.member.Write(frame)
	return err
}

// send sends all that r holds. It returns when the member's connection has taken it.
func (s *stream) send(r io.Reader) error {
	buf := pieces.Get().(*[headLen + maxPiece]byte)
	defer pieces.Put(buf)
	for {
		n, err := r.Read(buf[headLen:])
		if n > 0 {
			binary.BigEndian.PutUint32(buf[:], s.id)
			binary.BigEndian.PutUint32(buf[4:], uint32(n))
			if err := s.conn.write(buf[:headLen+n]); err != nil {
				return err
			}
		}
		if errors.Is(err, io.EOF) {
			return nil
		} else if err != nil {
			return err
		}
	}
}

// end tells the member that nothing more is sent.
func (s *stream) end() error {
	frame := binary.BigEndian.AppendUint32(nil, s.id)
	return s.conn.write(append(frame, flagFin, 0, 0, 0))
}
