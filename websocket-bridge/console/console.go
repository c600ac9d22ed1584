// Package console serves the web page at /console/ that shows the clusters, the fleet and its objects. The page sends
// the same requests as kubectl, so it has no rights of its own. `make console` builds it from web/ into dist/.
// docs/explanation/security.md has its threat model.
//
// Invariants:
//   - All responses are public: they are the same for every caller, and contain no object.
//   - The browser runs only scripts of the page, which the nonce of the response names, and what those import.
//   - An asset has a hash of its content in its name, so that its response never changes.
package console

import (
	"bytes"
	"compress/gzip"
	"crypto/rand"
	"embed"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"mime"
	"net/http"
	"path"
	"strings"
	"sync"
	"time"

	"github.com/clusterpass/clusterpass/shared/encoding"
)

// Path is the prefix of all URLs of the console.
const Path = "/console/"

// dist has only a README unless make console has run.
//
//go:embed all:dist
var dist embed.FS

const (
	// writeTimeout is the time to write a response, which a client may delay by not reading it.
	writeTimeout = time.Minute
	// readTimeout is the time to read a request's body, which net/http discards after the response.
	readTimeout = time.Second
)

// console serves the files of a build. It is safe for concurrent use.
type console struct {
	page     []byte            // nil without a build
	licenses []byte            // texts of the packages in the build
	assets   map[string]*asset // by URL path
	config   []byte
	policy   string // Content-Security-Policy, with nonce for the nonce
}

// asset is a file whose URL contains a hash of its content.
type asset struct {
	contentType string
	compressed  []byte // gzip
	// content decompresses once. So responses that clients read slowly share its memory.
	content func() ([]byte, error)
}

const nonce = "NONCE"

// Handler returns a handler that serves the console, and all other paths by next.
func Handler(cfg SignIn, next http.Handler) (http.Handler, error) {
	files, err := fs.Sub(dist, "dist")
	if err != nil {
		return nil, err
	}
	c, err := open(files, cfg)
	if err != nil {
		return nil, fmt.Errorf("open the console: %w", err)
	}
	return c.before(next), nil
}

// before returns a handler that serves the paths of c, and all other paths by next.
func (c *console) before(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if p := r.URL.EscapedPath(); p != strings.TrimSuffix(Path, "/") && !strings.HasPrefix(p, Path) {
			next.ServeHTTP(w, r)
			return
		}
		c.ServeHTTP(w, r)
	})
}

func open(files fs.FS, cfg SignIn) (*console, error) {
	settings, err := json.Marshal(cfg.page())
	if err != nil {
		return nil, err
	}
	c := &console{assets: map[string]*asset{}, config: settings, policy: policy(cfg)}
	if c.page, err = fs.ReadFile(files, "index.html"); errors.Is(err, fs.ErrNotExist) {
		return c, nil
	} else if err != nil {
		return nil, err
	}
	if c.licenses, err = fs.ReadFile(files, "licenses.txt"); err != nil {
		return nil, err
	}
	names, err := fs.Glob(files, "assets/*.gz")
	if err != nil {
		return nil, err
	}
	for _, name := range names {
		compressed, err := fs.ReadFile(files, name)
		if err != nil {
			return nil, err
		}
		name = strings.TrimSuffix(name, ".gz")
		c.assets[Path+name] = &asset{
			contentType: contentType(name), compressed: compressed,
			content: sync.OnceValues(func() ([]byte, error) { return decompress(compressed) }),
		}
	}
	return c, nil
}

// contentType does not depend on the MIME tables of the machine for the files that a build has.
func contentType(name string) string {
	switch ext := path.Ext(name); ext {
	case ".js":
		return "text/javascript; charset=utf-8"
	case ".css":
		return "text/css; charset=utf-8"
	case ".svg":
		return "image/svg+xml"
	default:
		if t := mime.TypeByExtension(ext); t != "" {
			return t
		}
		return "application/octet-stream"
	}
}

// policy returns the Content-Security-Policy of the page. Responses of member clusters share the page's origin, so
// 'self' would allow their scripts. With strict-dynamic, the browser runs only scripts that carry the nonce of the
// response, and those that they import. WebAssembly runs in the player of recordings, compiled from such a script.
func policy(cfg SignIn) string {
	connect := append([]string{"'self'"}, cfg.origins()...)
	return strings.Join([]string{
		"default-src 'none'", "script-src 'nonce-" + nonce + "' 'strict-dynamic' 'wasm-unsafe-eval'", "style-src 'self'",
		"connect-src " + strings.Join(connect, " "), "img-src 'self' data:", "font-src 'self' data:", "base-uri 'none'",
		"form-action 'none'", "frame-ancestors 'none'",
	}, "; ")
}

// ServeHTTP implements http.Handler for the paths of the console.
func (c *console) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	rc := http.NewResponseController(w)
	_ = rc.SetWriteDeadline(time.Now().Add(writeTimeout))
	h := w.Header()
	if r.ContentLength != 0 {
		_ = rc.SetReadDeadline(time.Now().Add(readTimeout))
		h.Set("Connection", "close") // the rest of the body may never come
	}
	h.Set("X-Content-Type-Options", "nosniff")
	h.Set("Referrer-Policy", "no-referrer")
	h.Set("Cross-Origin-Opener-Policy", "same-origin")
	h.Set("Cross-Origin-Resource-Policy", "same-origin")
	h.Set("Content-Security-Policy", "default-src 'none'; frame-ancestors 'none'; sandbox")
	if r.Method != http.MethodGet && r.Method != http.MethodHead {
		h.Set("Allow", "GET, HEAD")
		http.Error(w, "the console serves GET and HEAD", http.StatusMethodNotAllowed)
		return
	}
	switch p := r.URL.EscapedPath(); {
	case p+"/" == Path:
		http.Redirect(w, r, Path, http.StatusPermanentRedirect)
	case c.page == nil:
		c.serveUnbuilt(w)
	case p == Path+"config.json":
		h.Set("Cache-Control", "no-store")
		write(w, r, http.StatusOK, "application/json", c.config)
	case p == Path+"licenses.txt":
		h.Set("Cache-Control", "no-store")
		write(w, r, http.StatusOK, "text/plain; charset=utf-8", c.licenses)
	case strings.HasPrefix(p, Path+"assets/"):
		c.serveAsset(w, r, c.assets[p])
	default: // the page finds its view by the path
		c.servePage(w, r)
	}
}

func (c *console) serveUnbuilt(w http.ResponseWriter) {
	w.Header().Set("Cache-Control", "no-store")
	http.Error(w, "This program was built without the console. To build it, run `make console` with Node 20 or later, "+
		"and build the program again. Released binaries and images contain the console.", http.StatusNotImplemented)
}

func (c *console) servePage(w http.ResponseWriter, r *http.Request) {
	value := rand.Text()
	h := w.Header()
	h.Set("Cache-Control", "no-store")
	h.Set("Content-Security-Policy", strings.ReplaceAll(c.policy, nonce, value))
	write(w, r, http.StatusOK, "text/html; charset=utf-8", bytes.ReplaceAll(c.page, []byte(nonce), []byte(value)))
}

func (c *console) serveAsset(w http.ResponseWriter, r *http.Request, a *asset) {
	h := w.Header()
	if a == nil {
		h.Set("Cache-Control", "no-store") // another replica may have the asset soon
		http.Error(w, "this build of the console has no such asset; load the page again", http.StatusNotFound)
		return
	}
	h.Set("Cache-Control", "public, max-age=31536000, immutable")
	h.Set("Vary", "Accept-Encoding")
	if encoding.AcceptsGzip(r.Header) {
		h.Set("Content-Encoding", "gzip")
		write(w, r, http.StatusOK, a.contentType, a.compressed)
		return
	}
	content, err := a.content()
	if err != nil {
		http.Error(w, "the asset cannot be read; build the program again", http.StatusInternalServerError)
		return
	}
	write(w, r, http.StatusOK, a.contentType, content)
}

func decompress(compressed []byte) ([]byte, error) {
	r, err := gzip.NewReader(bytes.NewReader(compressed))
	if err != nil {
		return nil, err
	}
	var out bytes.Buffer
	_, err = out.ReadFrom(r)
	return out.Bytes(), err
}

func write(w http.ResponseWriter, r *http.Request, code int, contentType string, body []byte) {
	w.Header().Set("Content-Type", contentType)
	w.Header().Set("Content-Length", fmt.Sprint(len(body)))
	w.WriteHeader(code)
	if r.Method != http.MethodHead {
		_, _ = w.Write(body)
	}
}
