package list

import (
	"net/http"

	"github.com/klauspost/compress/gzhttp"
	"github.com/klauspost/compress/gzip"

	"github.com/clusterpass/clusterpass/shared/limits"
)

// minCompressed is the size from which a list is compressed, in bytes. kube-apiserver has the same limit.
const minCompressed = 128 << 10

// compressing is a middleware that compresses what is larger, if the client accepts gzip. The fastest level exceeds the
// speed of most networks.
var compressing = newCompressing()

func newCompressing() func(http.Handler) http.HandlerFunc {
	wrap, err := gzhttp.NewWrapper(gzhttp.MinSize(minCompressed), gzhttp.CompressionLevel(gzip.BestSpeed),
		gzhttp.ContentTypes([]string{"application/json"}), gzhttp.EnableZstd(false))
	if err != nil {
		panic(err) // the options are constant
	}
	return wrap
}

// compressed calls serve with a writer that compresses for clients on other machines. On this machine, the CPU time
// would exceed the gain.
func compressed(w http.ResponseWriter, r *http.Request, serve func(http.ResponseWriter) error) (err error) {
	if limits.SourceFrom(r.Context()).IsLoopback() {
		return serve(w)
	}
	compressing(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { err = serve(w) })).ServeHTTP(w, r)
	return err
}
