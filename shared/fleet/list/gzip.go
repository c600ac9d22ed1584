package list

import (
	"net/http"
	"sync"

	"github.com/klauspost/compress/gzip"

	"github.com/clusterpass/clusterpass/shared/encoding"
)

// minCompressed is the size from which a list is compressed, in bytes. kube-apiserver has the same limit.
const minCompressed = 128 << 10

// gzipWriters compress at the fastest level, as kube-apiserver does.
var gzipWriters = sync.Pool{New: func() any {
	w, err := gzip.NewWriterLevel(nil, gzip.BestSpeed)
	if err != nil {
		panic(err) // the level is constant
	}
	return w
}}

// serveCompressed calls serve with a writer that compresses if the client accepts it, as kube-apiserver does. Even for
// a client on this machine, TLS of the uncompressed bytes costs as much as compression.
func serveCompressed(w http.ResponseWriter, r *http.Request, serve func(http.ResponseWriter) error) error {
	w.Header().Add("Vary", "Accept-Encoding")
	if !encoding.AcceptsGzip(r.Header) {
		return serve(w)
	}
	c := &compressor{ResponseWriter: w}
	err := serve(c)
	if err == nil {
		c.end()
	}
	return err
}

// compressor compresses a response of minCompressed bytes and more. The middleware of klauspost/compress is not used:
// it links zstd, which makes cold starts of the function slower.
type compressor struct {
	http.ResponseWriter
	code  int
	start []byte       // the whole response so far, until it is large
	gzip  *gzip.Writer // nil until then
}

func (c *compressor) WriteHeader(code int) { c.code = code }

func (c *compressor) Write(p []byte) (int, error) {
	if c.gzip != nil {
		return c.gzip.Write(p)
	}
	if c.start = append(c.start, p...); len(c.start) < minCompressed {
		return len(p), nil
	}
	c.Header().Set("Content-Encoding", "gzip")
	c.Header().Del("Content-Length")
	c.ResponseWriter.WriteHeader(c.code)
	c.gzip = gzipWriters.Get().(*gzip.Writer)
	c.gzip.Reset(c.ResponseWriter)
	_, err := c.gzip.Write(c.start)
	c.start = nil
	return len(p), err
}

// end writes the rest of a complete response. An error means that the client is gone.
func (c *compressor) end() {
	if c.gzip == nil {
		c.ResponseWriter.WriteHeader(c.code)
		_, _ = c.ResponseWriter.Write(c.start)
		return
	}
	_ = c.gzip.Close()
	c.gzip.Reset(nil)
	gzipWriters.Put(c.gzip)
}
