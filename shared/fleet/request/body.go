package request

import (
	"errors"
	"io"

	"github.com/clusterpass/clusterpass/shared/status"
)

// ReadBody reads the body of a client's request. Its errors are *status.Error, TooLarge for over limit bytes.
func ReadBody(body io.Reader, limit int64) ([]byte, error) {
	data, err := io.ReadAll(io.LimitReader(body, limit+1))
	var late *status.Error
	switch {
	case errors.As(err, &late):
		return nil, late
	case err != nil:
		return nil, status.New(status.BadRequest, "", "the body broke off before its end")
	case int64(len(data)) > limit:
		return nil, status.New(status.TooLarge, "", "the body is larger than %d KiB", limit>>10)
	}
	return data, nil
}
