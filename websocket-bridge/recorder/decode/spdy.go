package decode

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"math"
	"slices"
	"sync"

	"github.com/moby/spdystream/spdy"

	"github.com/clusterpass/clusterpass/websocket-bridge/channels"
	"github.com/clusterpass/clusterpass/websocket-bridge/frames"
)

// maxControl is the maximum size in bytes of a client's control frame. Those of kubectl have about 100.
const maxControl = 16 << 10

// maxHeaderField is the maximum size in bytes of a header's name or value in a control frame. Without it, a frame could
// become hundreds of MiB when its headers are decompressed. Those of kubectl have about 10.
const maxHeaderField = 4 << 10

// NewSPDY returns a Decoder for SPDY/3.1. It parses the client's control frames with the library of kubelets, so that
// both understand them alike.
func NewSPDY(o Options, sink Sink) Decoder {
	s := &spdyDecoder{sink: sink, options: o, channels: map[uint32]int{}}
	var err error
	s.parser, err = spdy.NewFramerWithOptions(io.Discard, &s.frame,
		spdy.WithMaxHeaderCount(maxStreams), spdy.WithMaxHeaderFieldSize(maxHeaderField))
	if err != nil {
		panic(err) // only for a wrong level of compression, which is constant
	}
	return s
}

type spdyDecoder struct {
	sink    Sink
	options Options
	in, out frames.SPDY
	sizes   sizes
	verdict verdict

	// State of the client's current frame.
	control []byte
	frame   bytes.Reader
	parser  *spdy.Framer

	mu       sync.Mutex
	channels map[uint32]int // by the ids of streams
	last     uint32         // the greatest id
}

// ForMember returns s, because SPDY is the same for members.
func (s *spdyDecoder) ForMember() Decoder { return s }

func (s *spdyDecoder) FromClient(p []byte) error {
	for len(p) > 0 {
		if s.in.Between() {
			s.control = s.control[:0]
		}
		head, payload, end := s.in.Split(p)
		s.control = append(s.control, p[:head]...)
		p = p[head+len(payload):]
		if len(payload) == 0 && !end {
			continue
		}
		id, isData := s.in.Stream()
		if isData {
			if err := s.fromClient(id, payload); err != nil {
				return err
			}
			continue
		}
		if len(s.control)+len(payload) > maxControl {
			return fmt.Errorf("a control frame of SPDY has more than %d bytes", maxControl)
		}
		if s.control = append(s.control, payload...); end {
			if err := s.addControl(); err != nil {
				return err
			}
		}
	}
	return nil
}

func (s *spdyDecoder) fromClient(id uint32, p []byte) error {
	channel, ok := s.channel(id)
	switch {
	case !ok || len(p) == 0:
		return nil // kubelets ignore data of unknown streams
	case channel == channels.Resize:
		return s.sizes.add(p, s.sink.Resize)
	case channel == channels.Stdin && !s.options.WithoutInput:
		return s.sink.Input(p)
	}
	return nil
}

func (s *spdyDecoder) channel(id uint32) (channel int, ok bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	channel, ok = s.channels[id]
	return channel, ok
}

// addControl parses the client's complete control frame. Only opened streams matter, but all headers of a connection
// are one compressed text.
func (s *spdyDecoder) addControl() error {
	s.frame.Reset(s.control)
	frame, err := s.parser.ReadFrame()
	if err != nil {
		return fmt.Errorf("a control frame of SPDY cannot be understood: %w", err)
	}
	if s.frame.Len() > 0 { // the library would read the rest as further frames
		return errors.New("a control frame of SPDY is longer than its content")
	}
	opened, ok := frame.(*spdy.SynStreamFrame)
	if !ok {
		return nil
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	id := uint32(opened.StreamId)
	if id%2 == 0 || id <= s.last || id > math.MaxInt32 || len(s.channels) == maxStreams {
		return errors.New("a stream of SPDY has an id that was not expected")
	}
	channel := slices.Index(channels.StreamTypes[:], opened.Headers.Get("streamType"))
	if channel < 0 {
		return errors.New("a stream of SPDY has an unknown type")
	}
	s.channels[id], s.last = channel, id
	return nil
}

// maxStreams is the maximum number of streams. A session has at most five.
const maxStreams = 16

func (s *spdyDecoder) FromMember(p []byte) (n int, err error) {
	return decodeFrames(&s.out, p, func(payload []byte, _ bool) error {
		id, isData := s.out.Stream()
		if !isData || len(payload) == 0 {
			return nil
		}
		switch channel, ok := s.channel(id); {
		case ok && (channel == channels.Stdout || channel == channels.Stderr):
			return s.sink.Output(channel, payload)
		case ok && channel == channels.Error:
			s.verdict.add(payload)
			return nil
		}
		return errChannel
	})
}

func (s *spdyDecoder) Rest(p []byte) int {
	if s.IsBetween() {
		return 0
	}
	n, _ := s.out.Next(p)
	return n
}

func (s *spdyDecoder) IsBetween() bool { return s.out.Between() }

func (s *spdyDecoder) Status() []byte { return s.verdict.text }

func (s *spdyDecoder) Farewell(channel int, message string, st []byte) []byte {
	s.mu.Lock()
	defer s.mu.Unlock()
	var out []byte
	for id, c := range s.channels {
		var content []byte
		switch c {
		case channel:
			content = []byte(message)
		case channels.Error:
			content = st
		case channels.Stdout, channels.Stderr:
		default:
			continue
		}
		out = appendLastData(out, id, content)
	}
	return out
}

// appendLastData appends a DATA frame that ends a stream.
func appendLastData(b []byte, id uint32, content []byte) []byte {
	b = binary.BigEndian.AppendUint32(b, id)
	b = binary.BigEndian.AppendUint32(b, uint32(spdy.DataFlagFin)<<24|uint32(len(content)))
	return append(b, content...)
}
