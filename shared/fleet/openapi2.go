package fleet

import (
	"net/http"
	"slices"
	"strings"

	"google.golang.org/protobuf/encoding/protowire"

	"github.com/clusterpass/clusterpass/shared/fleet/members"
)

// openAPI2 answers with the OpenAPI v2 documents of the clusters, united: older clients read them, in JSON or in protobuf. They are not
// held to what is global.
func (q *ask) openAPI2(w http.ResponseWriter, allowed []members.Entry) error {
	accept, contentType, unite, empty := binaryOpenAPI+", "+oldBinaryOpenAPI, binaryOpenAPI, uniteBinary, ""
	if !takesBinaryOpenAPI(q.r.Header) {
		if _, err := acceptJSON(q.r.Header); err != nil {
			return err
		}
		accept, contentType, unite, empty = "application/json", "application/json", uniteSwagger, "{}"
	}
	of := q.discoveryKey(allowed)
	d, err := q.schema([]any{"v2", contentType, of}, swaggerTTL, func(q *ask) (*schema, error) {
		return q.united(allowed, members.Call{Path: "/openapi/v2", Header: http.Header{"Accept": {accept}}}, unite, empty)
	})
	if err != nil {
		return err
	}
	for _, e := range d.failures {
		members.AddWarning(w.Header(), e.Text()+" (its schemas are left out)")
	}
	writeTyped(w, contentType, http.StatusOK, d.body)
	return nil
}

// What OpenAPI v2 in protobuf is called, and was, by a name that is no media type: answers have the first.
const (
	binaryOpenAPI    = "application/com.github.proto-openapi.spec.v2.v1.0+protobuf"
	oldBinaryOpenAPI = "application/com.github.proto-openapi.spec.v2@v1.0+protobuf"
)

// takesBinaryOpenAPI reports whether a client takes protobuf.
func takesBinaryOpenAPI(h http.Header) bool {
	for clause := range strings.SplitSeq(strings.Join(h["Accept"], ","), ",") {
		if media, _, _ := strings.Cut(strings.TrimSpace(clause), ";"); media == binaryOpenAPI || media == oldBinaryOpenAPI {
			return true
		}
	}
	return false
}

// uniteSwagger adds to one document the paths and definitions that only another has.
func uniteSwagger(a, b []byte) ([]byte, error) {
	return unite(a, b, map[string]int{"paths": 1, "definitions": 1})
}

// Of a document in protobuf (gnostic's openapi.v2.Document): the fields of paths and definitions, which entries they repeat, and the field
// of an entry's name.
var binaryParts = []struct{ field, entries protowire.Number }{{8, 2}, {9, 1}}

const binaryName protowire.Number = 1

// uniteBinary does the same in protobuf, where what is said twice is united by whoever reads it: only what is new is added.
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

// binaryEntries finds the named entries of a part of a document, at most so many, each once.
func binaryEntries(doc []byte, part, entries protowire.Number, most int, found func(name, entry []byte)) error {
	return binaryFields(doc, part, func(v []byte) error {
		return binaryFields(v, entries, func(entry []byte) error {
			var name []byte
			if err := binaryFields(entry, binaryName, func(v []byte) error {
				name = v // the last is what readers take
				return nil
			}); err != nil || name == nil {
				return err
			}
			if most--; most < 0 {
				return errManyNames
			}
			found(name, entry)
			return nil
		})
	})
}

// binaryFields finds the fields of a message that have a number and a length.
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
