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
	maxPiece = 32 << 10
	// replyTimeout is how long a member may wait before it accepts a stream.
	replyTimeout = 30 * time.Second
)

// Constants of SPDY/3.1.
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

// spdyConn is a SPDY connection to a member. Only this side opens streams. The goroutine of open and run delivers data
// before it reads more, so nothing is queued. The library of kubectl needs a compressor of a megabyte for each
// connection, and queues up to 250 frames.
type spdyConn struct {
	member  io.ReadWriteCloser
	in      *bufio.Reader
	streams []*stream // by ID; IDs are odd
	writing sync.Mutex
	ponging atomic.Bool
}

func newSPDY(member io.ReadWriteCloser) *spdyConn {
	return &spdyConn{member: member, in: bufio.NewReaderSize(member, 4<<10)}
}

func (c *spdyConn) cut() { _ = c.member.Close() }

// stream is one stream to a member. send and end are safe for concurrent use.
type stream struct {
	conn                   *spdyConn
	id                     uint32
	receive                func([]byte)
	replied, ended, broken bool
}

// open waits until the member accepts the stream. header alternates names and values. receive must not keep the data;
// nil discards it.
func (c *spdyConn) open(receive func([]byte), header ...string) (*stream, error) {
	late := time.AfterFunc(replyTimeout, c.cut)
	defer late.Stop()
	s := &stream{conn: c, id: uint32(2*len(c.streams) + 1), receive: receive}
	c.streams = append(c.streams, s)
	body := binary.BigEndian.AppendUint32(nil, s.id)
	body = append(body, 0, 0, 0, 0, 0, 0) // no associated stream, no priority
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

// Parts of a zlib stream around uncompressed text: its header, which identifies SPDY's dictionary, and an empty block
// that flushes the receiver.
const (
	zlibHead  = "\x78\xbb\xe3\xc6\xa7\xc2"
	zlibFlush = "\x00\x00\x00\xff\xff"
)

// headerBlock encodes a header for SYN_STREAM. All headers of a connection are one zlib stream.
func headerBlock(first bool, header []string) []byte {
	text := binary.BigEndian.AppendUint32(nil, uint32(len(header)/2))
	for _, s := range header {
		text = append(binary.BigEndian.AppendUint32(text, uint32(len(s))), s...)
	}
	var block []byte
	if first {
		block = []byte(zlibHead)
	}
	block = append(block, 0) // uncompressed, and not the last block
	block = binary.LittleEndian.AppendUint16(block, uint16(len(text)))
	block = binary.LittleEndian.AppendUint16(block, ^uint16(len(text)))
	return append(append(block, text...), zlibFlush...)
}

var errReset = errors.New("the member reset a stream")

// run delivers received data until the given streams have ended. It returns an error if one of them was reset.
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

// next reads one frame. It ignores frames without a meaning here.
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

// stream returns the stream whose ID is at the start of b, or nil.
func (c *spdyConn) stream(b []byte) *stream {
	id := binary.BigEndian.Uint32(b)
	if id%2 == 0 || int(id/2) >= len(c.streams) {
		return nil
	}
	return c.streams[id/2]
}

var pieces = sync.Pool{New: func() any { return new([headLen + maxPiece]byte) }}

func (c *spdyConn) data(s *stream, flags byte, length int) error {
	if s == nil || s.receive == nil || s.ended {
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
		s.receive(p)
	}
	s.ended = flags&flagFin != 0
	return nil
}

// pong answers a ping in the background. The member may block the write in progress until more of its data is read.
func (c *spdyConn) pong(frame [headLen + 4]byte) {
	if c.ponging.CompareAndSwap(false, true) {
		go func() { // ends with the connection
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

// send returns when the content of r is written to the member's connection.
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

func (s *stream) end() error {
	frame := binary.BigEndian.AppendUint32(nil, s.id)
	return s.conn.write(append(frame, flagFin, 0, 0, 0))
}
