package lambdahttp

import (
	"bytes"
	"encoding/base64"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"strconv"
	"strings"
)

// request converts an event to the request that net/http's server would have made. Its errors are the client's: 400.
func (in *wire) request(ev *Event) (*http.Request, error) {
	if !isToken(in.HTTPMethod) {
		return nil, errors.New("the method is not a token")
	}
	path, query := in.target(ev)
	if !strings.HasPrefix(path, "/") || strings.Contains(path, "?") || hasSpaceOrControl(path) ||
		hasSpaceOrControl(query) {
		return nil, errors.New("the path or query contains a character that is not valid in a URL")
	}
	u, err := url.ParseRequestURI(path) // like net/http for a request line
	if err != nil {
		return nil, errors.New("the path has an invalid escape")
	}
	u.RawQuery = query

	header, host, err := in.header()
	if err != nil {
		return nil, err
	}
	if host == "" {
		host = in.RequestContext.DomainName
	}
	body := []byte(in.Body)
	if in.IsBase64Encoded {
		if body, err = base64.StdEncoding.DecodeString(in.Body); err != nil {
			return nil, errors.New("the body is not valid base64")
		}
	}
	r := &http.Request{
		Method: in.HTTPMethod, URL: u, RequestURI: path, Host: host, Header: header,
		Proto: "HTTP/1.1", ProtoMajor: 1, ProtoMinor: 1,
		Body: http.NoBody, ContentLength: int64(len(body)),
	}
	if query != "" {
		r.RequestURI += "?" + query
	}
	if len(body) > 0 {
		r.Body = io.NopCloser(bytes.NewReader(body))
		header.Set("Content-Length", strconv.Itoa(len(body)))
	} else if header.Get("Content-Length") != "0" {
		header.Del("Content-Length")
	}
	header.Del("Transfer-Encoding") // the event contains the body
	if ev.SourceIP.IsValid() {
		r.RemoteAddr = net.JoinHostPort(ev.SourceIP.String(), "0") // no front reports the port
	}
	return r, nil
}

// target returns the escaped path and the raw query.
func (in *wire) target(ev *Event) (path, query string) {
	path = in.Path
	switch ev.Kind {
	case ALB:
		query = in.query(func(s string) string { return s })
	case REST:
		query = in.query(escapeQuery)
		if in.Version == "1.0" { // an HTTP API with the REST API's format: decoded, as in its own format
			path = (&url.URL{Path: path}).EscapedPath()
		}
	case HTTP:
		path, query = in.RawPath, in.RawQueryString
		if stage := ev.Stage; stage != "" && stage != "$default" {
			if rest, ok := strings.CutPrefix(path, "/"+stage); ok && (rest == "" || rest[0] == '/') {
				path = rest
			}
		}
		if !strings.Contains(in.RequestContext.DomainName, ".lambda-url.") {
			path = (&url.URL{Path: path}).EscapedPath()
		}
	}
	if path == "" {
		path = "/"
	}
	return path, query
}

// query builds a query from the event's map.
func (in *wire) query(escape func(string) string) string {
	params := in.MultiValueQueryStringParameters
	if len(params) == 0 {
		params = in.QueryStringParameters
	}
	var b strings.Builder
	for i, p := range params {
		if i > 0 {
			b.WriteByte('&')
		}
		b.WriteString(escape(p.key))
		b.WriteByte('=')
		b.WriteString(escape(p.value))
	}
	return b.String()
}

// escapeQuery escapes a key or value for every kind of reader. A space becomes %20, because some readers do not decode
// "+".
func escapeQuery(s string) string { return strings.ReplaceAll(url.QueryEscape(s), "+", "%20") }

// header returns the headers without Host, and Host.
func (in *wire) header() (http.Header, string, error) {
	var host string
	header := make(http.Header)
	for _, h := range in.headers() {
		if !isToken(h.key) {
			return nil, "", errors.New("a header name is not a token")
		}
		if hasControl(h.value) {
			return nil, "", fmt.Errorf("header %s contains a control character", http.CanonicalHeaderKey(h.key))
		}
		if strings.EqualFold(h.key, "Host") {
			host = h.value
			continue
		}
		header.Add(h.key, h.value)
	}
	// The HTTP API's format removes cookies from the headers. A function URL keeps them there, too.
	if len(in.Cookies) > 0 {
		cookie := strings.Join(in.Cookies, "; ")
		if hasControl(cookie) {
			return nil, "", errors.New("header Cookie contains a control character")
		}
		header.Set("Cookie", cookie)
	}
	return header, host, nil
}

// isToken reports whether s is a token of RFC 9110, the form of methods and header names.
func isToken(s string) bool {
	for i := range len(s) {
		c := s[i]
		if c <= ' ' || c >= 0x7f || strings.IndexByte(`()<>@,;:\"/[]?={}`, c) >= 0 {
			return false
		}
	}
	return s != ""
}

// hasControl reports whether s contains a character that is invalid in a header's value. A tab is valid.
func hasControl(s string) bool {
	for i := range len(s) {
		if c := s[i]; c < ' ' && c != '\t' || c == 0x7f {
			return true
		}
	}
	return false
}

// hasSpaceOrControl reports whether s contains a character that is invalid in a request line.
func hasSpaceOrControl(s string) bool {
	for i := range len(s) {
		if c := s[i]; c <= ' ' || c == 0x7f {
			return true
		}
	}
	return false
}
