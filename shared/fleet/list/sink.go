package list

import (
	"encoding/json"
	"net/http"

	"github.com/clusterpass/clusterpass/shared/fleet/merge"
)

// sink writes the response in large pieces. After an error, it writes nothing more. The gateway's writer sets the
// deadline of each write.
type sink struct {
	w   http.ResponseWriter
	buf []byte
	err error
}

const sinkSize = 64 << 10

func newSink(w http.ResponseWriter) *sink {
	return &sink{w: w, buf: make([]byte, 0, sinkSize)}
}

func (s *sink) text(t string) { s.buf = append(s.buf, t...) }

func (s *sink) bytes(p []byte) error {
	s.buf = append(s.buf, p...)
	if len(s.buf) < sinkSize {
		return s.err
	}
	return s.flush()
}

func (s *sink) flush() error {
	if s.err == nil {
		_, s.err = s.w.Write(s.buf)
	}
	s.buf = s.buf[:0]
	return s.err
}

// head writes kind, apiVersion and metadata of a list. kind and apiVersion are those of a member's list.
func (s *sink) head(of *merge.Source, m merge.Metadata) {
	text, err := json.Marshal(m)
	if err != nil {
		panic(err) // strings and numbers always marshal
	}
	s.buf = of.AppendHead(s.buf)
	s.text(`"metadata":`)
	s.buf = append(s.buf, text...)
}
