package members

import (
	"errors"
	"io"
	"sync"

	"github.com/klauspost/compress/gzip"
)

// gzipReaders keeps readers between responses, since each has 40 KiB.
var gzipReaders = sync.Pool{New: func() any { return new(gzip.Reader) }}

// gzipReader decompresses a response. One that is not read to its end keeps its reader from the pool.
type gzipReader struct{ z *gzip.Reader } // z is nil at the end

func newGzipReader(compressed io.Reader) (io.Reader, error) {
	z := gzipReaders.Get().(*gzip.Reader)
	if err := z.Reset(compressed); err != nil {
		return nil, err
	}
	return &gzipReader{z}, nil
}

func (r *gzipReader) Read(p []byte) (int, error) {
	if r.z == nil {
		return 0, io.EOF
	}
	n, err := r.z.Read(p)
	if errors.Is(err, io.EOF) { // gzip returns another error for a stream that is cut
		gzipReaders.Put(r.z)
		r.z = nil
	}
	return n, err
}
