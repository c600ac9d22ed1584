package discovery

import (
	"net/http"
	"slices"
	"strings"

	"google.golang.org/protobuf/encoding/protowire"

	"github.com/clusterpass/clusterpass/shared/fleet/members"
	"github.com/clusterpass/clusterpass/shared/fleet/respond"
)

// openAPI2 responds with OpenAPI v2, which older clients read. It includes kinds that are not global.
func (h *Handler) openAPI2(w http.ResponseWriter, allowed []members.Entry) error {
	accept, contentType, unite, empty := binaryOpenAPI+", "+oldBinaryOpenAPI, binaryOpenAPI, uniteBinary, ""
	if !acceptsBinaryOpenAPI(h.Request.Header) {
		if _, err := h.Request.AcceptJSON(); err != nil {
			return err
		}
		accept, contentType, unite, empty = "application/json", "application/json", uniteSwagger, "{}"
	}
	key := []any{"v2", contentType, h.key(allowed)}
	d, err := h.schema(key, h.Caches.ttl, func(h *Handler) (*schema, error) {
		call := members.Call{Path: "/openapi/v2", Header: http.Header{"Accept": {accept}}}
		return h.unite(allowed, call, unite, empty)
	})
	if err != nil {
		return err
	}
	members.WarnOf(w.Header(), d.failures, omittedSchemas)
	respond.Typed(w, contentType, http.StatusOK, d.body)
	return nil
}

// The media types of OpenAPI v2 in protobuf. The older one is malformed. Responses have the first.
const (
	binaryOpenAPI    = "application/com.github.proto-openapi.spec.v2.v1.0+protobuf"
	oldBinaryOpenAPI = "application/com.github.proto-openapi.spec.v2@v1.0+protobuf"
)

func acceptsBinaryOpenAPI(h http.Header) bool {
	for clause := range strings.SplitSeq(strings.Join(h["Accept"], ","), ",") {
		if media, _, _ := strings.Cut(strings.TrimSpace(clause), ";"); media == binaryOpenAPI || media == oldBinaryOpenAPI {
			return true
		}
	}
	return false
}

func uniteSwagger(a, b []byte) ([]byte, error) {
	return unite(a, b, map[string]int{"paths": 1, "definitions": 1})
}

// binaryParts has the fields of paths and definitions in gnostic's openapi.v2.Document, and that of their entries.
var binaryParts = []struct{ field, entries protowire.Number }{{8, 2}, {9, 1}}

const binaryName protowire.Number = 1 // the field of the name of an entry

// uniteBinary is uniteSwagger for protobuf, whose readers unite repeated fields. It appends the new entries.
func uniteBinary(a, b []byte) ([]byte, error) {
	out := slices.Clone(a)
	for _, part := range binaryParts {
		have, names := map[string]bool{}, 0
		if err := binaryEntries(a, part.field, part.entries, 2*maxNames, func(name, _ []byte) {
			have[string(name)] = true
			names++
		}); err != nil {
			return nil, err
		}
		var more []byte
		err := binaryEntries(b, part.field, part.entries, maxNames, func(name, entry []byte) {
			if !have[string(name)] {
				names++
				more = protowire.AppendBytes(protowire.AppendTag(more, part.entries, protowire.BytesType), entry)
			}
		})
		if err == nil && names > 2*maxNames {
			err = errManyNames
		}
		if err != nil {
			return nil, err
		}
		if len(more) > 0 {
			out = protowire.AppendBytes(protowire.AppendTag(out, part.field, protowire.BytesType), more)
		}
	}
	return out, nil
}

func binaryEntries(doc []byte, part, entries protowire.Number, limit int, found func(name, entry []byte)) error {
	return binaryFields(doc, part, func(v []byte) error {
		return binaryFields(v, entries, func(entry []byte) error {
			var name []byte
			if err := binaryFields(entry, binaryName, func(v []byte) error {
				name = v // the last one counts
				return nil
			}); err != nil || name == nil {
				return err
			}
			if limit--; limit < 0 {
				return errManyNames
			}
			found(name, entry)
			return nil
		})
	})
}

func binaryFields(message []byte, number protowire.Number, found func(v []byte) error) error {
	for len(message) > 0 {
		n, typ, size := protowire.ConsumeTag(message)
		if size < 0 {
			return protowire.ParseError(size)
		}
		length := protowire.ConsumeFieldValue(n, typ, message[size:])
		if length < 0 {
			return protowire.ParseError(length)
		}
		if n == number && typ == protowire.BytesType {
			v, _ := protowire.ConsumeBytes(message[size:])
			if err := found(v); err != nil {
				return err
			}
		}
		message = message[size+length:]
	}
	return nil
}
