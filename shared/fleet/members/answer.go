package members

import (
	"errors"
	"fmt"
	"io"
	"net/http"
)

// Answer is the response of a member, or the error of the call.
type Answer struct {
	Target
	Response *http.Response
	Body     io.Reader // decompressed
	Stop     func()    // ends the call; nil if none was made. Callers always call it or Close.
	Err      error     // a *Failure, or the cause if the caller has gone
}

// Succeeded reports whether the response has a code of success. A write is done then, even if the response is cut.
func (a *Answer) Succeeded() bool {
	return a.Response != nil && a.Response.StatusCode >= 200 && a.Response.StatusCode <= 299
}

// Split separates successful answers from failures. If the caller has gone, it closes all and returns the cause.
func Split(answers []*Answer) (good []*Answer, bad []*Failure, err error) {
	for _, a := range answers {
		var e *Failure
		switch {
		case a.Err == nil:
			good = append(good, a)
		case errors.As(a.Err, &e):
			bad = append(bad, e)
		default:
			err = a.Err
		}
	}
	if err != nil {
		CloseAll(good)
	}
	return good, bad, err
}

// Close ends the call and closes the body.
func (a *Answer) Close() {
	if a.Stop != nil {
		a.Stop()
	}
	if a.Response != nil {
		_ = a.Response.Body.Close()
	}
	if z, ok := a.Body.(*gzipReader); ok {
		z.close()
	}
}

// CloseAll closes answers.
func CloseAll(answers []*Answer) {
	for _, a := range answers {
		a.Close()
	}
}

// ReadLimited reads all of r. It fails if r has more than limit bytes.
func ReadLimited(r io.Reader, limit int64) ([]byte, error) {
	data, err := io.ReadAll(io.LimitReader(r, limit+1))
	if err == nil && int64(len(data)) > limit {
		err = fmt.Errorf("it is over %d MiB", limit>>20)
	}
	return data, err
}

func decompress(resp *http.Response) (io.Reader, error) {
	switch encoding := resp.Header.Get("Content-Encoding"); encoding {
	case "", "identity":
		return resp.Body, nil
	case "gzip":
		return newGzipReader(resp.Body)
	default:
		return nil, fmt.Errorf("it has the encoding %q, which was not requested", encoding)
	}
}
