package published

import (
	"bytes"
	"context"
	"crypto/sha512"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net/http"
	"os"
	"strings"
	"time"
)

const sumSize = sha512.Size

// A download is one archive on its path into the cache. The caller has locked the cache.
type download struct {
	archive archive
	client  *http.Client
	cache   *os.Root
	limits  limits
	bar     *bar
}

const partSuffix = ".part"

// part is the name of the incomplete archive. With another sum in the index it is another file.
func (d *download) part() string {
	return d.archive.name + "." + hex.EncodeToString(d.archive.sum[:8]) + partSuffix
}

// permanentError is an error that another request would not change.
type permanentError struct{ error }

func (e permanentError) Unwrap() error { return e.error }

var errStalled = errors.New("the server sends nothing")

// fetch downloads the archive into part until its SHA-512 matches.
func (d *download) fetch(ctx context.Context) error {
	part, err := d.cache.OpenFile(d.part(), os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return err
	}
	defer func() { _ = part.Close() }()
	for attempt := 1; ; attempt++ {
		offset, err := part.Seek(0, io.SeekEnd)
		if err != nil {
			return err
		}
		if err = d.transfer(ctx, part, offset); err == nil {
			if err = d.verify(ctx, part); err == nil {
				return nil
			}
			if offset == 0 {
				err = permanentError{err}
			}
			err = errors.Join(err, part.Truncate(0)) // the bytes of an earlier run may be wrong
		}
		var permanent permanentError
		switch {
		case ctx.Err() != nil:
			return context.Cause(ctx)
		case errors.As(err, &permanent), attempt == d.limits.attempts:
			return err
		}
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-time.After(d.limits.pause):
		}
	}
}

// transfer appends the bytes after offset to part, or all bytes if the server cannot continue there.
func (d *download) transfer(ctx context.Context, part *os.File, offset int64) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	stalled := time.AfterFunc(d.limits.stall, func() {
		cancel(fmt.Errorf("%w for %v", errStalled, d.limits.stall))
	})
	defer stalled.Stop()
	resp, err := get(ctx, d.client, d.archive.url, offset)
	if err != nil {
		return cause(ctx, err)
	}
	defer func() { _ = resp.Body.Close() }()
	switch {
	case resp.StatusCode == http.StatusRequestedRangeNotSatisfiable && offset > 0:
		return nil // part is complete or wrong
	case resp.StatusCode == http.StatusPartialContent &&
		strings.HasPrefix(resp.Header.Get("Content-Range"), fmt.Sprintf("bytes %d-", offset)):
	case resp.StatusCode == http.StatusOK:
		if err := restart(part); err != nil {
			return permanentError{err}
		}
		offset = 0
	case resp.StatusCode >= http.StatusInternalServerError || resp.StatusCode == http.StatusTooManyRequests:
		return errors.New(resp.Status)
	default:
		return permanentError{fmt.Errorf("the server answers with %s", resp.Status)}
	}
	tooLarge := permanentError{fmt.Errorf("the archive is larger than %d bytes", d.limits.archive)}
	if offset+max(0, resp.ContentLength) > d.limits.archive {
		return tooLarge
	}
	d.bar.start(offset, resp.ContentLength)
	body := &progressReader{from: resp.Body, stalled: stalled, stall: d.limits.stall, bar: d.bar}
	n, err := io.Copy(part, io.LimitReader(body, d.limits.archive-offset+1))
	d.bar.end()
	if offset+n > d.limits.archive {
		return errors.Join(tooLarge, restart(part))
	}
	return cause(ctx, err)
}

func restart(part *os.File) error {
	_, err := part.Seek(0, io.SeekStart)
	return errors.Join(err, part.Truncate(0))
}

// verify compares the SHA-512 of the whole file, which includes bytes of earlier runs.
func (d *download) verify(ctx context.Context, part *os.File) error {
	if _, err := part.Seek(0, io.SeekStart); err != nil {
		return err
	}
	sum := sha512.New()
	if _, err := io.Copy(sum, contextReader{ctx, part}); err != nil {
		return err
	}
	if got := sum.Sum(nil); !bytes.Equal(got, d.archive.sum) {
		return fmt.Errorf("its SHA-512 is %x, and %x in the index", got, d.archive.sum)
	}
	return nil
}

// removeParts deletes all incomplete archives.
func (d *download) removeParts() error {
	entries, err := fs.ReadDir(d.cache.FS(), ".")
	for _, entry := range entries {
		if strings.HasSuffix(entry.Name(), partSuffix) {
			err = errors.Join(err, d.cache.Remove(entry.Name()))
		}
	}
	return err
}

// progressReader shows the bytes that it reads, and delays the stall timer.
type progressReader struct {
	from    io.Reader
	stalled *time.Timer
	stall   time.Duration
	bar     *bar
}

func (r *progressReader) Read(b []byte) (int, error) {
	n, err := r.from.Read(b)
	if n > 0 {
		r.stalled.Reset(r.stall)
		r.bar.add(n)
	}
	return n, err
}

// contextReader fails after the end of ctx.
type contextReader struct {
	ctx  context.Context
	from io.Reader
}

func (r contextReader) Read(b []byte) (int, error) {
	if r.ctx.Err() != nil {
		return 0, context.Cause(r.ctx)
	}
	return r.from.Read(b)
}
