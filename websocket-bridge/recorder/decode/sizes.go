package decode

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
)

// sizes decodes the stream of terminal sizes. Kubelets stop to read it at the first error, and so does sizes.
type sizes struct {
	text     []byte // an incomplete object
	isBroken bool
}

// maxSize is the maximum length of one size in bytes.
const maxSize = 1 << 10

func (s *sizes) add(p []byte, emit func(width, height uint16) error) error {
	for len(p) > 0 && !s.isBroken {
		piece := p[:min(len(p), maxSize)]
		p = p[len(piece):]
		s.text = append(s.text, piece...)
		if err := s.decode(emit); err != nil {
			return err
		}
		if len(s.text) > maxSize {
			s.isBroken = true
		}
	}
	if s.isBroken {
		s.text = nil
	}
	return nil
}

func (s *sizes) decode(emit func(width, height uint16) error) error {
	for {
		var size struct{ Width, Height uint16 }
		dec := json.NewDecoder(bytes.NewReader(s.text))
		err := dec.Decode(&size)
		if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
			return nil
		}
		if err != nil {
			s.isBroken = true
			return nil
		}
		s.text = s.text[dec.InputOffset():]
		if err := emit(size.Width, size.Height); err != nil {
			return err
		}
	}
}
