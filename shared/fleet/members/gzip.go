package members

import (
	"io"
	"net/http"
	"os"
	"sync"

	"github.com/klauspost/compress/gzip"
)

// gzipReaders keeps readers between responses, since each has some 45 KiB.
var gzipReaders = sync.Pool{New: func() any { return new(gzip.Reader) }}

// gzipReader decompresses a response. Its end and close give its reader to later responses.
type gzipReader struct {
	mu  sync.Mutex // so that a close beside a Read cannot give away the reader
	z   *gzip.Reader
	err error // of further reads, when z is nil
}

func newGzipReader(compressed io.Reader) (io.Reader, error) {
	r := &gzipReader{z: gzipReaders.Get().(*gzip.Reader)}
	if err := r.z.Reset(compressed); err != nil {
		r.release(err)
		return nil, err
	}
	return r, nil
}

// Read returns os.ErrClosed after close, and the same error again after the end.
func (r *gzipReader) Read(p []byte) (int, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.z == nil {
		return 0, r.err
	}
	n, err := r.z.Read(p)
	if err != nil {
		r.release(err)
	}
	return n, err
}

// close does not wait for a Read. The reader of that one is not used again.
func (r *gzipReader) close() {
	if !r.mu.TryLock() {
		return
	}
	defer r.mu.Unlock()
	if r.z != nil {
		r.release(os.ErrClosed)
	}
}

// release puts the reader back, without its response. Its buffer keeps decompressed text, which the next response
// overwrites and cannot refer to.
func (r *gzipReader) release(err error) {
	_ = r.z.Reset(http.NoBody) // fails, since that is no gzip
	gzipReaders.Put(r.z)
	r.z, r.err = nil, err
}
