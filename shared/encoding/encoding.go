// Package encoding reads which content codings a client accepts.
package encoding

import (
	"net/http"
	"strconv"
	"strings"
)

// AcceptsGzip reports whether a client names gzip, with a quality other than 0.
func AcceptsGzip(h http.Header) bool {
	for _, line := range h["Accept-Encoding"] {
		for item := range strings.SplitSeq(line, ",") {
			name, parameter, _ := strings.Cut(strings.ToLower(strings.ReplaceAll(item, " ", "")), ";")
			if name != "gzip" {
				continue
			}
			value, hasQuality := strings.CutPrefix(parameter, "q=")
			quality, err := strconv.ParseFloat(value, 64)
			return !hasQuality || err == nil && quality > 0
		}
	}
	return false
}
